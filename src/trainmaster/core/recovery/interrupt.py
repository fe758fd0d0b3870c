"""Interruptions: from the first sign of trouble to the next membership.

detect   the first failed exit, or the loss of a member
decide   name the first cause (at once if something else than echoes is known, else after `SETTLE` at the latest),
         ask the budget, stop what is left of the epoch
place    replace who is gone; wait with a reason if nobody can
form     the next epoch (see `forming`)
"""

from typing import Final

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import Duration, after
from trainmaster.core.effects import LaunchWorkers, PrepareAttempt, ReserveStore
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.health import corruption, hangs
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.recovery import budget, pacing
from trainmaster.core.recovery.attempt import APART_SETTLE, SETTLE, Attempt, AttemptState, Refusal, is_alike
from trainmaster.core.recovery.cause import FirstCause, first_cause, is_apart, is_echo, undetermined
from trainmaster.core.recovery.ending import end, stop_workers
from trainmaster.core.recovery.events import EffectEnded, EffectsEnded, HangFound
from trainmaster.core.recovery.exits import Exit
from trainmaster.core.recovery.forming import add_spares, form, form_deadline_s, move, overdue
from trainmaster.core.recovery.hang import hung as hang_cause
from trainmaster.core.recovery.membership import next_membership
from trainmaster.core.recovery.node_check import judge
from trainmaster.core.scheduling.job import FailureNote, JobState
from trainmaster.core.scheduling.jobs import note_failure
from trainmaster.core.step import Step

WAYS_TOLD: Final = 8
"""Of ranks that ended differently, how many are named in the sentence."""


def workers_failed(step: Step, attempt: Attempt, exit: Exit) -> None:
    """Ranks of the present epoch failed (their exit is recorded already)."""
    if attempt.epoch.ended_by and not attempt.undecided:
        return
    _interrupted(step, attempt)
    if is_apart(exit.first):
        step.wake(f"settle/{attempt.id}", after(step.now, APART_SETTLE))
    # Echoes come by the thousand; another one says nothing that the first did not.
    if exit.ranks == attempt.exits.failed or not is_echo(exit.first):
        _judge(step, attempt)


def hung(step: Step, attempt: Attempt, event: HangFound) -> None:
    """The epoch does not go on by itself: there is no sign of trouble but this."""
    ranks_per_host = step.state.jobs[attempt.job].spec.ranks_per_host
    _interrupted(step, attempt)
    _decide(step, attempt, hang_cause(event, attempt.members, ranks_per_host))


def explained(step: Step, attempt: Attempt, event: HangFound) -> None:
    """The recorders say which ranks went astray, while nothing but echoes is known of an interruption."""
    assert attempt.undecided, attempt.id
    ranks_per_host = step.state.jobs[attempt.job].spec.ranks_per_host
    _decide(step, attempt, hang_cause(event, attempt.members, ranks_per_host))


def all_stopped(step: Step, attempt: Attempt) -> None:
    """All ranks have left, and some were stopped by their agents unasked: the hosts are being shut down."""
    told = attempt.exits.told
    stopped = sorted({host for exit in told if exit.first.how == "stopped" for host in exit.hosts})
    sentence = f"the agents of {fold(stopped)} were ended in order and stopped their ranks"
    cause = FirstCause(
        reason=Reason(token=Token.HOST_SHUT_DOWN, sentence=sentence, numbers={"hosts": len(stopped)}),
        at=min(exit.first.at for exit in told),
        host=None,
        rank=None,
        signature="host-shut-down",
        job_fault=False,
    )
    _interrupted(step, attempt)
    _decide(step, attempt, cause)


def mixed_outcome(step: Step, attempt: Attempt) -> None:
    """All ranks have left, but not in the same way: some work is missing, and nobody says why."""
    told = sorted(attempt.exits.told, key=lambda exit: exit.first.rank)
    ways = [f"{_who(exit)} {exit.first.how}" for exit in told[:WAYS_TOLD]]
    ways += [f"and {len(told) - WAYS_TOLD} more"] if len(told) > WAYS_TOLD else []
    cause = FirstCause(
        reason=Reason(token=Token.MIXED_OUTCOME, sentence=f"the ranks did not end alike: {', '.join(ways)}"),
        at=step.now,
        host=None,
        rank=None,
        signature="mixed-outcome",
        job_fault=True,
    )
    _interrupted(step, attempt)
    _decide(step, attempt, cause)


def _who(exit: Exit) -> str:
    return f"rank {exit.first.rank}" if exit.ranks == 1 else f"{exit.ranks} ranks on {fold(exit.hosts)}"


def host_lost(step: Step, attempt: Attempt, name: HostId) -> None:
    """A host of the attempt counts as failed. Its allocation is gone already."""
    attempt.prepared.discard(name)
    attempt.unfit = tuple(host for host in attempt.unfit if host != name)
    if name in attempt.spares:
        attempt.spares = tuple(host for host in attempt.spares if host != name)
        _want_another_spare(step, attempt)
    elif name in attempt.members:
        if attempt.epoch.ended_by and not attempt.undecided:
            reform(step, attempt)
        else:
            _interrupted(step, attempt)
            _judge(step, attempt)


def host_gone(step: Step, attempt: Attempt) -> None:
    """A member's agent is away: evidence, if the ranks are in trouble already."""
    if attempt.undecided:
        _judge(step, attempt)


def settled(step: Step, attempt: Attempt) -> None:
    """Nothing but echoes came in time. Just after a restart of the server the one host that matters may be the one that
    has not come back yet: wait until all members are heard or lost."""
    if attempt.undecided and any(step.state.hosts[name].is_unheard() for name in attempt.members):
        step.wake(f"settle/{attempt.id}", after(step.now, SETTLE))
    elif attempt.undecided and attempt.refusals:
        _decide(step, attempt, _refused(attempt))
    elif attempt.undecided:
        away = [(host.id, *hosts.loss_of(host)) for host in unwell(step, attempt) if _is_in_grace(attempt, host)]
        cause = first_cause(away, attempt.exits.told)
        _decide(step, attempt, cause or undetermined(attempt.exits.told, step.now))


def form_overdue(step: Step, attempt: Attempt) -> None:
    """The epoch did not get to run in time: who has not answered is taken for lost, unless it is all of them."""
    late = overdue(step, attempt)
    detail = f"no answer within {form_deadline_s():g} s"
    if judge(attempt.members, dict.fromkeys(late, detail)).common:
        refusal = Refusal(at=step.now, what="form the job", detail=detail, votes=True)
        attempt.refusals = dict.fromkeys(attempt.members, refusal)
        _interrupted(step, attempt)
        _decide(step, attempt, _refused(attempt))
        return
    for name in late:
        hosts.lose(step, step.state.hosts[name], f"it did not launch its ranks within {form_deadline_s():g} s")


def effect_failed(
    step: Step,
    attempt: Attempt,
    effect: PrepareAttempt | ReserveStore | LaunchWorkers,
    event: EffectEnded | EffectsEnded,
    names: tuple[HostId, ...],
) -> None:
    """Hosts could not do their part of forming the epoch. It may be the host or the job: the budget decides, except
    where no host could do it. Whether that is so shows a moment later, so the others are heard first."""
    attempt.prepared.difference_update(names)
    if isinstance(effect, PrepareAttempt):
        _unfit_spares(step, attempt, [name for name in names if name in attempt.spares])
        members = set(attempt.members)
        names = tuple([name for name in names if name in members and name not in attempt.unfit])
        if not names:
            return
    elif effect.epoch != attempt.epoch.number:
        return
    if attempt.epoch.ended_by and not attempt.undecided:
        return
    what = {PrepareAttempt: "prepare", ReserveStore: "reserve a store", LaunchWorkers: "launch"}[type(effect)]
    detail = event.detail or event.outcome
    refusal = Refusal(at=event.at, what=what, detail=detail, votes=event.outcome == "failed")
    attempt.refusals.update(dict.fromkeys(names, refusal))
    _interrupted(step, attempt)
    if not overdue(step, attempt):
        _decide(step, attempt, _refused(attempt))


def _unfit_spares(step: Step, attempt: Attempt, names: list[HostId]) -> None:
    """Spares that could not be prepared go, and others are wanted."""
    if names:
        attempt.spares = tuple(host for host in attempt.spares if host not in names)
        attempt.unfit = (*attempt.unfit, *names)
        hosts.let_go(step, [step.state.hosts[name] for name in names])
        want(step, attempt)


def _refused(attempt: Attempt) -> FirstCause:
    """The cause, where hosts could not do their part of forming the epoch."""
    host, first = min(attempt.refusals.items(), key=lambda item: (item[1].at, item[0]))
    votes = {name: refusal.detail for name, refusal in attempt.refusals.items() if refusal.votes}
    verdict = judge(attempt.members, votes)
    sentence = f"host {host} could not {first.what}: {first.detail}"
    if verdict.common:
        sentence = f"{verdict.sentence(first.what)}; {host} says: {first.detail}"
    numbers: dict[str, int | float | str] = {"host": host, "failed": len(attempt.refusals), "hosts": verdict.initial}
    return FirstCause(
        reason=Reason(token=Token.EFFECT_FAILED, sentence=sentence, numbers=numbers),
        at=first.at,
        host=None if verdict.common else host,
        rank=None,
        signature=f"{first.what}: {first.detail}",
        job_fault=True,
        hopeless=verdict.common,
    )


def _interrupted(step: Step, attempt: Attempt) -> None:
    """From the first sign on the attempt is re-forming; what it waits for is the first cause."""
    if attempt.epoch.ended_by:
        return
    attempt.undecided = True
    epoch = attempt.epoch
    epoch.detected_at, epoch.ended_by = step.now, "interrupted"
    pacing.stopped(step, attempt)
    attempt.store_effect = None  # a store of this epoch that is reserved from now on launches nothing
    step.unwake(f"form/{attempt.id}")
    step.unwake(f"yield/{attempt.id}")
    step.wake(f"settle/{attempt.id}", after(step.now, SETTLE))
    if attempt.state is not AttemptState.REFORMING:
        move(step, attempt, AttemptState.REFORMING, "interrupted")


def _judge(step: Step, attempt: Attempt) -> None:
    """What is known names the cause, or not yet. Members whose agents had been away for a while before explain it only
    if nothing else does in time: their ranks were alive then, or their peers would have noticed."""
    near = [host for host in unwell(step, attempt) if _is_lost(attempt, host) and not _was_away(attempt, host)]
    cause = first_cause([(host.id, *hosts.loss_of(host)) for host in near], attempt.exits.told)
    if cause is not None:
        _decide(step, attempt, cause)


def _was_away(attempt: Attempt, host: Host) -> bool:
    """Only its agent's connection is closed, and was long before the first sign of trouble."""
    found = attempt.epoch.detected_at
    return (
        _is_in_grace(attempt, host)
        and host.gone_at is not None
        and found is not None
        and (found - host.gone_at > SETTLE)
    )


def _is_in_grace(attempt: Attempt, host: Host) -> bool:
    """A member whose agent is away, and may come back with all that runs there."""
    mine = host.allocation == attempt.id and host.role == "member"
    return mine and host.gone_at is not None and host.state is not HostState.OUT_FAILED


def _is_lost(attempt: Attempt, host: Host) -> bool:
    """Gone, or gone and back already (a quick reboot): then the attempt has lost its hold on it."""
    return host.is_gone() or host.allocation != attempt.id


def unwell(step: Step, attempt: Attempt) -> list[Host]:
    """Members of which something has to be said, in their order: lost, going, draining, or in use otherwise."""
    ready, name = HostState.READY, attempt.id
    return [
        host
        for host in map(step.state.hosts.__getitem__, attempt.members)
        if host.state is not ready or host.gone_at is not None or host.allocation != name or host.role != "member"
    ]


def _decide(step: Step, attempt: Attempt, cause: FirstCause) -> None:
    """The cause has a name: stop what is left of the epoch, ask the budget, go on or end."""
    assert attempt.state is AttemptState.REFORMING, (attempt.id, attempt.state)
    attempt.undecided = False
    step.unwake(f"settle/{attempt.id}")
    epoch = attempt.epoch
    epoch.decided_at, epoch.failed_at, epoch.cause = step.now, cause.at, cause.reason
    if cause.host is not None and cause.reason.token is Token.REPLICAS_DISAGREE:
        corruption.suspected(step, cause.host, attempt.job, len(attempt.members), cause.reason.sentence)
    elif cause.host is not None and cause.reason.token is Token.RANK_HUNG:
        hangs.noted(step, cause.host, attempt.job, len(attempt.members), cause.reason.sentence)
    elif cause.host is not None:
        offenders.job_failed(step, cause.host, attempt.job, len(attempt.members), offence=not cause.job_fault)
    if cause.reason.token is Token.HOST_LOST:
        _lose_gone(step, attempt, cause)
    handover, attempt.handover = attempt.handover, None
    if cause.hopeless:
        end(step, attempt, AttemptState.FAILED, JobState.FAILED, cause.reason, gently=False)
        return
    if cause.job_fault and not _within_budget(step, attempt, cause):
        return
    if handover is not None and handover.requeue:
        end(step, attempt, AttemptState.PREEMPTED, JobState.QUEUED, handover.reason, gently=False)
        return
    if _has_run(attempt) and not _was_attached(attempt):
        reason = cause.reason.but(
            sentence=f"{cause.reason.sentence}; the script opened no training session, so the job starts anew"
        )
        end(step, attempt, AttemptState.FAILED, JobState.QUEUED, reason, gently=False)
        return
    by_name, mine = step.state.hosts, attempt.id
    here = [name for name in attempt.members if (host := by_name[name]).allocation == mine and host.connected]
    stop_workers(step, attempt, tuple(here), Duration(0), keep=cause.in_place, kill=cause.kill)
    reform(step, attempt)


def _has_run(attempt: Attempt) -> bool:
    """Workers of this attempt existed; before that there is nothing to lose by forming again."""
    return attempt.exits.count > 0 or any(epoch.launched_at is not None for epoch in attempt.epochs)


def _lose_gone(step: Step, attempt: Attempt, cause: FirstCause) -> None:
    """Members whose connection closed while their peers lost them are lost, without waiting for the end of the grace.
    What the server saw first was the closing, and it was waiting for this confirmation since."""
    epoch = attempt.epoch
    assert epoch.detected_at is not None, attempt.id
    gone = [host for host in unwell(step, attempt) if host.allocation == attempt.id and host.is_gone()]
    near = [host for host in gone if not _was_away(attempt, host) or host.id == cause.host]
    epoch.detected_at = min(epoch.detected_at, cause.at)
    for host in near:
        if host.allocation == attempt.id:
            hosts.lose(step, host, "its agent's connection closed, and other ranks lost theirs to it")


def _was_attached(attempt: Attempt) -> bool:
    """The script opened a session in this epoch or an earlier one: it can resume."""
    return attempt.is_attached() or any(epoch.attached_at is not None for epoch in attempt.epochs)


def _within_budget(step: Step, attempt: Attempt, cause: FirstCause) -> bool:
    job = step.state.jobs[attempt.job]
    at_start = attempt.epoch.first_step_at is None
    host = cause.host if cause.host is not None else attempt.members[0]
    rank = cause.rank if cause.rank is not None else -1
    note_failure(job, FailureNote(at=step.now, signature=cause.signature, at_start=at_start, host=host, rank=rank))
    advice = budget.advise(job.spec.restart, job.failures, step.now)
    if not advice.again:
        sentence = f"{cause.reason.sentence}; stopped: {advice.reason.sentence}"
        reason = advice.reason.but(sentence=sentence, numbers={**cause.reason.numbers, **advice.reason.numbers})
        end(step, attempt, AttemptState.FAILED, JobState.FAILED, reason, gently=False)
    return advice.again


def reform(step: Step, attempt: Attempt) -> None:
    """The next membership, or the reason why there is none yet."""
    assert attempt.state is AttemptState.REFORMING, (attempt.id, attempt.state)
    by_name = step.state.hosts
    troubled = unwell(step, attempt)
    away = [host for host in troubled if _is_in_grace(attempt, host)]
    vacant = {host.id for host in troubled if _must_leave(attempt, host) and host not in away}
    lost = len(vacant)
    spares = [name for name in attempt.spares if by_name[name].is_usable()]
    if lost > len(spares):
        more = step.derived.free.nearest(attempt.cluster, attempt.stack, lost - len(spares))
        add_spares(step, attempt, more)
        spares += more
    if away:
        names = ", ".join(host.id for host in away)
        sentence = f"the agent of {names} is away; its ranks and their memory are waited for until its grace is over"
        attempt.waiting = because(Token.AGENT_AWAY, sentence, away=len(away), vacant=lost)
        want(step, attempt)
        return
    moving = {host.id for host in troubled if host.state is HostState.DRAINING}
    warm = [name for name in spares if is_warm(step, name)]
    unsteady = (_cold(attempt) or _hung_again(step, attempt)) - vacant - moving
    if len(unsteady) == 1 and len(warm) > lost + len(moving):
        moving |= unsteady
        spares = [*warm, *(name for name in spares if name not in warm)]
    plan = next_membership(attempt.members, spares, must_leave=vacant, should_leave=moving)
    if plan.missing:
        _wait_or_start_anew(step, attempt, plan.missing, len(spares))
        return
    left = [name for name in plan.left if name not in attempt.spares]  # a lost one may be back as a spare
    attempt.prepared.difference_update(left)
    hosts.let_go(step, [host for name in left if (host := by_name[name]).allocation == attempt.id])
    attempt.spares = tuple(name for name in attempt.spares if name not in plan.joined)
    for name in plan.joined:
        hosts.allocate(step, by_name[name], attempt.id, "member")
    form(step, attempt, plan.members)


def _cold(attempt: Attempt) -> set[HostId]:
    """Members that would have to import everything anew before they can start a rank. A single one gives its place to a
    warm spare and becomes one; of several, each may keep the only copy of another's snapshot in its memory."""
    return {exit.first.host for exit in attempt.exits.told if not exit.first.warm}


def _hung_again(step: Step, attempt: Attempt) -> set[HostId]:
    """The host on which a rank hung, if it was not the first time. It gives its place to a warm spare, if there is one,
    and becomes one."""
    cause = attempt.epoch.cause
    if cause is None or cause.token is not Token.RANK_HUNG:
        return set()
    host = cause.numbers.get("host")
    return {HostId(host)} if isinstance(host, str) and hangs.count(step, HostId(host)) > 1 else set()


def is_warm(step: Step, name: HostId) -> bool:
    """Usable and prepared: with a cold spare the job would stand still while it imports."""
    preparing = any(isinstance(effect, PrepareAttempt) for effect in step.pending_at(name))
    return step.state.hosts[name].is_usable() and not preparing


def _wait_or_start_anew(step: Step, attempt: Attempt, vacant: int, spares: int) -> None:
    """Places are vacant. Where other versions than its own have a whole gang of free hosts, or too few hosts with its
    own are left in the cluster, it starts anew on hosts that agree; else it waits, since hosts with its versions will
    be free again."""
    free, wanted = step.derived.free, len(attempt.members)
    places, stack = f"{vacant} of {wanted} places are vacant", attempt.stack or "none known"
    alike = sum(1 for host in step.state.hosts.values() if is_alike(host, attempt))
    if alike < wanted or free.holds(attempt.cluster, wanted):
        sentence = (
            f"{places}, and {alike} hosts of {attempt.cluster} have its versions ({stack});"
            f" the job starts anew on hosts that agree"
        )
        numbers: dict[str, int | float | str] = {"vacant": vacant, "alike": alike, "wanted": wanted}
        reason = Reason(token=Token.MIXED_VERSIONS, sentence=sentence, numbers=numbers)
        end(step, attempt, AttemptState.PREEMPTED, JobState.QUEUED, reason, gently=False)
        return
    others = free.counts().get(attempt.cluster, 0)
    none = f"none of the {others} free hosts of {attempt.cluster} has its versions ({stack})"
    sentence = f"{places}, and {none if others else f'no host of {attempt.cluster} is free'}"
    numbers = {"vacant": vacant, "spares": spares}
    attempt.waiting = Reason(token=Token.SPARE_MISSING, sentence=sentence, numbers=numbers)
    want(step, attempt)


def _must_leave(attempt: Attempt, host: Host) -> bool:
    """Its place is vacant. A lost host that came back may be a spare meanwhile: the place stays vacant."""
    return host.allocation != attempt.id or host.role != "member" or host.is_gone()


def _want_another_spare(step: Step, attempt: Attempt) -> None:
    """A spare is gone: a host that is free now takes its place, or the next one that comes."""
    want(step, attempt)
    step.capacity_came = True


def want(step: Step, attempt: Attempt) -> None:
    """The attempt is served when capacity comes, before the queue, oldest first."""
    if attempt.id not in step.state.wanting:
        step.state.wanting.append(attempt.id)
