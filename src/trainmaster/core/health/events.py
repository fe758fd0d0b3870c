"""What agents and people tell of the health of hosts.

An agent reports changes of meaning, not lines: a fold that is new, that grew tenfold, or whose verdict changed; a state
that holds no longer. So a storm of one line is one incident in the log, and a probe that finds the same each time is
silent.
"""

from typing import Literal

from trainmaster.core.base.event import Event
from trainmaster.core.base.ids import BootId, CaseId, HostId, Owner, PoolName, RmaId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.conduct import HealthConduct
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.part import Part

Mode = Literal["observe", "act"]
RmaOutcome = Literal["replaced", "repaired", "no-fault-found", "withdrawn"]


class Gone(Value):
    """A finding that its own source no longer sees: the counter is quiet, the link is up, the state was cleared."""

    unit: str
    rule: str


class HealthReported(Event):
    """What one probe of an agent sees now and did not see before."""

    host: HostId
    boot: BootId
    probe: str
    """`kernel-log`, `nvml`, `infiniband`, ..."""
    findings: tuple[Finding, ...]
    """New ones, and known ones (same unit and rule) whose answer or count changed much."""
    gone: tuple[Gone, ...] = ()


class PartsSeen(Event):
    """The parts of a host at the first look after a boot, and after every change."""

    host: HostId
    boot: BootId
    chassis: str
    """Serial number of the host itself; empty: it tells none. A host that is renamed keeps it."""
    parts: tuple[Part, ...]


class HealthConductDeclared(Event):
    """From now on verdicts are acted on like this. Pools that were promoted by hand keep their mode."""

    conduct: HealthConduct
    by: Owner


class HealthModeSet(Event):
    """A pool is promoted to *act*, or set back to *observe*."""

    pool: PoolName
    mode: Mode
    by: Owner
    reason: str


class HealthAcknowledged(Event):
    """Somebody has seen what stands against these hosts and takes it on; it is not shown as new until it gets worse or
    `until` has passed. It changes no hold."""

    hosts: tuple[HostId, ...]
    by: Owner
    reason: str
    until: Instant | None = None


class HealthReleased(Event):
    """Somebody says that the hosts are repaired: what stands against them is closed, the hold of health (and no other)
    is lifted, and they return through the verification that their cases demand."""

    hosts: tuple[HostId, ...]
    by: Owner
    reason: str


class BreakerSet(Event):
    """A person trips the breaker of a pool, or resets one that tripped. After a reset only what still holds is acted
    on."""

    pool: PoolName
    tripped: bool
    by: Owner
    reason: str


class RmaOpened(Event):
    """A part goes back to its vendor; opened by a person (cases that end in rma open their own)."""

    host: HostId
    unit: str
    """Slot of the part: `gpu 0000:1b:00`, or `host`."""
    by: Owner
    reason: str
    case: CaseId | None = None


class RmaClosed(Event):
    rma: RmaId
    outcome: RmaOutcome
    by: Owner
    reason: str
