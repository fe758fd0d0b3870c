"""The routes by which people change something. Each looks at the state, plans, and either shows the plan (dry run) or
stages the one event that it stands for, in the same breath, so that nothing comes in between."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from trainmaster.core.base.ids import NAME_PATTERN, HostId, Owner, looks_like_job_id
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import HOUR, Instant, after, seconds
from trainmaster.core.commands import HostPlanItem, check_cancel, check_requeue, check_submit, plan_drain, plan_resume
from trainmaster.core.events import AnyEvent
from trainmaster.core.fleet.events import DrainRequested, ResumeRequested
from trainmaster.core.scheduling.events import JobCancelled, JobRequeued, JobSubmitted
from trainmaster.core.scheduling.job import Job
from trainmaster.core.scheduling.request import JobSpec, MaintenanceContract
from trainmaster.core.state import ClusterState
from trainmaster.core.words import count_text
from trainmaster.live.server import views
from trainmaster.live.server.http import Call, Refusal, Route
from trainmaster.live.server.people import known_hosts, known_job
from trainmaster.live.server.resources import (
    ChangeReport,
    HostChangeItem,
    HostsChange,
    JobChange,
    JobSubmission,
    SubmitReport,
)
from trainmaster.live.server.runtime import Runtime

USER_HEADER: Final = "trainmaster-user"
HOSTS_MAX: Final = 65_536
RANKS_MAX: Final = 1024
DEADLINE_MAX_S: Final = 30 * 86_400.0
CONTRACT_MAX: Final = 366 * 24 * HOUR
_USER: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")


LEFT_TO_A_PERSON: Final = ("policy:undo/", "policy:rollout/")
"""Owners of holds that no policy lifts: somebody has to look at the host first."""


def asker(call: Call) -> Owner:
    """Who asks, as the client says; the token only tells the role."""
    user = call.request.headers.get(USER_HEADER, "operator")
    if not _USER.fullmatch(user):
        raise Refusal(400, Token.BAD_REQUEST, f"the header {USER_HEADER} is no user name: {user[:80]!r}")
    return Owner(f"person:{user}")


def with_reason(reason: str, dry_run: bool) -> None:
    if not reason.strip() and not dry_run:
        raise Refusal(400, Token.BAD_REQUEST, "a change needs a reason; it is kept with your name")


def _check_spec(spec: JobSpec) -> None:
    """A job file is checked where it is read; this holds for every other way in."""
    rules = (
        (NAME_PATTERN.fullmatch(spec.name) is not None, "name must be a DNS label (a-z, 0-9, -; at most 63)"),
        (not looks_like_job_id(spec.name), "name must not look like the id of a job (job-NUMBER)"),
        (bool(spec.command) and bool(spec.command[0]), "command must not be empty"),
        (1 <= spec.hosts <= HOSTS_MAX, f"hosts must be 1 to {HOSTS_MAX}"),
        (1 <= spec.ranks_per_host <= RANKS_MAX, f"ranks_per_host must be 1 to {RANKS_MAX}"),
        (0 <= spec.spares <= HOSTS_MAX, f"spares must be 0 to {HOSTS_MAX}"),
        (-1000 <= spec.priority <= 1000, "priority must be -1000 to 1000"),
        (spec.checkpoint.every_steps >= 0, "checkpoint.every_steps must not be negative"),
        (
            not (spec.checkpoint.auto and spec.checkpoint.every_steps),
            "checkpoint is either auto or every so many steps",
        ),
        (spec.checkpoint.keep >= 1, "checkpoint.keep must be at least 1"),
        (spec.restart.max_restarts >= 0, "restart.max_restarts must not be negative"),
        (spec.restart.window > 0, "restart.window must be positive"),
        (spec.restart.same_failure_limit >= 1, "restart.same_failure_limit must be at least 1"),
        (spec.yield_deadline > 0, "yield_deadline must be positive"),
        (_is_sound(spec.contract), "durations of contract must be 0 to a year, protected_until an instant"),
        (not any("\0" in text or "=" in name for name, text in spec.environment.items()), "environment is malformed"),
        (not any("\0" in word for word in spec.command), "command must not contain NUL"),
    )
    broken = [rule for holds, rule in rules if not holds]
    if broken:
        raise Refusal(400, Token.BAD_REQUEST, f"the job can't be accepted: {'; '.join(broken)}")


def _is_sound(contract: MaintenanceContract) -> bool:
    durations = (contract.notice, contract.checkpoint_wait, contract.wait_for_end, contract.expected_duration or 0)
    protected = contract.protected_until is None or 0 <= contract.protected_until < 2**53
    return protected and all(0 <= duration <= CONTRACT_MAX for duration in durations)


async def submit_job(call: Call) -> SubmitReport:
    body: JobSubmission = call.body
    _check_spec(body.spec)
    by, now = asker(call), call.service.now()

    def decide(runtime: Runtime) -> SubmitReport:
        engine, spec = runtime.engine, body.spec
        refused = check_submit(engine.state, spec)
        if refused is not None:
            raise Refusal.of(409, refused)
        if body.dry_run:
            found = engine.preview_placement(spec.hosts, spec.spares)
            waits = found if isinstance(found, Reason) else None
            where = () if isinstance(found, Reason) else found
            return SubmitReport(index=engine.index, dry_run=True, job=None, would_start_on=where, waits=waits)
        entry = runtime.stage(JobSubmitted(at=now, spec=spec, by=by))
        state = runtime.engine.state
        [job] = [job for job in state.jobs.values() if job.submitted_index == entry.index]
        attempt = views.newest_attempt(state, job)
        return SubmitReport(
            index=entry.index,
            dry_run=False,
            job=job.id,
            would_start_on=attempt.members if attempt is not None else (),
            waits=job.reason if attempt is None else None,
        )

    return await call.service.command(decide)


async def drain(call: Call) -> ChangeReport:
    body: HostsChange = call.body
    if body.evict and body.deadline_s is None:
        raise Refusal(400, Token.BAD_REQUEST, "evict needs deadline_s: how long the jobs may stay")
    if body.deadline_s is not None and not 0 <= body.deadline_s <= DEADLINE_MAX_S:
        raise Refusal(400, Token.BAD_REQUEST, f"deadline_s must be 0 to {DEADLINE_MAX_S:.0f}, not {body.deadline_s}")
    by, now = asker(call), call.service.now()
    deadline = after(now, seconds(body.deadline_s)) if body.deadline_s is not None else None

    def event(hosts: tuple[HostId, ...]) -> DrainRequested:
        return DrainRequested(at=now, hosts=hosts, reason=body.reason, by=by, deadline=deadline, evict=body.evict)

    return await _change_hosts(call, plan_drain, event, whole=deadline is not None)


async def resume(call: Call) -> ChangeReport:
    body: HostsChange = call.body
    by, now = asker(call), call.service.now()
    owner, reason = by, body.reason
    if body.owner and body.owner != by:
        if not body.owner.startswith(LEFT_TO_A_PERSON):
            left = ", ".join(f"{start}*" for start in LEFT_TO_A_PERSON)
            sentence = f"a person lifts own holds, and those of {left}; not of {body.owner[:80]}"
            raise Refusal(403, Token.NOT_ALLOWED, sentence)
        owner, reason = Owner(body.owner), f"{body.reason} (asked by {by.partition(':')[2]})"

    def event(hosts: tuple[HostId, ...]) -> ResumeRequested:
        return ResumeRequested(at=now, hosts=hosts, reason=reason, by=owner)

    return await _change_hosts(call, lambda state, hosts, _: plan_resume(state, hosts, owner), event, whole=False)


async def _change_hosts(
    call: Call,
    plan: Callable[[ClusterState, Sequence[HostId], Owner], tuple[HostPlanItem, ...]],
    event: Callable[[tuple[HostId, ...]], AnyEvent],
    whole: bool,
) -> ChangeReport:
    """`whole`: the event names all hosts, also those that the plan leaves as they are."""
    body: HostsChange = call.body
    with_reason(body.reason, body.dry_run)
    by = asker(call)

    def decide(runtime: Runtime) -> ChangeReport:
        state = runtime.engine.state
        if body.check_index is not None and body.check_index != state.index:
            sentence = f"the plan is of index {body.check_index}, and the log is at {state.index}"
            raise Refusal(409, Token.WORLD_MOVED, sentence, planned=body.check_index, index=state.index)
        hosts = known_hosts(state, body.hosts)
        if not hosts:
            raise Refusal(400, Token.BAD_REQUEST, "the host list names no host")
        items = plan(state, hosts, by)
        touched = tuple(item.host for item in items if item.changed or whole)
        index = state.index
        if touched and not body.dry_run:
            index = runtime.stage(event(touched)).index
        return ChangeReport(
            index=index,
            dry_run=body.dry_run,
            items=tuple(
                HostChangeItem(
                    host=i.host, changed=i.changed, sentence=i.sentence, refused=i.refused, job=i.job, gpus=i.gpus
                )
                for i in items
            ),
            refused=sum(item.refused for item in items),
            sentence=f"{len(touched)} of {count_text(len(items), 'host')} change",
        )

    return await call.service.command(decide)


async def cancel(call: Call) -> ChangeReport:
    return await _change_job(
        call,
        lambda state, job: check_cancel(job),
        lambda at, job, by, reason: JobCancelled(at=at, job=job.id, by=by, reason=reason),
        "is cancelled",
    )


async def requeue(call: Call) -> ChangeReport:
    return await _change_job(
        call,
        check_requeue,
        lambda at, job, by, reason: JobRequeued(at=at, job=job.id, by=by, reason=reason),
        "is queued again",
    )


async def _change_job(
    call: Call,
    check: Callable[[ClusterState, Job], Reason | None],
    event: Callable[[Instant, Job, Owner, str], AnyEvent],
    what: str,
) -> ChangeReport:
    body: JobChange = call.body
    with_reason(body.reason, body.dry_run)
    by, now = asker(call), call.service.now()

    def decide(runtime: Runtime) -> ChangeReport:
        state = runtime.engine.state
        job = known_job(state, call.name("job"))
        refused = check(state, job)
        if refused is not None:
            raise Refusal.of(409, refused)
        index = state.index if body.dry_run else runtime.stage(event(now, job, by, body.reason)).index
        return ChangeReport(index=index, dry_run=body.dry_run, sentence=f"{job.spec.name} ({job.id}) {what}")

    return await call.service.command(decide)


ROUTES = (
    Route(
        method="POST",
        path="/v1/hosts/drain",
        access="operator",
        summary="Take hosts out for planned work",
        handle=drain,
        body=HostsChange,
        answer=ChangeReport,
        errors=(404, 409, 507),
    ),
    Route(
        method="POST",
        path="/v1/hosts/resume",
        access="operator",
        summary="Lift your hold on hosts",
        handle=resume,
        body=HostsChange,
        answer=ChangeReport,
        errors=(404, 409, 507),
    ),
    Route(
        method="POST",
        path="/v1/jobs",
        access="operator",
        summary="Submit a job",
        handle=submit_job,
        body=JobSubmission,
        answer=SubmitReport,
        errors=(409, 507),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{job}/cancel",
        access="operator",
        summary="End a job",
        handle=cancel,
        body=JobChange,
        answer=ChangeReport,
        errors=(404, 409, 507),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{job}/requeue",
        access="operator",
        summary="Stop a job after a checkpoint and queue it again",
        handle=requeue,
        body=JobChange,
        answer=ChangeReport,
        errors=(404, 409, 507),
    ),
)
