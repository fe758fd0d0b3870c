"""A decider of a few lines: it counts events and asks every registered host to verify itself.

Like the real one it is left half changed by an event that it finds impossible (an outcome of an effect that nobody
asked for), and its effects depend on its state, so that a lost or doubled event shows.
"""

from collections.abc import Sequence

import msgspec

from trainmaster.core.base.ids import EffectId, HostId, effect_id
from trainmaster.core.base.time import SECOND, Instant, after
from trainmaster.core.base.value import encode
from trainmaster.core.effects import AnyEffect, VerifyHost
from trainmaster.core.events import AnyEvent, LeaseTaken, TimePassed
from trainmaster.core.fleet.events import AgentRegistered, AgentSilent
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.core.state import Pending


class Memory(msgspec.Struct):
    index: int = 0
    now: Instant = Instant(0)
    lease: int = 0
    fleet: str = ""
    counts: dict[str, int] = {}
    done: dict[HostId, int] = {}
    pending: dict[EffectId, Pending] = {}
    wake: Instant | None = None


class FakeEngine:
    def __init__(self, memory: Memory | None = None) -> None:
        self.state = memory or Memory()

    @property
    def index(self) -> int:
        return self.state.index

    def handle(self, event: AnyEvent) -> tuple[AnyEffect, ...]:
        state = self.state
        state.index += 1
        state.now = max(state.now, event.at)
        kind = type(event).__name__
        state.counts[kind] = state.counts.get(kind, 0) + 1
        if isinstance(event, LeaseTaken):
            assert event.lease > state.lease
            state.lease = event.lease
            state.fleet = state.fleet or event.fleet
        elif isinstance(event, TimePassed):
            state.wake = None
        elif isinstance(event, AgentSilent):
            state.wake = after(event.at, SECOND)
        elif isinstance(event, EffectEnded):
            assert event.effect in state.pending, f"{event.effect} is not pending"
            del state.pending[event.effect]
            state.done[event.host] = state.done.get(event.host, 0) + 1
        elif isinstance(event, AgentRegistered):
            effect = VerifyHost(id=effect_id(state.index, 1), host=event.host, tasks=(f"task-{state.index}",))
            state.pending[effect.id] = Pending(effect=effect, open_at={event.host})
            return (effect,)
        return ()

    def next_wake(self) -> Instant | None:
        return self.state.wake

    def pending(self, host: HostId | None = None) -> Sequence[AnyEffect]:
        return tuple(effect for effect in self._ordered() if host in (None, effect.host))

    def _ordered(self) -> list[AnyEffect]:
        effects = (pending.effect for pending in self.state.pending.values())
        return sorted(effects, key=lambda effect: int(effect.id[1:].partition(".")[0]))

    def snapshot(self) -> bytes:
        return encode(self.state)

    @classmethod
    def restore(cls, snapshot: bytes) -> "FakeEngine":
        return cls(msgspec.json.decode(snapshot, type=Memory))
