"""What agents report of worker groups, applied to attempts. Reports of older epochs tell nothing new: dropped."""

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.diagnosis.answer import Kind
from trainmaster.core.effects import (
    AnyEffect,
    AskWorkers,
    LaunchWorkers,
    PrepareAttempt,
    RebootHost,
    ReserveStore,
    RunSteps,
    StopWorkers,
    VerifyHost,
)
from trainmaster.core.fleet.events import AgentDisconnected, AgentSilent, Reached
from trainmaster.core.recovery import forming, handover, interrupt, pacing
from trainmaster.core.recovery.attempt import Attempt, AttemptState, Epoch
from trainmaster.core.recovery.ending import end, stopped
from trainmaster.core.recovery.events import (
    CheckpointFailed,
    CheckpointPublished,
    EffectEnded,
    EffectsEnded,
    EpochPhase,
    HangFound,
    WorkerExited,
    WorkersExited,
)
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.scheduling.jobs import note_health
from trainmaster.core.step import Step


def _current(
    step: Step, event: WorkerExited | WorkersExited | HangFound | EpochPhase | CheckpointPublished | CheckpointFailed
) -> Attempt | None:
    """The live attempt that the event is about, if it speaks of the present epoch."""
    attempt = step.state.attempts.get(event.attempt)
    if attempt is None or not attempt.is_live() or event.epoch != attempt.epoch.number:
        return None
    return attempt


def _book(step: Step, told: WorkerExited | WorkersExited | Reached) -> Epoch | None:
    """What is told of the steps done, also when it comes after its epoch was given up."""
    attempt = step.state.attempts.get(told.attempt)
    if attempt is None or not 0 < told.epoch <= len(attempt.epochs):
        return None
    epoch = attempt.epochs[told.epoch - 1]
    if told.step > epoch.last_step:
        epoch.last_step, epoch.last_step_at = told.step, told.step_at
    return epoch


def agent_left(step: Step, event: AgentDisconnected | AgentSilent) -> None:
    """Books how far its ranks were: if the host is dead, and its peers with it, no exit will tell."""
    for reached in event.reached:
        _book(step, reached)


def workers_exited(step: Step, event: WorkerExited | WorkersExited) -> None:
    booked = _book(step, event)
    if booked is not None:
        booked.save_s = max(booked.save_s, event.save_s)
    attempt = _current(step, event)
    if attempt is None:
        return
    epoch, spec = attempt.epoch, step.state.jobs[attempt.job].spec
    exit = attempt.exits.add(event, attempt.members, spec.ranks_per_host)
    if exit is None:
        return
    if event.how == "failed":
        interrupt.workers_failed(step, attempt, exit)
        return
    if epoch.ended_by or attempt.exits.count < spec.hosts * spec.ranks_per_host:
        return
    ways = {exit.first.how for exit in attempt.exits.told}
    if ways == {"finished"}:
        epoch.failed_at = max(exit.first.at for exit in attempt.exits.told)
        cause = Reason(token=Token.FINISHED, sentence="all ranks finished", numbers={"step": epoch.last_step})
        end(step, attempt, AttemptState.FINISHED, JobState.FINISHED, cause, gently=False)
    elif ways == {"yielded"}:
        handover.all_yielded(step, attempt)
    elif "stopped" in ways:
        interrupt.all_stopped(step, attempt)
    else:
        interrupt.mixed_outcome(step, attempt)


def hang_found(step: Step, event: HangFound) -> None:
    """An epoch stands still for good, or ended because ranks went apart, and nobody knew which. One that has ended
    otherwise meanwhile, or still forms, has nothing to hang."""
    attempt = _current(step, event)
    if attempt is not None and attempt.undecided and event.kind is Kind.DESYNC:
        interrupt.explained(step, attempt, event)
    elif attempt is not None and attempt.state is AttemptState.RUNNING and not attempt.epoch.ended_by:
        interrupt.hung(step, attempt, event)


def phase_reached(step: Step, event: EpochPhase) -> None:
    attempt = _current(step, event)
    if attempt is None:
        return
    epoch = attempt.epoch
    epoch.note = event.note or epoch.note
    if event.phase is Phase.ATTACHED:
        epoch.attached_at = event.at
    elif event.phase is Phase.GROUPED:
        epoch.grouped_at = event.at
    elif event.phase is Phase.RESTORED:
        epoch.restored_at, epoch.restored_step, epoch.restored_from = event.at, event.step, event.origin
        job = step.state.jobs[attempt.job]
        job.began_step = max(event.step, 0) if job.began_step is None else job.began_step
    elif event.phase is Phase.TRAINING and epoch.first_step_at is None:
        epoch.first_step_at = event.at
        note_health(step.state.jobs[attempt.job])
        pacing.began(step, attempt, event.at, event.step)
        handover.serve(step, attempt)


def published(step: Step, event: CheckpointPublished) -> None:
    attempt = _current(step, event)
    if attempt is not None:
        attempt.epoch.published_step = max(attempt.epoch.published_step, event.step)
        attempt.epoch.save_failure = ""
        pacing.saved(step, attempt, event)


def save_failed(step: Step, event: CheckpointFailed) -> None:
    attempt = _current(step, event)
    if attempt is not None:
        attempt.epoch.failed_saves += 1
        attempt.epoch.note = attempt.epoch.save_failure = event.detail


def effect_ended(step: Step, effect: AnyEffect, event: EffectEnded | EffectsEnded, names: tuple[HostId, ...]) -> None:
    """The outcome of an effect that concerns an attempt, at the hosts `names`."""
    assert not isinstance(effect, VerifyHost | RunSteps | RebootHost), effect
    attempt = step.state.attempts.get(effect.attempt)
    if attempt is None:
        return
    if isinstance(effect, StopWorkers):
        stopped(step, attempt, names)
    elif isinstance(effect, AskWorkers) or not attempt.is_live():
        return
    elif isinstance(effect, PrepareAttempt | ReserveStore | LaunchWorkers) and event.outcome != "done":
        interrupt.effect_failed(step, attempt, effect, event, names)
    elif isinstance(effect, PrepareAttempt):
        if event.detail and not attempt.preload_failure:
            attempt.preload_failure = f"{names[0]}: {event.detail}"
        if not step.is_pending(effect.id) or not set(attempt.spares).isdisjoint(names):
            handover.serve(step, attempt)
    elif isinstance(effect, ReserveStore) and effect.id == attempt.store_effect:
        forming.store_reserved(step, attempt, event)
    elif isinstance(effect, LaunchWorkers) and effect.epoch == attempt.epoch.number:
        stayed = event.numbers.get("stayed")
        if isinstance(stayed, int):
            attempt.epoch.stayed = (attempt.epoch.stayed or 0) + stayed * len(names)
        forming.launched(step, attempt)
        if attempt.state is AttemptState.RUNNING:
            handover.serve(step, attempt)
