"""One step of the engine: the event that is being applied, and what it causes.

Appliers of the areas get a `Step`, change the state through it and leave effects, wake-ups and *signals* in it. A
signal is how an area lower in the house tells one above it (the fleet knows nothing of attempts): the engine passes
signals on until none is left, within the same event.
"""

import heapq
from collections.abc import Sequence
from typing import Final, Literal, TypeVar

from trainmaster.core.base.ids import AttemptId, EffectId, HostId, OperationId, PoolName, effect_id
from trainmaster.core.base.time import Instant
from trainmaster.core.effects import (
    AnyEffect,
    AskWorkers,
    LaunchWorkers,
    PrepareAttempt,
    ReserveStore,
    RunSteps,
    attempt_of,
)
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.maintenance.operation import Operation
from trainmaster.core.state import ClusterState, Derived, Pending, effect_order

UnitSignal = Literal["out", "ready", "lost", "go-on", "drain", "left"]
SignalKind = Literal["host-lost", "host-draining", "host-kept", "host-gone"]
E = TypeVar("E", bound=AnyEffect)

SLACK: Final = 256
"""Withdrawn wake-ups that the heap may hold beyond twice as many as there are."""


class Step:
    def __init__(self, state: ClusterState, derived: Derived, now: Instant) -> None:
        self.state = state
        self.derived = derived
        self.now = now
        self.effects: list[AnyEffect] = []
        self._caused = 0
        self._next = EffectId("")
        """The id that was given out for an effect which has not been emitted yet."""
        self.signals: list[tuple[SignalKind, HostId, AttemptId]] = []
        self.unit_signals: list[tuple[UnitSignal, HostId]] = []
        """What concerns the visits of units, which stand above the fleet too."""
        self.granted: list[str] = []
        """Who was granted its locks by what others gave back."""
        self.reconsider: list[OperationId] = []
        """Operations at the gate that no line holds: what they waited for has changed."""
        self.orphans: list[OperationId] = []
        """Operations whose steps were dropped with the host that carried them out."""
        self.ended_operations: list[Operation] = []
        self.failed_hosts: list[tuple[HostId, bool]] = []
        """Hosts that failed by themselves, and whether a job loaded them."""
        self.ailing: list[HostId] = []
        """Hosts of which something else stands now than before, or that came to another place in their case."""
        self.pools_due: list[PoolName] = []
        """Pools of hosts of which health may take out more now."""
        self.lines_due = False
        """Capacity came back: operations that wait for it are to be served."""
        self.capacity_came = False
        """A host became free or a job was queued: attempts and the queue are to be served."""

    def next_id(self) -> EffectId:
        self._next = effect_id(self.state.index, self._caused + 1)
        return self._next

    def emit(self, effect: E) -> E:
        """Adds an effect made with `next_id`."""
        name, hosts = effect.id, effect.hosts
        assert name == self._next, name
        pending = Pending(effect=effect, open_at=set(hosts))
        assert 0 < len(pending.open_at) == len(hosts), f"{name}: no host, or one twice: {hosts}"
        self._caused += 1
        self._next = EffectId("")
        self.effects.append(effect)
        self.state.pending[name] = pending
        self.derived.add_effect(pending)
        return effect

    def settle(self, effect: EffectId, hosts: Sequence[HostId]) -> tuple[HostId, ...]:
        """Takes an effect off these hosts; those of them that had it still open, in their order."""
        pending = self.state.pending.get(effect)
        if pending is None:
            return ()
        open_at, asked = pending.open_at, pending.effect.hosts
        if len(open_at) == len(hosts) and tuple(hosts) == asked:  # all at once, which is usual
            settled = asked
            open_at.clear()
        else:
            settled = tuple([host for host in hosts if host in open_at])
            left = len(open_at) - len(settled)
            open_at.difference_update(settled)
            assert len(open_at) == left, f"{effect}: a host is named twice: {hosts}"
        if not open_at:
            del self.state.pending[effect]
            name = attempt_of(pending.effect)
            attempt = self.state.attempts.get(name) if name is not None else None
            is_over = name is not None and (attempt is None or not attempt.is_live())
            self.derived.drop_effect(effect, asked, name, is_over)
        return settled

    def give_up(self, effect: EffectId) -> None:
        """Nobody waits for it any more."""
        pending = self.state.pending.get(effect)
        if pending is not None:
            self.settle(effect, pending.effect.hosts)

    def is_pending(self, effect: EffectId | None) -> bool:
        """Somebody has not answered it."""
        return effect in self.state.pending

    def pending_at(self, host: HostId) -> list[AnyEffect]:
        """What the host has not answered, in no order."""
        return [self.state.pending[effect].effect for effect in self.derived.effects_at(host, self.state.pending)]

    def pending_of(self, attempt: AttemptId) -> list[Pending]:
        """What some host of the attempt has not answered, in no order."""
        return [self.state.pending[effect] for effect in self.derived.effects_by_attempt.get(attempt, ())]

    def drop_effects(self, host: HostId, survives: tuple[type, ...] = ()) -> None:
        """The host is gone: nothing that was asked of it will be answered, except what survives a reboot."""
        dropped = [effect for effect in self.pending_at(host) if not isinstance(effect, survives)]
        dropped.sort(key=lambda effect: effect_order(effect.id))
        self.orphans += [effect.operation for effect in dropped if isinstance(effect, RunSteps)]
        self._forget(dropped, (host,))

    def withdraw(self, hosts: Sequence[HostId], attempt: AttemptId) -> None:
        """The attempt leaves the hosts: how their part in forming an epoch ended concerns nobody any more."""
        forming = (PrepareAttempt, ReserveStore, LaunchWorkers, AskWorkers)
        effects = [pending.effect for pending in self.pending_of(attempt)]
        self._forget([effect for effect in effects if isinstance(effect, forming)], hosts)

    def _forget(self, effects: list[AnyEffect], hosts: Sequence[HostId]) -> None:
        settled = [effect.id for effect in effects if self.settle(effect.id, hosts)]
        if settled:
            self.effects = [effect for effect in self.effects if effect.id in self.state.pending]

    def wake(self, key: str, at: Instant) -> None:
        """Asks for a TimePassed at `at`; a key has one wake-up, the newest."""
        wakes, heap = self.state.wakes, self.derived.wake_heap
        wakes[key] = at
        heapq.heappush(heap, (at, key))
        if len(heap) > 2 * len(wakes) + SLACK:
            self.derived.sweep_wakes(self.state)

    def unwake(self, key: str) -> None:
        self.state.wakes.pop(key, None)

    def signal(self, kind: SignalKind, host: HostId, attempt: AttemptId) -> None:
        self.signals.append((kind, host, attempt))

    def restack(self, host: Host, stack: str) -> None:
        """The versions that the host must share with others of its job are these now."""
        if host.stack == stack:
            return
        if host.id in self.derived.free:
            self.derived.free.remove(host.id)
        host.stack = stack
        self.refresh(host)

    def doubt(self, name: HostId) -> None:
        """What stands against a host has changed: jobs get it last while it is bad."""
        if name in self.derived.free:
            self.derived.free.mark(name, self.state.hosts[name].position, self.state.health.is_bad(name))

    def refresh(self, host: Host) -> None:
        """Brings the index of free hosts up to date after a change of `host`."""
        index, is_free = self.derived.free, host.is_free()
        if is_free == (host.spec.id in index):
            return
        if is_free:
            index.add(host.spec, host.position, host.stack, self.state.health.is_bad(host.id))
            self.capacity_came = self.lines_due = True
        else:
            index.remove(host.spec.id)
