"""The end of an attempt, and what becomes of its job and its hosts."""

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Duration
from trainmaster.core.effects import StopWorkers
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.recovery.attempt import STOP_GRACE, Attempt, AttemptState
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
    if attempt.epochs and not attempt.epoch.ended_by:
        attempt.epoch.ended_by = "finished" if state is AttemptState.FINISHED else "stopped"
        attempt.epoch.detected_at = attempt.epoch.decided_at = step.now
        attempt.epoch.cause = cause
    for key in ("settle", "yield", "form"):
        step.unwake(f"{key}/{attempt.id}")
    if attempt.id in step.state.wanting:
        step.state.wanting.remove(attempt.id)
    for name in (*attempt.members, *attempt.spares):
        host = step.state.hosts[name]
        if host.allocation != attempt.id or host.state is HostState.OUT_FAILED:
            continue
        if gently and host.role == "member":
            host.role = "stopping"
            hosts.clean_soon(step, host)
            stop_workers(step, attempt, host.id, STOP_GRACE)
        elif host.role != "releasing":
            hosts.let_go(step, host)
    jobs.move(step, step.state.jobs[attempt.job], job_state, cause)


def stop_workers(step: Step, attempt: Attempt, host: HostId, grace: Duration) -> None:
    step.emit(StopWorkers(id=step.next_id(), host=host, attempt=attempt.id, epoch=len(attempt.epochs), grace=grace))


def stopped(step: Step, attempt: Attempt, name: HostId) -> None:
    """Workers of an ended attempt are gone: the host can be released."""
    host = step.state.hosts[name]
    if not attempt.is_live() and host.allocation == attempt.id and host.role == "stopping":
        hosts.let_go(step, host)
