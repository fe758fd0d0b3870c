"""The one door of the core: `handle(event)` applies an event and returns the effects that it causes."""

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import AnyEvent


class Engine:
    def handle(self, event: AnyEvent) -> tuple[AnyEffect, ...]:
        """Applies the event with index `self.index + 1`."""
        raise NotImplementedError(event)

    def next_wake(self) -> Instant | None:
        """When a policy wants a TimePassed, at the latest."""
        raise NotImplementedError

    def pending(self, host: HostId | None = None) -> tuple[AnyEffect, ...]:
        """Effects without an outcome, in the order in which they were caused."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        """The state as canonical bytes."""
        raise NotImplementedError

    @classmethod
    def restore(cls, snapshot: bytes) -> "Engine":
        raise NotImplementedError(snapshot)
