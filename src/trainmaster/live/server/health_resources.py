"""What the API shows of the health of hosts: the values behind its JSON bodies.

GET  /v1/health                        HealthView     pools with their breakers, counts of verdicts, what is open
GET  /v1/health/hosts                  HealthHosts    ?hosts=LIST&verdict=V&all=1   what stands against whom
GET  /v1/health/cases                  Cases          ?hosts=LIST&all=1   open ones; with all=1 those that ended too
GET  /v1/health/cases/C                CaseView
GET  /v1/hosts/H/health                HostHealth     all of one host, with its history and its parts
POST /v1/health/acknowledge            HealthChange   -> ChangeReport
POST /v1/health/release                HealthChange   -> ChangeReport
POST /v1/health/pools/P/mode           ModeChange     -> MaintenanceReport
POST /v1/health/pools/P/breaker        BreakerChange  -> MaintenanceReport
GET  /v1/rmas                          Rmas           ?all=1
GET  /v1/rmas/R                        RmaDetail
POST /v1/rmas                          RmaRequest     -> RmaReport
POST /v1/rmas/R/close                  RmaClose       -> RmaReport
"""

from typing import Annotated, Literal

import msgspec

from trainmaster.core.base.ids import CaseId, HostId, JobId, OperationId, Owner, PoolName, RmaId
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.events import Mode, RmaOutcome
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender.record import Incident, Tenancy
from trainmaster.core.health.offender.rma import Bundle


class StandingView(Value):
    """A finding that holds."""

    finding: Finding
    probe: str
    since: Instant
    last: Instant
    acknowledged_by: Owner | None
    acknowledged_until: Instant | None
    acknowledged_why: str


class HostVerdict(Value):
    """What holds for a host, all that stands considered."""

    host: HostId
    verdict: str
    remedy: str
    sentence: str
    """Of the finding that decides, or why nothing is known."""
    unit: str
    pool: PoolName | None
    """None: no pool acts on it; it is observed."""
    mode: Mode
    case: CaseId | None
    case_reason: str
    """Why its case is where it is: the advice, the breaker, who has to look; empty without a case."""
    since: Instant | None
    """When what decides was first seen."""
    acknowledged_by: Owner | None
    standings: tuple[StandingView, ...]
    """Worst first."""


class HealthHosts(Value):
    index: int
    at: Instant
    items: tuple[HostVerdict, ...]
    """Worst first; hosts that are ok only if all were asked for."""


class TryView(Value):
    """One try of a remedy."""

    at: Instant
    remedy: str
    operation: OperationId | None
    outcome: str
    """running, done, failed, cancelled."""


class CaseView(Value):
    id: CaseId
    host: HostId
    unit: str
    rule: str
    remedy: str
    state: str
    since: Instant
    opened_at: Instant
    reason: Reason
    """The advice, what it waits on, or who has to look."""
    operation: OperationId | None
    tries: tuple[TryView, ...]
    rma: RmaId | None
    closed_how: str
    findings: tuple[Finding, ...]
    story: tuple[Chapter, ...]


class Cases(Value):
    index: int
    at: Instant
    items: tuple[CaseView, ...]
    """Open ones, oldest first; then ended ones, newest first."""


class PoolView(Value):
    """Hosts that health acts on together, and what its breaker says."""

    name: PoolName
    mode: Mode
    hosts: int
    """In service, or out by health: what the percentage is of."""
    out: int
    """Out by health now."""
    level_most: int
    """So many may be out."""
    taken: int
    """Taken out within the window."""
    rate_most: int
    rate_window_s: float
    tripped: bool
    """By hand, or by its limits."""
    reason: Reason | None
    cases: int
    """Open ones."""


class HealthView(Value):
    index: int
    at: Instant
    verdicts: dict[str, int]
    """Hosts by verdict."""
    pools: tuple[PoolView, ...]
    cases: dict[str, int]
    """Open ones by state."""
    unacknowledged: int
    """Hosts that are bad or unknown and that nobody has taken on."""
    lemons: tuple["LemonView", ...]
    """Worst first."""
    rmas: int
    """Open ones."""


class LemonView(Value):
    """A host whose history stands out."""

    host: HostId
    score: float
    limit: float
    sentence: str


class HostHealth(Value):
    """All of one host."""

    index: int
    at: Instant
    verdict: HostVerdict
    cases: tuple[CaseView, ...]
    """Open one first, then those that ended, newest first."""
    chassis: str
    place: str
    incidents: tuple[Incident, ...]
    """Newest first, also those under an earlier name."""
    parts: tuple[Tenancy, ...]
    """Present ones first, then former ones, newest first."""
    lemon: LemonView | None
    rmas: tuple["RmaView", ...]


class HealthChange(Value):
    hosts: str
    """A host list."""
    reason: str
    dry_run: bool = False
    for_s: float | None = None
    """Of an acknowledgement: how long it holds; None: until it gets worse."""


class ModeChange(Value):
    mode: Mode
    reason: str
    dry_run: bool = False


class BreakerChange(Value):
    tripped: bool
    reason: str
    dry_run: bool = False


class RmaView(Value):
    id: RmaId
    host: HostId
    unit: str
    serial: str
    model: str
    state: Literal["open", "closed"]
    opened_at: Instant
    by: Owner
    reason: str
    case: CaseId | None
    closed_at: Instant | None
    outcome: RmaOutcome | None
    closed_why: str
    successor: str
    """Serial of the part that was seen in the slot since."""


class Rmas(Value):
    index: int
    at: Instant
    items: tuple[RmaView, ...]


class RmaDetail(Value):
    """A part that goes back, with what proves its fault."""

    index: int
    at: Instant
    rma: RmaView
    bundle: Bundle
    advice: str
    """What to do about it now; empty: nothing."""


class RmaRequest(Value):
    host: HostId
    unit: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    reason: str
    dry_run: bool = False


class RmaClose(Value):
    outcome: RmaOutcome
    reason: str
    dry_run: bool = False


class RmaReport(Value):
    index: int
    dry_run: bool
    rma: RmaId | None
    """None in a dry run of an opening."""
    sentence: str
    jobs: tuple[JobId, ...] = ()
    """That run on the host as it is."""
