"""What events do to jobs: the applier of the scheduling part of the state, without attempts (see `recovery`)."""

import bisect

from trainmaster.core.base.ids import job_id
from trainmaster.core.base.reasons import Reason
from trainmaster.core.scheduling.events import JobSubmitted
from trainmaster.core.scheduling.job import FAILURES_KEPT, JOB_MACHINE, FailureNote, Job, JobState
from trainmaster.core.step import Step


def submit(step: Step, event: JobSubmitted) -> Job:
    number = len(step.state.jobs) + 1
    job = Job(
        id=job_id(number),
        spec=event.spec,
        by=event.by,
        submitted_at=step.now,
        submitted_index=step.state.index,
        since=step.now,
    )
    step.state.jobs[job.id] = job
    enqueue(step, job)
    return job


def enqueue(step: Step, job: Job) -> None:
    """Puts a queued job in its place of the queue."""
    assert job.state is JobState.QUEUED, (job.id, job.state)
    assert job.id not in step.state.queue, job.id
    bisect.insort(step.state.queue, job.id, key=lambda name: step.state.jobs[name].order_key())
    step.capacity_came = True


def move(step: Step, job: Job, state: JobState, reason: Reason | None) -> None:
    """Takes an edge of the job machine and keeps the queue in step with it."""
    cause = reason.sentence if reason is not None else ""
    job.story = JOB_MACHINE.step(job.id, job.story, job.state, state, step.now, cause)
    was_queued = job.state is JobState.QUEUED
    job.state, job.since, job.reason = state, step.now, reason
    if was_queued:
        step.state.queue.remove(job.id)
    job.ended_at = step.now if state in (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED) else None
    if state is JobState.QUEUED:
        enqueue(step, job)


def note_failure(job: Job, note: FailureNote) -> None:
    job.failures = (*job.failures[-(FAILURES_KEPT - 1) :], note)


def note_health(job: Job) -> None:
    """A step was completed: failures at start before it are no row any more."""
    job.failures = tuple(note for note in job.failures if not note.at_start)
