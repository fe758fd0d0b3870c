"""The state: everything that the log means so far.

It is mutable and private to the engine; all others read. What can be derived (who is free, which effects wait at which
host, which wake-up is next) is not part of it: `Derived` is rebuilt when a snapshot is restored. Decoding a snapshot
sorts the keys of mappings, so nothing may depend on the order of a mapping; a test restores after every event and
compares.
"""

import heapq
from collections.abc import Mapping, Sequence

import msgspec

from trainmaster.core.base.ids import AttemptId, EffectId, HostId, JobId
from trainmaster.core.base.time import Instant
from trainmaster.core.checkpoint.measured import Exposure
from trainmaster.core.effects import AnyEffect, attempt_of
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.health.book import Health
from trainmaster.core.health.pools import PoolIndex
from trainmaster.core.maintenance.book import Maintenance
from trainmaster.core.maintenance.index import PlannerIndex
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.core.scheduling.job import Job
from trainmaster.core.scheduling.place import FreeIndex


class Pending(msgspec.Struct, kw_only=True, gc=False):
    """An effect that waits for outcomes."""

    effect: AnyEffect
    open_at: set[HostId]
    """Hosts that have not answered. To be asked and counted; for an order, walk `effect.hosts`."""


class ClusterState(msgspec.Struct, kw_only=True):
    index: int = 0
    """Index of the last event applied; 0: none."""
    now: Instant = Instant(0)
    lease: int = 0
    fleet: str = ""
    """What tells this fleet from all others, whose jobs are counted from 1 as well; empty: nobody drew it."""
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
    health: Health = msgspec.field(default_factory=Health)
    exposure: Exposure = msgspec.field(default_factory=Exposure)
    wanting: list[AttemptId] = []
    """Live attempts that want hosts: for a vacant place, a hand-over or a spare; oldest first. They come before the
    queue, so that a gang that lost a member is not stranded."""


class Derived:
    """Indexes over the state; never encoded."""

    def __init__(self, state: ClusterState) -> None:
        self.free = FreeIndex()
        self.effects_alone: dict[HostId, set[EffectId]] = {}
        """Pending effects that concern a host alone, by host."""
        self.effects_by_attempt: dict[AttemptId, set[EffectId]] = {}
        """Pending effects that concern an attempt: a handful, however many hosts it has."""
        self._attempts_at: dict[HostId, set[AttemptId]] = {}
        """Attempts that may have asked a host for something, and the same the other way round. Who has to be looked up
        is told by these; what is open there, by the effects themselves: so an effect for thousands of hosts is entered
        and taken out again at once."""
        self._asked: dict[AttemptId, set[HostId]] = {}
        self._members: dict[AttemptId, tuple[tuple[HostId, ...], frozenset[HostId]]] = {}
        self.wake_heap: list[tuple[Instant, str]] = [(at, key) for key, at in state.wakes.items()]
        heapq.heapify(self.wake_heap)
        self.draining = {name for name, host in state.hosts.items() if host.state is HostState.DRAINING}
        """Hosts that drain: a few, whatever the size of a gang."""
        for host in sorted(state.hosts.values(), key=lambda host: host.position):
            if host.is_free():
                self.free.add(host.spec, host.position, host.stack, state.health.is_bad(host.id))
        self.planner = PlannerIndex(state.maintenance, state.hosts.values())
        self.pools = PoolIndex(state.health.conduct, [host.spec for host in state.hosts.values()])
        for pending in state.pending.values():
            self.add_effect(pending)

    def members_of(self, attempt: Attempt) -> frozenset[HostId]:
        """The present members as a set, made once for each membership."""
        known = self._members.get(attempt.id)
        if known is None or known[0] is not attempt.members:
            known = self._members[attempt.id] = attempt.members, frozenset(attempt.members)
        return known[1]

    def add_effect(self, pending: Pending) -> None:
        effect, attempt = pending.effect.id, attempt_of(pending.effect)
        if attempt is None:
            for host in pending.open_at:
                known = self.effects_alone.get(host)
                if known is None:
                    self.effects_alone[host] = {effect}
                else:
                    known.add(effect)
            return
        self.effects_by_attempt.setdefault(attempt, set()).add(effect)
        asked = self._asked.setdefault(attempt, set())
        fresh = pending.open_at - asked
        for host in fresh:
            self._attempts_at.setdefault(host, set()).add(attempt)
        asked |= fresh

    def drop_effect(self, effect: EffectId, hosts: Sequence[HostId], attempt: AttemptId | None, is_over: bool) -> None:
        """All of its hosts have answered an effect. `is_over`: the attempt that it concerns has ended."""
        if attempt is None:
            for host in hosts:
                self.effects_alone[host].discard(effect)
            return
        held = self.effects_by_attempt[attempt]
        held.discard(effect)
        if held:
            return
        del self.effects_by_attempt[attempt]
        if is_over:
            self._members.pop(attempt, None)
            for host in self._asked.pop(attempt):
                self._attempts_at[host].discard(attempt)

    def effects_at(self, host: HostId, pending: Mapping[EffectId, Pending]) -> list[EffectId]:
        """Pending effects that the host has not answered, in no order."""
        found = list(self.effects_alone.get(host, ()))
        for attempt in self._attempts_at.get(host, ()):
            effects = self.effects_by_attempt.get(attempt, ())
            found += [effect for effect in effects if host in pending[effect].open_at]
        return found

    def sweep_wakes(self, state: ClusterState) -> None:
        """Drops what was withdrawn or put off: nearly all deadlines are, long before they would be at the top."""
        wakes = state.wakes
        self.wake_heap[:] = [entry for entry in self.wake_heap if wakes.get(entry[1]) == entry[0]]
        heapq.heapify(self.wake_heap)

    def next_wake(self, state: ClusterState) -> tuple[Instant, str] | None:
        """The earliest wake-up and its key. Entries of the heap that were withdrawn or put off are dropped here."""
        heap, wakes = self.wake_heap, state.wakes
        while heap:
            first = heap[0]
            if wakes.get(first[1]) == first[0]:
                return first
            heapq.heappop(heap)
        return None


def effect_order(effect: EffectId) -> tuple[int, int]:
    """Sort key: the order in which effects were caused."""
    index, _, number = effect[1:].partition(".")
    return int(index), int(number)
