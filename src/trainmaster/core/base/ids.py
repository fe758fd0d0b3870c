"""Distinct id types. An id is text on the wire and a type of its own in the code, so that a host id is never passed
where a job id belongs. Ids are made in the core from counters of the state (never from chance or a clock): replaying
the log makes the same ids again.

    job      job-7                 the seventh job that was accepted
    attempt  job-7.a2              its second attempt
    operation op-12                the twelfth operation that was requested
    case     case-9                the ninth fault that was taken up
    rma      rma-2                 the second part that goes back
    effect   e1042.3               the third effect that the event with index 1042 caused
"""

import re
from typing import NewType

HostId = NewType("HostId", str)
ClusterId = NewType("ClusterId", str)
RackId = NewType("RackId", str)
PodId = NewType("PodId", str)
JobId = NewType("JobId", str)
AttemptId = NewType("AttemptId", str)
EffectId = NewType("EffectId", str)
OperationId = NewType("OperationId", str)
ComponentName = NewType("ComponentName", str)
"""Something on a unit that has a version: driver, firmware, image."""
KindName = NewType("KindName", str)
"""A kind of operation: upgrade, reboot, deep-check."""
TrainName = NewType("TrainName", str)
RolloutId = NewType("RolloutId", str)
PoolName = NewType("PoolName", str)
"""Hosts that health acts on together."""
CaseId = NewType("CaseId", str)
"""One fault of one host, from its first verdict to its end."""
RmaId = NewType("RmaId", str)
"""One part on its way back to its vendor."""
BootId = NewType("BootId", str)
"""Changes with every boot of a host: what an agent started before it is gone after it."""
SessionId = NewType("SessionId", str)
"""One life of an agent process."""
Owner = NewType("Owner", str)
"""Who holds or asks: `person:NAME`, `policy:NAME`."""

NAME_PATTERN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""Names of jobs, clusters and pools: as DNS labels (RFC 1123), so they are safe in paths, metrics and host names."""


def looks_like_job_id(name: str) -> bool:
    """A job may not be named so: commands take ids and names alike, and `job-3` must mean one thing."""
    return re.fullmatch(r"job-\d+", name) is not None


def job_id(number: int) -> JobId:
    assert number > 0
    return JobId(f"job-{number}")


def attempt_id(job: JobId, number: int) -> AttemptId:
    assert number > 0
    return AttemptId(f"{job}.a{number}")


def job_of(attempt: AttemptId) -> JobId:
    """The job that an attempt belongs to."""
    job, dot, _ = attempt.rpartition(".a")
    assert dot, attempt
    return JobId(job)


def owner_id(job: JobId, fleet: str) -> JobId:
    """The job as other fleets know it, JOB@FLEET: each of them counts its jobs from 1. Without an id of a fleet it is
    the job."""
    assert "@" not in job, job
    return JobId(f"{job}@{fleet}") if fleet else job


def owner_text(owner: JobId) -> str:
    """Who that is, for people."""
    job, _, fleet = owner.partition("@")
    return f"{job} of fleet {fleet}" if fleet else job


def operation_id(number: int) -> OperationId:
    assert number > 0
    return f"op-{number}"  # type: ignore[return-value]  # called too often to call the type as well


def case_id(number: int) -> CaseId:
    assert number > 0
    return CaseId(f"case-{number}")


def rma_id(number: int) -> RmaId:
    assert number > 0
    return RmaId(f"rma-{number}")


def effect_id(event_index: int, number: int) -> EffectId:
    assert event_index >= 0
    assert number > 0
    return f"e{event_index}.{number}"  # type: ignore[return-value]  # likewise
