"""History: what happened to a host, a slot, a part and a place in a rack, for as long as it may matter.

Four identities, because each outlives the others in turn: a host that is renamed keeps its *chassis*, a slot keeps its
history when its part is swapped, a part takes its own along to another slot, and a *place* in a rack (its feed, its
cable, its neighbours' heat) stays when a whole host is exchanged. An incident is written once and carries all four.

Only what was the unit's own fault counts against it (`offence`); what a person or a plan did never does.
"""

from typing import Literal

import msgspec

from trainmaster.core.base.ids import CaseId, HostId, JobId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.part import Part
from trainmaster.core.health.words import Remedy, Verdict

IncidentKind = Literal["verdict", "remedy", "verification", "lost", "job-failed", "excluded", "ticket"]
"""*verdict*: a case was opened. *remedy*: one was tried, see `outcome`. *verification*: the host failed it. *lost*: it
was lost while in service. *job-failed*: a job died of it. *excluded*: a user asked not to be placed on it. *ticket*: a
person took it out to repair it."""


class Incident(Value):
    """One thing that happened to one unit."""

    at: Instant
    kind: IncidentKind
    host: HostId
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


class Tenancy(Value):
    """A part in a slot of a host, from the first look to the last."""

    host: HostId
    chassis: str
    part: Part
    since: Instant
    until: Instant | None = None
    """None: it is there still."""


class History(msgspec.Struct, kw_only=True):
    """Part of the state. Mutable, private to the engine."""

    incidents: dict[HostId, list[Incident]] = {}
    """Oldest first, by the present name of the host."""
    tenancies: dict[HostId, list[Tenancy]] = {}
    chassis: dict[HostId, str] = {}
    """Serial numbers of hosts, as last seen."""
    first_seen: dict[HostId, Instant] = {}
    """For early-life hazard: when the host first returned from verification."""
