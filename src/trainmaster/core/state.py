"""The state: everything that the log means so far.

It is mutable and private to the engine; all others read. What can be derived (who is free, which effects wait at which
host, which wake-up is next) is not part of it: `Derived` is rebuilt when a snapshot is restored. Decoding a snapshot
sorts the keys of mappings, so nothing may depend on the order of a mapping; a test restores after every event and
compares.
"""

import heapq

import msgspec

from trainmaster.core.base.ids import AttemptId, EffectId, HostId, JobId
from trainmaster.core.base.time import Instant
from trainmaster.core.effects import AnyEffect, attempt_of
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.maintenance.book import Maintenance
from trainmaster.core.maintenance.index import PlannerIndex
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.core.scheduling.job import Job
from trainmaster.core.scheduling.place import FreeIndex


class Pending(msgspec.Struct, kw_only=True):
    """An effect that waits for outcomes."""

    effect: AnyEffect
    open_at: set[HostId]
    """Hosts that have not answered. To be asked and counted; for an order, walk `effect.hosts`."""


class ClusterState(msgspec.Struct, kw_only=True):
    index: int = 0
    """Index of the last event applied; 0: none."""
    now: Instant = Instant(0)
    lease: int = 0
    hosts: dict[HostId, Host] = {}
    jobs: dict[JobId, Job] = {}
    attempts: dict[AttemptId, Attempt] = {}
    pending: dict[EffectId, Pending] = {}
    """Effects without an outcome."""
    wakes: dict[str, Instant] = {}
    """What wants to be woken, by key `kind/entity`."""
    queue: list[JobId] = []
    """Jobs that wait for hosts, in the order in which they get them."""
    maintenance: Maintenance = msgspec.field(default_factory=Maintenance)
    wanting: list[AttemptId] = []
    """Live attempts that want hosts: for a vacant place, a hand-over or a spare; oldest first. They come before the
    queue, so that a gang that lost a member is not stranded."""


class Derived:
    """Indexes over the state; never encoded."""

    def __init__(self, state: ClusterState) -> None:
        self.free = FreeIndex()
        self.effects_by_host: dict[HostId, set[EffectId]] = {}
        """Pending effects that the host has not answered."""
        self.effects_by_attempt: dict[AttemptId, set[EffectId]] = {}
        """Pending effects that concern an attempt: a handful, however many hosts it has."""
        self.wake_heap: list[tuple[Instant, str]] = [(at, key) for key, at in state.wakes.items()]
        heapq.heapify(self.wake_heap)
        for host in sorted(state.hosts.values(), key=lambda host: host.position):
            if host.is_free():
                self.free.add(host.spec, host.position)
        self.planner = PlannerIndex(state.maintenance, state.hosts.values())
        for pending in state.pending.values():
            self.add_effect(pending)

    def add_effect(self, pending: Pending) -> None:
        effect, by_host = pending.effect.id, self.effects_by_host
        for host in pending.open_at:
            held = by_host.get(host)
            if held is None:
                by_host[host] = {effect}
            else:
                held.add(effect)
        attempt = attempt_of(pending.effect)
        if attempt is not None:
            self.effects_by_attempt.setdefault(attempt, set()).add(effect)

    def drop_effect(self, effect: AnyEffect) -> None:
        """Every host has answered it."""
        attempt = attempt_of(effect)
        if attempt is not None:
            held = self.effects_by_attempt[attempt]
            held.discard(effect.id)
            if not held:
                del self.effects_by_attempt[attempt]

    def next_wake(self, state: ClusterState) -> tuple[Instant, str] | None:
        """The earliest wake-up and its key. Entries of the heap that were withdrawn or put off are dropped here."""
        heap = self.wake_heap
        while heap and state.wakes.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None


def effect_order(effect: EffectId) -> tuple[int, int]:
    """Sort key: the order in which effects were caused."""
    index, _, number = effect[1:].partition(".")
    return int(index), int(number)
