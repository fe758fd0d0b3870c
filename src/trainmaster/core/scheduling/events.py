"""What can happen to jobs from the outside: people and programs ask for something."""

from trainmaster.core.base.event import Event
from trainmaster.core.base.ids import JobId, Owner
from trainmaster.core.scheduling.request import JobSpec


class JobSubmitted(Event):
    spec: JobSpec
    by: Owner


class JobCancelled(Event):
    job: JobId
    by: Owner
    reason: str


class JobRequeued(Event):
    """Stop the running attempt after a checkpoint and queue the job again; a failed job is queued again as it is."""

    job: JobId
    by: Owner
    reason: str
