"""What people ask for, checked and planned before it becomes an event.

A plan is complete and changes nothing; a dry run shows it, the real run submits the event that it names. Refusals are
reasons, never exceptions. Nothing here is a second opinion on what the engine will do: the checks only keep events out
that make no sense, and say beforehand whom a change touches.
"""

from collections.abc import Iterable, Sequence
from posixpath import normpath

from trainmaster.core.base.ids import HostId, JobId, Owner
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.scheduling.job import Job, JobState
from trainmaster.core.scheduling.request import JobSpec
from trainmaster.core.state import ClusterState


class HostPlanItem(Value):
    """What a change does to one host."""

    host: HostId
    changed: bool
    sentence: str
    refused: bool = False
    """It stays as it is although something else was asked; unlike a host that is as wanted already."""
    job: JobId | None = None
    """The job that uses the host as a member."""
    gpus: int = 0


def find_job(state: ClusterState, name: str) -> Job | None:
    """A job by id, or the newest of that name."""
    job = state.jobs.get(JobId(name))
    if job is not None:
        return job
    named = [job for job in state.jobs.values() if job.spec.name == name]
    return max(named, key=lambda job: job.submitted_index, default=None)


def check_submit(state: ClusterState, spec: JobSpec) -> Reason | None:
    """Why a job is not accepted; None if it is. Waiting for hosts is no reason, asking for more than there are is."""
    for job in state.jobs.values():
        if job.state not in (JobState.QUEUED, JobState.ACTIVE):
            continue
        if job.spec.name == spec.name:
            sentence = f"a job named {spec.name} is {job.state.value} already ({job.id})"
            return Reason(token=Token.NAME_TAKEN, sentence=sentence, numbers={"job": job.id})
        if _shared_directory(job.spec, spec):
            sentence = (
                f"{job.spec.name} ({job.id}) is {job.state.value} and keeps its checkpoints in "
                f"{spec.checkpoint.directory}; each would take the other's for its own past"
            )
            return Reason(token=Token.DIRECTORY_TAKEN, sentence=sentence, numbers={"job": job.id})
    sizes: dict[str, int] = {}
    for host in state.hosts.values():
        sizes[host.spec.cluster] = sizes.get(host.spec.cluster, 0) + 1
    largest = max(sizes.values(), default=0)
    if spec.hosts > largest:
        sentence = f"wants {spec.hosts} hosts in one cluster; the largest cluster has {largest}"
        return Reason(token=Token.NEVER_FITS, sentence=sentence, numbers={"wanted": spec.hosts, "largest": largest})
    return None


def _shared_directory(one: JobSpec, other: JobSpec) -> bool:
    """By name alone: what links and mounts make of it, only hosts know."""
    named = [spec.checkpoint.directory for spec in (one, other)]
    return all(named) and normpath(named[0]) == normpath(named[1])


def unknown_hosts(state: ClusterState, hosts: Iterable[HostId]) -> tuple[HostId, ...]:
    return tuple(host for host in hosts if host not in state.hosts)


def plan_drain(state: ClusterState, hosts: Sequence[HostId], by: Owner) -> tuple[HostPlanItem, ...]:
    drained = frozenset(hosts)
    return tuple(_drain_item(state, state.hosts[name], by, drained) for name in hosts)


def _drain_item(state: ClusterState, host: Host, by: Owner, drained: frozenset[HostId]) -> HostPlanItem:
    if host.hold_of(by) is not None:
        return HostPlanItem(host=host.id, changed=False, sentence=f"already held by {by}: {host.holds[0].reason}")
    attempt = state.attempts[host.allocation] if host.allocation is not None else None
    if attempt is None or host.role != "member" or not attempt.is_live():
        sentence = f"is {host.state.value}; no job runs on it"
        return HostPlanItem(host=host.id, changed=True, sentence=sentence, gpus=host.spec.gpus)
    job = state.jobs[attempt.job]
    leaving = [name for name in attempt.members if name in drained]
    usable = (name for name in attempt.spares if name not in drained and state.hosts[name].is_usable())
    ready = dict(zip(leaving, usable, strict=False))
    if job.spec.on_drain == "finish":
        what = "runs on it and may finish first"
    elif host.id in ready:
        what = f"runs on it and moves to {ready[host.id]} after a checkpoint"
    else:
        what = "runs on it and moves as soon as a spare is free; none is now"
    sentence = f"{job.spec.name} ({job.id}) {what}"
    return HostPlanItem(host=host.id, changed=True, sentence=sentence, job=job.id, gpus=host.spec.gpus)


def plan_resume(state: ClusterState, hosts: Iterable[HostId], by: Owner) -> tuple[HostPlanItem, ...]:
    """Only the holds of `by` are lifted; a host that somebody else holds stays out, and the answer says who."""
    return tuple(_resume_item(state.hosts[name], by) for name in hosts)


def _resume_item(host: Host, by: Owner) -> HostPlanItem:
    others = [hold for hold in host.holds if hold.owner != by]
    if others:
        held = "; ".join(f"{hold.owner}: {hold.reason}" for hold in others)
        mine = host.hold_of(by) is not None
        sentence = f"held by {held}; only the owner lifts a hold"
        if mine:
            sentence = f"the hold of {by} is lifted, but it stays out: {sentence}"
        return HostPlanItem(host=host.id, changed=mine, refused=True, sentence=sentence)
    out = host.state in (HostState.OUT_PLANNED, HostState.OUT_FAILED)
    if not host.holds and not out:
        return HostPlanItem(host=host.id, changed=False, sentence=f"is {host.state.value} and has no hold")
    if out and not host.connected:
        sentence = "returns through verification as soon as its agent is back"
    elif out:
        sentence = "returns through verification"
    elif host.state is HostState.DRAINING:
        sentence = "its drain is withdrawn"
    else:
        sentence = f"is {host.state.value}; the hold is lifted"
    return HostPlanItem(
        host=host.id, changed=bool(host.holds) or host.connected, sentence=sentence, gpus=host.spec.gpus
    )


def check_cancel(job: Job) -> Reason | None:
    if job.state in (JobState.QUEUED, JobState.ACTIVE):
        return None
    return Reason(token=Token.ALREADY_ENDED, sentence=f"{job.spec.name} ({job.id}) is {job.state.value} already")


def check_requeue(state: ClusterState, job: Job) -> Reason | None:
    if job.state is JobState.QUEUED:
        return Reason(token=Token.ALREADY_QUEUED, sentence=f"{job.spec.name} ({job.id}) is queued already")
    if job.state is JobState.ACTIVE:
        return None
    return check_submit(state, job.spec)
