"""What must hold after every event. Tests and simulations check it after each step; a broken one is a defect.

The numbers are those of the architecture's list of invariants, as far as they concern what exists.
"""

from collections.abc import Iterator

from trainmaster.core.effects import attempt_of
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.health import invariants as health
from trainmaster.core.maintenance import invariants as maintenance
from trainmaster.core.recovery.attempt import AttemptState
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.state import ClusterState, Derived


def broken(state: ClusterState, derived: Derived, anew: Derived | None = None) -> list[str]:
    """Sentences about what does not hold; empty if all is well. `anew`: derived from the same state just now, where
    somebody has it; else it is made."""
    own = (*_allocations(state), *_attempts(state), *_versions(state), *_jobs(state), *_derived(state, derived))
    return [*own, *maintenance.broken(state, derived, anew), *health.broken(state, derived)]


def _allocations(state: ClusterState) -> Iterator[str]:
    members = {name: set(attempt.members) for name, attempt in state.attempts.items() if attempt.is_live()}
    for host in state.hosts.values():
        if host.allocation is None:
            continue
        attempt = state.attempts[host.allocation]
        if host.state in (HostState.OUT_FAILED, HostState.OUT_PLANNED, HostState.EXPECTED, HostState.VERIFYING):
            yield f"{host.id} is {host.state.value} and still allocated to {attempt.id}"
        if host.role == "member" and host.id not in members.get(attempt.id, {host.id}):
            yield f"{host.id} is a member for itself, but not for {attempt.id}"
        if host.role in ("member", "spare") and not attempt.is_live():
            yield f"{host.id} is {host.role} of {attempt.id}, which has ended"
    for host in state.hosts.values():
        if host.state is HostState.READY and not host.verified:
            yield f"3: {host.id} is ready without a verification"
        if host.state is HostState.READY and host.holds:
            yield f"{host.id} is ready although it is held"


def _attempts(state: ClusterState) -> Iterator[str]:
    for attempt in state.attempts.values():
        if not attempt.is_live():
            continue
        spec = state.jobs[attempt.job].spec
        if len(attempt.members) != spec.hosts:
            yield f"{attempt.id} has {len(attempt.members)} members of {spec.hosts}"
        for name in attempt.spares:
            if state.hosts[name].allocation != attempt.id or state.hosts[name].role != "spare":
                yield f"{name} is a spare for {attempt.id}, but not for itself"
        if len(set(attempt.members)) != len(attempt.members) or len(set(attempt.spares)) != len(attempt.spares):
            yield f"{attempt.id} names a host twice: {attempt.members} {attempt.spares}"
        if attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING):
            away = [name for name in attempt.members if state.hosts[name].allocation != attempt.id]
            if away:
                yield f"{attempt.id} is {attempt.state.value} without its members {away}"
        stuck = attempt.state is AttemptState.REFORMING and attempt.epoch.ended_by and not attempt.undecided
        if stuck and attempt.waiting is None:
            yield f"6: {attempt.id} re-forms and waits for nothing"
        if attempt.waiting is not None and attempt.handover is None and attempt.id not in state.wanting:
            yield f"6: {attempt.id} waits ({attempt.waiting.token}) and nobody serves it"
        leaves = attempt.handover is not None and attempt.handover.requeue
        short = attempt.state is AttemptState.RUNNING and len(attempt.spares) < spec.spares and not leaves
        if short and attempt.id not in state.wanting:
            yield f"6: {attempt.id} has {len(attempt.spares)} spares of {spec.spares} and nobody serves it"


def _versions(state: ClusterState) -> Iterator[str]:
    shared = state.maintenance.catalogue.job_consistent()
    for attempt in state.attempts.values():
        if not shared or attempt.state not in (AttemptState.LAUNCHING, AttemptState.RUNNING):
            continue
        known = [state.hosts[name].versions for name in attempt.members]
        mixed = {component: sorted({versions.get(component, "") for versions in known}) for component in shared}
        for component, versions in mixed.items():
            if len(versions) > 1:
                yield f"4: hosts of {attempt.id} do not agree on {component}: {versions}"


def _jobs(state: ClusterState) -> Iterator[str]:
    queued = [job.id for job in state.jobs.values() if job.state is JobState.QUEUED]
    if sorted(queued) != sorted(state.queue):
        yield f"queued are {queued}, the queue has {state.queue}"
    keys = [state.jobs[job].order_key() for job in state.queue]
    if keys != sorted(keys):
        yield "the queue is out of order"
    for job in state.jobs.values():
        live = [name for name in job.attempts if state.attempts[name].is_live()]
        if len(live) != (1 if job.state is JobState.ACTIVE else 0):
            yield f"{job.id} is {job.state.value} with live attempts {live}"
    if state.queue and state.jobs[state.queue[0]].reason is None:
        yield f"6: {state.queue[0]} heads the queue and waits without a reason"


def _derived(state: ClusterState, derived: Derived) -> Iterator[str]:
    for host in state.hosts.values():
        if host.is_free() != (host.id in derived.free):
            yield f"{host.id} is free: {host.is_free()}, in the index: {host.id in derived.free}"
    known = {(effect, host) for host in state.hosts for effect in derived.effects_at(host, state.pending)}
    pending = {(effect, host) for effect, pending in state.pending.items() for host in pending.open_at}
    if known != pending:
        yield f"effects by host and pending effects differ: {known ^ pending}"
    known_of = {effect for effects in derived.effects_by_attempt.values() for effect in effects}
    pending_of = {effect for effect, pending in state.pending.items() if attempt_of(pending.effect) is not None}
    if known_of != pending_of:
        yield f"effects by attempt and pending effects differ: {known_of ^ pending_of}"
    for effect, waits in state.pending.items():
        if not waits.open_at or not waits.open_at <= set(waits.effect.hosts):
            yield f"{effect} to {waits.effect.hosts} is open at {waits.open_at}"
