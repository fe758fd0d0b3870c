"""The end of an attempt, and what becomes of its job and its hosts."""

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Duration
from trainmaster.core.effects import StopWorkers
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.recovery import pacing
from trainmaster.core.recovery.attempt import STOP_GRACE, Attempt, AttemptState
from trainmaster.core.recovery.exits import Exits
from trainmaster.core.recovery.forming import move
from trainmaster.core.scheduling import jobs
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.step import Step


def end(step: Step, attempt: Attempt, state: AttemptState, job_state: JobState, cause: Reason, gently: bool) -> None:
    """Ends a live attempt. `gently`: workers that still run get SIGTERM and a grace first."""
    assert attempt.is_live(), (attempt.id, attempt.state)
    move(step, attempt, state, cause.sentence)
    attempt.cause, attempt.ended_at, attempt.waiting = cause, step.now, None
    attempt.undecided, attempt.handover = False, None
    pacing.stopped(step, attempt)
    if attempt.epochs:
        pacing.threw_back(step, attempt, attempt.epoch, lost=0)
    if attempt.epochs and not attempt.epoch.ended_by:
        attempt.epoch.ended_by = "finished" if state is AttemptState.FINISHED else "stopped"
        attempt.epoch.detected_at = attempt.epoch.decided_at = step.now
        attempt.epoch.cause = cause
    for key in ("settle", "yield", "form"):
        step.unwake(f"{key}/{attempt.id}")
    if attempt.id in step.state.wanting:
        step.state.wanting.remove(attempt.id)
    _leave_hosts(step, attempt, gently)
    # How ranks ended, and who was made ready, concerns nobody any more; a year has many attempts.
    attempt.exits, attempt.prepared, attempt.refusals = Exits(), set(), {}
    jobs.move(step, step.state.jobs[attempt.job], job_state, cause)


def _leave_hosts(step: Step, attempt: Attempt, gently: bool) -> None:
    names = dict.fromkeys((*attempt.members, *attempt.spares))  # a lost member may be back as a spare
    mine = [host for name in names if (host := step.state.hosts[name]).allocation == attempt.id]
    mine = [host for host in mine if host.state is not HostState.OUT_FAILED and host.role != "releasing"]
    stopping = [host for host in mine if gently and host.role == "member"]
    for host in stopping:
        host.role = "stopping"
        hosts.clean_soon(step, host)
    stop_workers(step, attempt, tuple(host.id for host in stopping), STOP_GRACE)
    hosts.let_go(step, [host for host in mine if host.role != "stopping"])


def stop_workers(
    step: Step,
    attempt: Attempt,
    names: tuple[HostId, ...],
    grace: Duration,
    keep: bool = False,
    kill: tuple[int, ...] = (),
) -> None:
    """Ends the present epoch at these hosts. `keep`: another one follows, so workers that can leave it live on, but for
    the ranks `kill`."""
    assert attempt.is_live() or not keep, (attempt.id, attempt.state)
    if names:
        stop = StopWorkers(
            id=step.next_id(),
            hosts=names,
            attempt=attempt.id,
            epoch=len(attempt.epochs),
            grace=grace,
            keep=keep,
            kill=kill,
        )
        step.emit(stop)


def stopped(step: Step, attempt: Attempt, names: tuple[HostId, ...]) -> None:
    """Workers of an ended attempt are gone: the hosts can be released."""
    if not attempt.is_live():
        mine = [host for name in names if (host := step.state.hosts[name]).allocation == attempt.id]
        hosts.let_go(step, [host for host in mine if host.role == "stopping"])
