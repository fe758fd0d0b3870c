"""History: what happened to a host, a slot, a part and a place in a rack, for as long as it may matter.

Four identities, because each outlives the others in turn: a host that is renamed keeps its *chassis*, a slot keeps its
history when its part is swapped, a part takes its own along to another slot, and a *place* in a rack (its feed, its
cable, its neighbours' heat) stays when a whole host is exchanged. An incident is written once and carries all four.

Only what was the unit's own fault counts against it (`offence`); what a person or a plan did never does.

Histories stand under the present name of their host. A chassis that bears no name now (it was taken out of the name
that it had, and shows up nowhere) keeps its history under `on_shelf(serial)`, which is no name that a host can have.
"""

from typing import Final, Literal

import msgspec

from trainmaster.core.base.ids import BootId, CaseId, HostId, JobId, RmaId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.part import Part
from trainmaster.core.health.words import Remedy, Verdict

IncidentKind = Literal["verdict", "remedy", "verification", "lost", "job-failed", "excluded", "ticket"]
"""*verdict*: a case was opened. *remedy*: one was tried, see `outcome`. *verification*: the host failed it. *lost*: it
was lost while in service. *job-failed*: a job died of it. *excluded*: a user asked not to be placed on it. *ticket*: a
person took it out to repair it."""


LEMON: Final = "lemon"
"""The rule of a verdict over many incidents; it is none itself, and not counted as one."""


class Incident(Value):
    """One thing that happened to one unit."""

    at: Instant
    kind: IncidentKind
    host: HostId
    """The name that the host had then."""
    unit: str
    """Slot of the part (`gpu 0000:1b:00`), or `host`."""
    chassis: str = ""
    place: str = ""
    """Rack and number of the host in it: `roce-r0007/3`."""
    part: str = ""
    """Serial of the part that was in the slot then; empty: unknown."""
    rule: str = ""
    verdict: Verdict = Verdict.OK
    remedy: Remedy = Remedy.NONE
    outcome: str = ""
    """Of a remedy: done, failed, not-run."""
    case: CaseId | None = None
    job: JobId | None = None
    nodes: int = 0
    """Hosts of the job; 0: no job."""
    offence: bool = True


class Tally(Value):
    """Incidents that are too old to be kept one by one: alike in everything here, and counted."""

    unit: str
    part: str
    place: str
    kind: IncidentKind
    rule: str
    count: int
    offences: int
    first: Instant
    last: Instant


class Tenancy(Value):
    """A part in a slot of a host, from the first look to the last."""

    host: HostId
    """The name that the host had at the first look."""
    chassis: str
    part: Part
    since: Instant
    until: Instant | None = None
    """None: it is there still, as far as anybody knows: a part that merely is not seen has not left."""
    missing_since: Instant | None = None
    """It was not there at the last look. A GPU that fell off the bus looks like this, and so does an empty slot."""


class Return(Value):
    """A part that was sent back to its vendor."""

    rma: RmaId
    host: HostId
    chassis: str
    unit: str
    serial: str
    at: Instant
    outcome: str = ""
    """Empty while it is away; then one of `RmaOutcome`."""
    closed_at: Instant | None = None


class History(msgspec.Struct, kw_only=True):
    """Part of the state. Mutable, private to the engine."""

    incidents: dict[HostId, list[Incident]] = {}
    """Oldest first, by the present name of the host."""
    older: dict[HostId, list[Tally]] = {}
    """What came before those."""
    tenancies: dict[HostId, list[Tenancy]] = {}
    chassis: dict[HostId, str] = {}
    """Serial numbers of hosts, as last seen; empty: unknown."""
    boots: dict[HostId, BootId] = {}
    """The boot of the last look at a host's parts."""
    formerly: dict[HostId, list[HostId]] = {}
    """Names that a host had before."""
    first_seen: dict[HostId, Instant] = {}
    """For early-life hazard: when the host first returned from verification."""
    where: dict[str, HostId] = {}
    """Of each part in a slot, by its serial: the host."""
    carriers: dict[str, list[HostId]] = {}
    """Of each part that something happened to: the hosts in whose history it stands."""
    places: dict[str, list[HostId]] = {}
    """The same of places in racks."""
    cloned_parts: set[str] = set()
    """Serials that two parts told at the same time: they identify neither."""
    cloned_chassis: set[str] = set()
    repaired: dict[HostId, Instant] = {}
    """When a person last said that the host is repaired."""
    returns: list[Return] = []
    """Oldest first."""
    alone: dict[HostId, list[tuple[int, int]]] = {}
    """Jobs that a host ran by itself: (day since 1970, how many), oldest first."""


def on_shelf(chassis: str) -> HostId:
    """Where the history of a chassis stands while no host has it."""
    return HostId(f"chassis:{chassis}")
