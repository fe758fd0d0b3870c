"""The two kinds of value that cross the door of the engine: events come in, effects go out.

An event has happened; it can't be refused, only found unknown. (What a person asks is checked first, see the areas'
`policy` modules; what passes becomes an event.) An effect is asked for; it has an id, and its outcome comes back as an
event. Both are tagged unions on the wire: `{"type": "worker-exited", ...}`.

What is asked of a whole gang is one value, not one a host: to re-form a job of two thousand hosts is a handful of
effects. What a single host is sent is derived from it at the edge (see `core.effects.for_host`).
"""

import re
from typing import TypeVar

from trainmaster.core.base.ids import EffectId, HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


class Event(Value, tag_field="type", tag=_kebab):
    """Something that happened, at an instant that its source states."""

    at: Instant


class Effect(Value, tag_field="type", tag=_kebab):
    """Something that an agent is asked to do. Sending it twice is harmless: the agent keeps a journal by id."""

    id: EffectId
    host: HostId

    @property
    def hosts(self) -> tuple[HostId, ...]:
        return (self.host,)


G = TypeVar("G", bound="GangEffect")


class GangEffect(Value, tag_field="type", tag=_kebab):
    """The same asked of several hosts. Each has a journal of its own, so the id is the same for all."""

    id: EffectId
    hosts: tuple[HostId, ...]
    """In rank order, where ranks matter."""

    def part(self: G, place: int) -> G:
        """What the host at this place is sent."""
        return self.but(hosts=(self.hosts[place],))

    @property
    def host(self) -> HostId:
        """The one host of the part that a host is sent."""
        (host,) = self.hosts
        return host
