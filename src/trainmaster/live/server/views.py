"""What the API shows, built from the state and from the latest heartbeats. One function a resource; none changes
anything, and each reads the state while it equals the log."""

from collections import Counter
from collections.abc import Iterable, Iterator

from trainmaster.core.accounting.goodput import account, gpus_of
from trainmaster.core.accounting.report import JobAccount
from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import AttemptId, JobId, job_of
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.checkpoint.choice import TRIAL_STEPS
from trainmaster.core.diagnosis.live import LiveDiagnosis
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.recovery.attempt import Attempt, AttemptState, Epoch
from trainmaster.core.recovery.stall import RankMark, stalled
from trainmaster.core.scheduling.job import Job, JobState
from trainmaster.core.state import ClusterState
from trainmaster.core.step import Step
from trainmaster.core.words import count_text
from trainmaster.core.words import sentence as event_sentence
from trainmaster.live.server import health_views, maintenance_views
from trainmaster.live.server.full import Full
from trainmaster.live.server.liveview import LiveView
from trainmaster.live.server.maintenance_views import visit_view
from trainmaster.live.server.resources import (
    HoldView,
    HostView,
    JobDetail,
    JobProgress,
    JobView,
    LoggedEvent,
    RankView,
    SavesView,
)
from trainmaster.ports.event_log import Entry

ATTENTION_MAX = 100


def host_view(state: ClusterState, host: Host, live: LiveView) -> HostView:
    """Without its versions, which are many."""
    visit = state.maintenance.visits.get(host.id)
    return HostView(
        id=host.id,
        cluster=host.spec.cluster,
        pod=host.spec.pod,
        rack=host.spec.rack,
        platform=host.spec.platform,
        gpus=host.spec.gpus,
        state=host.state.value,
        since=host.since,
        connected=host.connected,
        heartbeat_at=live.heard_at(host.id),
        boot=host.boot,
        holds=tuple(HoldView(owner=hold.owner, reason=hold.reason, since=hold.since) for hold in host.holds),
        attempt=host.allocation,
        role=host.role,
        reason=host.reason.sentence,
        kind=host.spec.kind,
        visit=visit_view(visit) if visit is not None else None,
        demands=host.demands,
    )


def newest_attempt(state: ClusterState, job: Job) -> Attempt | None:
    return state.attempts[job.attempts[-1]] if job.attempts else None


def progress(state: ClusterState, job: Job, live: LiveView) -> JobProgress | None:
    """The figures of the present epoch; None if no heartbeat told any."""
    attempt = newest_attempt(state, job)
    if attempt is None or not attempt.is_live() or not attempt.epochs:
        return None
    told = live.ranks(attempt.id, attempt.epoch.number, attempt.members)
    if not told:
        return None
    ranks = tuple(
        RankView(
            rank=rank.rank,
            host=host,
            phase=Phase(rank.phase).name.lower(),
            step=rank.step,
            step_at=rank.step_at,
            loss=rank.loss,
            step_s=rank.step_s,
            note=rank.note,
        )
        for host, _, rank in told
    )
    lead = max(ranks, key=lambda rank: (rank.step, rank.step_at))
    return JobProgress(
        job=job.id,
        attempt=attempt.id,
        epoch=attempt.epoch.number,
        at=max(at for _, at, _ in told),
        step=lead.step if lead.step > 0 else -1,
        step_at=lead.step_at,
        loss=lead.loss,
        step_s=max(rank.step_s for rank in ranks),
        published_step=max(rank.published_step for _, _, rank in told),
        ranks=ranks,
    )


def live_progress(state: ClusterState, jobs: Iterable[Job], live: LiveView) -> Iterator[JobProgress]:
    """The progress of those jobs that run."""
    for job in jobs:
        if job.state is JobState.ACTIVE:
            found = progress(state, job, live)
            if found is not None:
                yield found


def stall(state: ClusterState, job: Job, live: LiveView, now: Instant) -> Reason | None:
    """That a running job completes no steps."""
    attempt = newest_attempt(state, job)
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        return None
    known = live.diagnosis(attempt.id, attempt.epoch.number)
    if known is not None:
        return held_up(known)
    told = live.ranks(attempt.id, attempt.epoch.number, attempt.members)
    marks = [
        RankMark(
            rank=rank.rank, host=host, phase=Phase(rank.phase), step=rank.step, step_at=rank.step_at, step_s=rank.step_s
        )
        for host, _, rank in told
    ]
    return stalled(marks, live.bound(attempt.id, attempt.epoch.number), now)


def held_up(known: LiveDiagnosis) -> Reason:
    found = known.diagnosis
    numbers: dict[str, int | float | str] = {
        "kind": found.kind.value,
        "confidence": found.confidence,
        "standing_s": known.standing_s,
        "bound_s": known.bound_s,
    }
    return Reason(token=Token.STEP_STALLED, sentence=f"{found.kind.value}: {found.summary}", numbers=numbers)


def job_view(state: ClusterState, job: Job, live: LiveView, now: Instant) -> JobView:
    attempt = newest_attempt(state, job)
    epochs = [epoch for name in job.attempts for epoch in state.attempts[name].epochs]
    told = progress(state, job, live)
    known_step = max((max(epoch.last_step, epoch.published_step) for epoch in epochs), default=-1)
    known_published = max((epoch.published_step for epoch in epochs), default=-1)
    return JobView(
        id=job.id,
        name=job.spec.name,
        state=job.state.value,
        since=job.since,
        priority=job.spec.priority,
        hosts_wanted=job.spec.hosts,
        spares_wanted=job.spec.spares,
        attempt=attempt.id if attempt is not None else None,
        attempt_state=attempt.state.value if attempt is not None else "",
        epoch=len(attempt.epochs) if attempt is not None else 0,
        hosts=attempt.members if attempt is not None and attempt.is_live() else (),
        spares=attempt.spares if attempt is not None and attempt.is_live() else (),
        restarts=max(len(epochs) - 1, 0),
        step=_step(told.step, epochs[-1]) if told is not None and told.step > 0 else known_step,
        published_step=max(known_published, told.published_step if told is not None else -1),
        reason=_job_reason(job, attempt) or stall(state, job, live, now),
    )


def _step(told: int, epoch: Epoch) -> int:
    """Of a running epoch: heartbeats tell it once a second, what was published is known at once."""
    return max(told, epoch.published_step)


def _job_reason(job: Job, attempt: Attempt | None) -> Reason | None:
    """Why it waits, re-forms or ended; None while it simply runs."""
    if job.state is not JobState.ACTIVE or attempt is None:
        return job.reason
    if attempt.waiting is not None:
        return attempt.waiting
    if attempt.undecided:
        return because(
            Token.UNDECIDED, "it was interrupted; the first cause is not known yet", epoch=len(attempt.epochs)
        )
    if attempt.epoch.first_step_at is None and len(attempt.epochs) > 1:
        return next((epoch.cause for epoch in reversed(attempt.epochs) if epoch.cause is not None), None)
    return attempt.handover.reason if attempt.handover is not None else _complaint(attempt)


def _complaint(attempt: Attempt) -> Reason | None:
    """What a job that runs can do with or without, and a person may want to know."""
    failed = save_failure(attempt)
    if failed is None and attempt.is_live() and attempt.preload_failure:
        return because(Token.PRELOAD_FAILED, attempt.preload_failure)
    return failed


def save_failure(attempt: Attempt) -> Reason | None:
    """That the newest save of a running attempt failed; it goes on, but what it does is at risk."""
    if not attempt.is_live() or not attempt.epochs or not attempt.epoch.save_failure:
        return None
    epoch = attempt.epoch
    numbers: dict[str, int | float | str] = {"failed_saves": epoch.failed_saves, "published_step": epoch.published_step}
    return Reason(token=Token.SAVE_FAILED, sentence=epoch.save_failure, numbers=numbers)


def still_since(state: ClusterState, job: Job, live: LiveView, now: Instant) -> Instant | None:
    """The end of the last step of a running job that stands still; None: it doesn't."""
    told = progress(state, job, live)
    return told.step_at if told is not None and stall(state, job, live, now) is not None else None


def job_account(state: ClusterState, job: Job, live: LiveView, now: Instant) -> JobAccount:
    told = progress(state, job, live)
    attempts = [state.attempts[name] for name in job.attempts]
    return account(
        job,
        attempts,
        max(now, state.now),
        told.step if told is not None else -1,
        still_since(state, job, live, now),
        gpus_of(attempts, state.hosts),
    )


def job_detail(state: ClusterState, job: Job, live: LiveView, now: Instant, directory: str) -> JobDetail:
    return JobDetail(
        index=state.index,
        at=now,
        job=job_view(state, job, live, now),
        spec=job.spec,
        by=job.by,
        submitted_at=job.submitted_at,
        directory=directory,
        progress=progress(state, job, live),
        account=job_account(state, job, live, now),
        history=job.story,
        saves=saves_view(job),
    )


def saves_view(job: Job) -> SavesView:
    """How often the job saves, and why."""
    asked, pacing = job.spec.checkpoint, job.pacing
    if not asked.auto:
        every = f"every {count_text(asked.every_steps, 'step')}, as its job file says"
        sentence = every if asked.every_steps else "when asked for and at the end, as its job file says"
        return SavesView(every_steps=asked.every_steps, auto=False, sentence=sentence)
    if pacing.choice is None:
        sentence = f"first after {TRIAL_STEPS} steps, to measure what a save costs; then as often as wastes least"
    else:
        sentence = pacing.choice.sentence
    return SavesView(
        every_steps=pacing.every_steps, auto=True, sentence=sentence, chosen_at=pacing.chosen_at, choice=pacing.choice
    )


def hosts_by_state(state: ClusterState) -> dict[str, int]:
    return dict(Counter(host.state.value for host in state.hosts.values()))


def jobs_by_state(state: ClusterState) -> dict[str, int]:
    return dict(Counter(job.state.value for job in state.jobs.values()))


def log_full(full: Full | None, now: Instant) -> tuple[Reason, ...]:
    """That nothing can be noted: nothing else that wants a person can be dealt with before."""
    if full is None:
        return ()
    since_s = round(in_seconds(now - full.since), 3)
    sentence = f"{full.sentence}; since {since_s:.0f} s, refused: {full.refused}"
    return (because(Token.DISK_FULL, sentence, since_s=since_s, refused=full.refused),)


def needs_attention(step: Step, live: LiveView) -> tuple[Reason, ...]:
    """Failed hosts, failed jobs that nobody submitted again, jobs that stand still or can't save, and what maintenance
    has to say; oldest first, at most `ATTENTION_MAX`."""
    state, now = step.state, step.now
    newest = {job.spec.name: job for job in sorted(state.jobs.values(), key=lambda job: job.submitted_index)}
    found = [
        (host.since, because(host.reason.token, f"{host.id}: {host.reason.sentence}", **host.reason.numbers))
        for host in state.hosts.values()
        if host.state is HostState.OUT_FAILED
    ]
    found += [
        (job.since, because(job.reason.token, f"{job.spec.name} ({job.id}): {job.reason.sentence}"))
        for job in newest.values()
        if job.state is JobState.FAILED and job.reason is not None
    ]
    for job in state.jobs.values():
        attempt = newest_attempt(state, job)
        trouble = stall(state, job, live, now) or (save_failure(attempt) if attempt is not None else None)
        if attempt is not None and trouble is not None:
            told = because(trouble.token, f"{job.spec.name} ({job.id}): {trouble.sentence}", **trouble.numbers)
            found.append((attempt.since, told))
    found += maintenance_views.needs_attention(step)
    found += health_views.needs_attention(step)
    return tuple(reason for _, reason in sorted(found, key=lambda row: row[0])[:ATTENTION_MAX])


def logged(entry: Entry) -> LoggedEvent:
    return LoggedEvent(index=entry.index, event=entry.event, sentence=event_sentence(entry.event))


def concerns(entry: Entry, job: Job) -> bool:
    """The event names the job or an attempt of it, or caused something to be asked for it."""
    if entry.index == job.submitted_index or getattr(entry.event, "job", None) == job.id:
        return True
    attempts: list[AttemptId] = [getattr(effect, "attempt", AttemptId("")) for effect in entry.effects]
    attempts.append(getattr(entry.event, "attempt", AttemptId("")))
    return any(_job(attempt) == job.id for attempt in attempts)


def _job(attempt: AttemptId) -> JobId | None:
    return job_of(attempt) if attempt else None
