"""A rehearsal: what the engine would do, found by letting it do it, on a copy of its state.

A plan that asks the deciding functions one by one ("is there room for this?") has to keep the books of what the parts
before have taken, and soon says other things than the engine. So a plan gives the real events to a real engine that was
restored from a snapshot. Effects are recorded and carried out by nobody; hence a rehearsal says what happens at this
instant, not what comes of it later. Its price is the copy: a snapshot and a restore,
most of it for the derived indexes; about half a second for 6,600 units, while a server does nothing else.
"""

from trainmaster.core.base.time import Instant
from trainmaster.core.effects import AnyEffect
from trainmaster.core.engine import Engine
from trainmaster.core.events import AnyEvent
from trainmaster.core.glance import Glance


class Rehearsal:
    """An engine of its own at an instant."""

    def __init__(self, snapshot: bytes, now: Instant) -> None:
        self._engine = Engine.restore(snapshot)
        self.index = self._engine.index
        """Of the state that it began with."""
        self.now = max(now, self._engine.state.now)
        self.effects: list[AnyEffect] = []
        """What the engine asked agents for."""

    def handle(self, event: AnyEvent) -> None:
        """Raises what the engine raises for an event that can't be; check before."""
        self.effects += self._engine.handle(event)

    def look(self) -> Glance:
        """The state as it is after the events so far; it goes on with later ones."""
        return self._engine.glance(self.now)

    def again(self) -> "Rehearsal":
        """Another one that goes on from here; this one does not learn of it."""
        return Rehearsal(self._engine.snapshot(), self.now)
