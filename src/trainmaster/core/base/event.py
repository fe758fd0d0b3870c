"""The two kinds of value that cross the door of the engine: events come in, effects go out.

An event has happened; it can't be refused, only found unknown. (What a person asks is checked first, see the areas'
`policy` modules; what passes becomes an event.) An effect is asked for; it has an id, and its outcome comes back as an
event. Both are tagged unions on the wire: `{"type": "worker-exited", ...}`.
"""

import re

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
