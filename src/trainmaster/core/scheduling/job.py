"""The life of a training job. A job is what a person asked for; an *attempt* is one launch of it (see `recovery`)."""

from typing import Final

import msgspec

from trainmaster.core.base.ids import AttemptId, HostId, JobId, Owner
from trainmaster.core.base.machine import Chapter, Machine, State
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.measured import Pacing
from trainmaster.core.scheduling.request import JobSpec


class JobState(State):
    QUEUED = "queued"
    ACTIVE = "active"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


JOB_MACHINE: Final = Machine(
    "job",
    JobState.QUEUED,
    [
        (JobState.QUEUED, JobState.ACTIVE, "placed"),
        (JobState.QUEUED, JobState.CANCELLED, "cancelled by request"),
        (JobState.ACTIVE, JobState.QUEUED, "attempt ended; to be tried again"),
        (JobState.ACTIVE, JobState.FINISHED, "all ranks finished"),
        (JobState.ACTIVE, JobState.FAILED, "failed for good"),
        (JobState.ACTIVE, JobState.CANCELLED, "cancelled by request"),
        (JobState.FINISHED, JobState.QUEUED, "requeued by request"),
        (JobState.FAILED, JobState.QUEUED, "requeued by request"),
        (JobState.CANCELLED, JobState.QUEUED, "requeued by request"),
    ],
)


class FailureNote(Value):
    """One unplanned end that the job itself is answerable for; what the restart budget counts."""

    at: Instant
    signature: str
    """The error without its changing parts, to tell "the same again" from "something else"."""
    at_start: bool
    """No step was completed in that epoch."""
    host: HostId
    rank: int


class Job(msgspec.Struct, kw_only=True):
    """State of a job. Mutable, private to the engine."""

    id: JobId
    spec: JobSpec
    by: Owner
    submitted_at: Instant
    submitted_index: int
    state: JobState = JobState.QUEUED
    since: Instant
    story: tuple[Chapter, ...] = ()
    reason: Reason | None = None
    attempts: tuple[AttemptId, ...] = ()
    failures: tuple[FailureNote, ...] = ()
    """Since the last healthy period; at most `FAILURES_KEPT`."""
    ended_at: Instant | None = None
    pacing: Pacing = msgspec.field(default_factory=Pacing)
    began_step: int | None = None
    """Step that the ranks went on from when they first had a state, 0 if they began anew; None: they never had. What
    another job has published in the same directory counts at that start only."""

    def order_key(self) -> tuple[int, int]:
        """Queue order: higher priority first, then first come."""
        return (-self.spec.priority, self.submitted_index)


FAILURES_KEPT: Final = 64
