"""What a remedy waits for that has not begun: said with its case, and after a while to people.

A host whose job has no spare drains for as long as the job runs, and nothing is wrong with that but that nobody would
know. So the case says what keeps its operation; past a bound somebody is asked, since only people can give the job a
host or end it. Nothing is ended by itself: a job is worth more than a repair that is late.
"""

from typing import Final

from trainmaster.core.base.ids import JobId
from trainmaster.core.base.time import MINUTE, Duration, in_seconds
from trainmaster.core.health.book import Case
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.scheduling.request import JobSpec
from trainmaster.core.step import Step

ASK_AFTER: Final = Duration(10 * MINUTE)
"""So long a remedy may wait before people are asked."""


def waits(step: Step, case: Case) -> str:
    """What the remedy of a case waits for; empty: it is carried out, or there is none."""
    operation = step.state.maintenance.operations.get(case.operation) if case.operation is not None else None
    if operation is None or operation.state in (OperationState.RUNNING, OperationState.VERIFYING):
        return ""
    job = _job(step, case)
    why = operation.reason.sentence if operation.reason is not None else "it has not begun"
    if job is not None:
        why = f"{job[1].name} ({job[0]}) is on {case.host}"
        waiting = step.state.attempts[step.state.jobs[job[0]].attempts[-1]].waiting
        why += f": {waiting.sentence}" if waiting is not None else ""
        why += ", and may finish first" if job[1].on_drain == "finish" else ""
    return f"{operation.id} is {operation.state.value}: {why}"


def asks(step: Step, case: Case) -> str:
    """What a person can do about a remedy that waits for too long; empty: nothing yet."""
    told = waits(step, case)
    if not told or case.tries[-1].at + ASK_AFTER > step.now:
        return ""
    job = _job(step, case)
    fix = f"see `trainmaster maint show {case.operation}`"
    if job is not None:
        fix = f"free a host that can take its place, or end the job: `trainmaster job cancel {job[0]}`"
    return f"{told}; for {in_seconds(step.now - case.tries[-1].at):.0f} s; {fix}"


def _job(step: Step, case: Case) -> tuple[JobId, JobSpec] | None:
    """The job that is on the host still."""
    name = step.state.hosts[case.host].allocation
    attempt = step.state.attempts[name] if name is not None else None
    return (attempt.job, step.state.jobs[attempt.job].spec) if attempt is not None and attempt.is_live() else None
