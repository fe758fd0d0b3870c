"""Planned leaves: a member drains, or the whole attempt is asked to go. Nobody loses a step.

The ranks are asked to save and leave together (a *yield*); when all have left, the next membership is formed without
the draining host, from the checkpoint that was just published. The request is made only when somebody can take the
place: asking first and looking afterwards would stop a running job for nothing. Ranks that have not left by the
deadline of the job are stopped; what they did since the last checkpoint is then lost, and the account says so.
"""

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Duration, after, in_seconds
from trainmaster.core.effects import AskWorkers
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.recovery import pacing
from trainmaster.core.recovery.attempt import Attempt, AttemptState, Handover
from trainmaster.core.recovery.ending import end, stop_workers
from trainmaster.core.recovery.forming import add_spares, move
from trainmaster.core.recovery.interrupt import is_warm, reform, want
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.step import Step


def host_draining(step: Step, attempt: Attempt, name: HostId) -> None:
    """A host of the attempt is to leave."""
    host = step.state.hosts[name]
    if name in attempt.spares:
        attempt.spares = tuple(other for other in attempt.spares if other != name)
        attempt.prepared.discard(name)
        hosts.let_go(step, [host])
    serve(step, attempt)


def _draining(step: Step, attempt: Attempt) -> list[Host]:
    """Members that drain, in no order."""
    by_name, mine = step.state.hosts, attempt.id
    draining = [by_name[name] for name in step.derived.draining]
    return [host for host in draining if host.allocation == mine and host.role == "member"]


def draining_members(step: Step, attempt: Attempt) -> list[Host]:
    return sorted(_draining(step, attempt), key=lambda host: host.position)


def serve(step: Step, attempt: Attempt) -> None:
    """Gives an attempt what it wants, as far as hosts are there: vacant places, hand-overs, spares."""
    if not attempt.is_live() or (attempt.handover is not None and attempt.handover.requeue):
        return
    if attempt.state is AttemptState.REFORMING and attempt.epoch.ended_by and not attempt.undecided:
        reform(step, attempt)
    spec = step.state.jobs[attempt.job].spec
    moving = len(_draining(step, attempt)) if spec.on_drain == "move" else 0
    short = spec.spares + moving - len(attempt.spares)
    if short > 0:
        add_spares(step, attempt, step.derived.free.nearest(attempt.cluster, attempt.stack, short, attempt.unfit))
    if moving:
        _hand_over(step, attempt)
    elif attempt.state is AttemptState.RUNNING and attempt.handover is None:
        attempt.waiting = None  # for a drain that was withdrawn
    short = spec.spares + moving - len(attempt.spares)
    wants = short > 0 or moving > 0 or attempt.waiting is not None
    if wants:
        want(step, attempt)
    elif attempt.id in step.state.wanting:
        step.state.wanting.remove(attempt.id)


def _hand_over(step: Step, attempt: Attempt) -> None:
    """Asks the ranks to leave, if somebody can take the places of those who drain."""
    if attempt.state is not AttemptState.RUNNING or attempt.handover is not None:
        return
    leaving = draining_members(step, attempt)
    names = ", ".join(host.id for host in leaving)
    if attempt.epoch.first_step_at is None:
        sentence = f"{names} drains; waits until the job has completed a step, so that it can save"
        attempt.waiting = Reason(token=Token.WAITING_FOR_CHECKPOINT, sentence=sentence)
        return
    if not any(is_warm(step, name) for name in attempt.spares):
        sentence = f"{names} drains; waits for a warm spare that takes its place"
        attempt.waiting = Reason(token=Token.SPARE_MISSING, sentence=sentence, numbers={"draining": len(leaving)})
        return
    reason = Reason(token=Token.DRAINED, sentence=f"{names} drains: {leaving[0].reason.sentence}")
    ask_to_leave(step, attempt, reason, requeue=False)


def ask_to_leave(step: Step, attempt: Attempt, reason: Reason, requeue: bool) -> None:
    """Asks all ranks to save and go. With `requeue` the attempt ends then, else it re-forms."""
    if attempt.handover is not None:
        attempt.handover.requeue = attempt.handover.requeue or requeue
        return
    spec = step.state.jobs[attempt.job].spec
    attempt.handover = Handover(asked_at=step.now, requeue=requeue, reason=reason)
    attempt.waiting = Reason(
        token=Token.WAITING_FOR_CHECKPOINT, sentence=f"{reason.sentence}; the ranks save and leave"
    )
    step.emit(
        AskWorkers(
            id=step.next_id(), hosts=attempt.members, attempt=attempt.id, epoch=attempt.epoch.number, request="yield"
        )
    )
    step.wake(f"yield/{attempt.id}", after(step.now, spec.yield_deadline))


def leave_for_queue(step: Step, attempt: Attempt, reason: Reason) -> None:
    """The attempt gives its hosts back, with a checkpoint if it can make one."""
    can_save = attempt.state is AttemptState.RUNNING and attempt.epoch.first_step_at is not None
    if can_save:
        ask_to_leave(step, attempt, reason, requeue=True)
    else:
        end(step, attempt, AttemptState.PREEMPTED, JobState.QUEUED, reason, gently=True)


def all_yielded(step: Step, attempt: Attempt) -> None:
    """Every rank has saved and left."""
    handover, epoch = attempt.handover, attempt.epoch
    reason = handover.reason if handover is not None else Reason(token=Token.YIELDED, sentence="the ranks left unasked")
    epoch.ended_by, epoch.cause = "yielded", reason
    pacing.stopped(step, attempt)
    epoch.detected_at = epoch.decided_at = step.now
    epoch.failed_at = max((exit.first.at for exit in attempt.exits.told), default=step.now)
    step.unwake(f"yield/{attempt.id}")
    if handover is not None and handover.requeue:
        end(step, attempt, AttemptState.PREEMPTED, JobState.QUEUED, reason, gently=False)
        return
    move(step, attempt, AttemptState.REFORMING, reason.sentence)
    reform(step, attempt)


def yield_overdue(step: Step, attempt: Attempt) -> None:
    """Ranks did not leave in time: stop them; the newest published checkpoint is what remains."""
    handover, epoch = attempt.handover, attempt.epoch
    if handover is None or attempt.state is not AttemptState.RUNNING:
        return
    limit_s = in_seconds(step.state.jobs[attempt.job].spec.yield_deadline)
    sentence = f"{handover.reason.sentence}; the ranks had not saved and left within {limit_s:g} s and were stopped"
    sentence += f"; {epoch.save_failure}" if epoch.save_failure else ""
    reason = Reason(token=Token.DEADLINE_PASSED, sentence=sentence, numbers={"yield_deadline_s": limit_s})
    if handover.requeue:
        end(step, attempt, AttemptState.PREEMPTED, JobState.QUEUED, reason, gently=True)
        return
    epoch.ended_by, epoch.cause = "stopped", reason
    pacing.stopped(step, attempt)
    epoch.detected_at = epoch.decided_at = epoch.failed_at = step.now
    attempt.handover = None
    stop_workers(step, attempt, attempt.members, Duration(0), keep=True)
    move(step, attempt, AttemptState.REFORMING, reason.sentence)
    reform(step, attempt)


def evict_deadline(step: Step, name: HostId) -> None:
    """A drain with eviction has waited long enough for what runs on the host."""
    host = step.state.hosts[name]
    if host.state is not HostState.DRAINING or host.allocation is None:
        return
    attempt = step.state.attempts[host.allocation]
    if attempt.is_live() and host.role == "member":
        sentence = f"{name} is evicted: {host.reason.sentence}"
        leave_for_queue(step, attempt, Reason(token=Token.DEADLINE_PASSED, sentence=sentence))
