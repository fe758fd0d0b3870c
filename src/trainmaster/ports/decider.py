"""The engine as its hosts see it: events in, effects out. Kept apart from the class, so that the server is tested with
a decider of twenty lines."""

from collections.abc import Sequence
from typing import Protocol

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import AnyEvent
from trainmaster.core.glance import Glance
from trainmaster.core.state import ClusterState


class Decider(Protocol):
    @property
    def state(self) -> ClusterState:
        """To be read only."""
        ...

    @property
    def index(self) -> int:
        """Index of the last event that was applied; 0: none."""
        ...

    def handle(self, event: AnyEvent) -> tuple[AnyEffect, ...]:
        """Applies the event with index `self.index + 1`. After any exception the decider is broken: throw it away."""
        ...

    def next_wake(self) -> Instant | None:
        """When a policy wants a TimePassed, at the latest."""
        ...

    def pending(self, host: HostId | None = None) -> Sequence[AnyEffect]:
        """Effects without an outcome, in the order in which they were caused."""
        ...

    def snapshot(self) -> bytes:
        """The state as canonical bytes."""
        ...

    def preview_placement(self, count: int, spares: int) -> Reason | tuple[HostId, ...]:
        """Where a gang would go now, if it were alone, or why it would wait."""
        ...

    def glance(self, now: Instant) -> Glance:
        """The state to be asked what the engine would decide at an instant; changes nothing."""
        ...


class DeciderFactory(Protocol):
    """How to make one: `Engine` itself, or a fake of it."""

    def __call__(self) -> Decider: ...

    def restore(self, snapshot: bytes) -> Decider:
        """The decider whose `snapshot()` gave these bytes."""
        ...
