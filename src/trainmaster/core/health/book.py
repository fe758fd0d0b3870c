"""The state of health: what stands against hosts, the cases that were taken up, and what is remembered.

A *standing* is a finding that holds: until its source says that it is gone, its boot is over, it expired, or a remedy
answered it. A *case* is one fault of one host, from its first bad verdict to its end, with the rung of the ladder that
it is on; tries are counted in the case, so neither a restart of the server nor of the agent forgets them. A host has
one case at a time, with all that is bad of it.
"""

from typing import Final, Literal

import msgspec

from trainmaster.core.base.ids import BootId, CaseId, HostId, OperationId, Owner, PoolName, RmaId
from trainmaster.core.base.machine import Chapter, Machine, State
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.conduct import HealthConduct
from trainmaster.core.health.events import Mode, RmaOutcome
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender.record import History
from trainmaster.core.health.words import Remedy, Verdict


class CaseState(State):
    """How far a fault has come."""

    OBSERVED = "observed"
    """The pool is not acted on: what would be done is written down, and the host stays as it is."""
    WAITING = "waiting"
    """The breaker of the pool is tripped, the host is lost, or somebody else holds it and works on it."""
    REMEDY = "remedy"
    """An operation of the planner carries out the rung: drain, reset or reboot, verify, return."""
    HELD = "held"
    """Out until a person has looked (triage) or the part came back (rma)."""
    CLOSED = "closed"


_S = CaseState
CASE_MACHINE = Machine(
    "case",
    _S.OBSERVED,
    [
        (_S.OBSERVED, _S.WAITING, "the pool is acted on now, but the breaker holds"),
        (_S.OBSERVED, _S.REMEDY, "the pool is acted on now"),
        (_S.OBSERVED, _S.HELD, "the pool is acted on now, and no remedy is left"),
        (_S.WAITING, _S.REMEDY, "it may be taken out now"),
        (_S.WAITING, _S.HELD, "it may be taken out now, and no remedy is left"),
        (_S.WAITING, _S.OBSERVED, "the pool is only observed again"),
        (_S.REMEDY, _S.REMEDY, "the remedy did not help; the next one"),
        (_S.REMEDY, _S.HELD, "no remedy is left"),
        (_S.REMEDY, _S.WAITING, "the host is lost, or somebody else works on it"),
        *((state, _S.CLOSED, "closed") for state in (_S.OBSERVED, _S.WAITING, _S.REMEDY, _S.HELD)),
    ],
)

CLOSED_KEPT: Final = 1_000

Stage = Literal["", "operation", "looking", "returning"]
"""Where a remedy is: its operation runs; it was carried out, and the probes have to look again; the host is let go and
proves that it works."""


class Standing(Value):
    """A finding that holds."""

    probe: str
    boot: BootId
    finding: Finding
    since: Instant
    last: Instant
    acknowledged_by: Owner | None = None
    acknowledged_until: Instant | None = None
    acknowledged_why: str = ""
    during: OperationId | None = None
    """The operation that was at work on the host when it was seen: until the probes have looked again after it, it may
    be what the operation did."""


class Attempt(Value):
    """One try of a remedy."""

    at: Instant
    remedy: Remedy
    operation: OperationId | None
    outcome: str = ""
    """Empty while it runs; then done, failed, cancelled."""


class Case(msgspec.Struct, kw_only=True):
    """State of a fault. Mutable, private to the engine."""

    id: CaseId
    host: HostId
    unit: str
    rule: str
    """Of the finding that opened it, or that made it worse."""
    remedy: Remedy
    """What is asked for now."""
    state: CaseState = CaseState.OBSERVED
    since: Instant
    opened_at: Instant
    story: tuple[Chapter, ...] = ()
    reason: Reason
    """Why it is where it is: the advice, what it waits on, or who has to look."""
    findings: tuple[Finding, ...] = ()
    """The proof, worst first; at most a few."""
    tries: tuple[Attempt, ...] = ()
    operation: OperationId | None = None
    stage: Stage = ""
    """While its state is *remedy*."""
    taken: bool = False
    """Health took the host out, and answers for its return."""
    look_until: Instant | None = None
    """From then on, what still stands is true."""
    rma: RmaId | None = None
    closed_how: str = ""
    """fixed, cleared (by itself), released (by a person), lost (mended, and failed otherwise before it was back)."""

    def number(self) -> int:
        """Cases are served in this order."""
        return int(self.id.partition("-")[2])


class Errand(msgspec.Struct, kw_only=True):
    """What a host needs and can wait; see `errands`."""

    remedy: Remedy
    """*reset-gpu-later* or *diagnose*."""
    operation: OperationId | None = None
    tried: tuple[Instant, ...] = ()
    """When it was asked for lately."""


class Breaker(msgspec.Struct, kw_only=True):
    """What health took out of a pool lately."""

    taken: dict[HostId, Instant] = {}
    """When each was taken last, within the window."""
    tripped_at: Instant | None = None
    by: Owner | None = None
    """Who tripped it by hand; None: the limits did."""
    reason: Reason | None = None


class Rma(msgspec.Struct, kw_only=True):
    """A part on its way to its vendor and back."""

    id: RmaId
    host: HostId
    unit: str
    serial: str
    model: str
    opened_at: Instant
    by: Owner
    reason: str
    case: CaseId | None = None
    evidence: tuple[Finding, ...] = ()
    closed_at: Instant | None = None
    outcome: RmaOutcome | None = None
    closed_why: str = ""
    successor: str = ""
    """Serial of the part that was seen in the slot afterwards."""


class Health(msgspec.Struct, kw_only=True):
    """Part of the state. Mutable, private to the engine."""

    conduct: HealthConduct = HealthConduct()
    modes: dict[PoolName, Mode] = {}
    """Of pools that were promoted or set back by hand."""
    standings: dict[HostId, tuple[Standing, ...]] = {}
    looked: dict[HostId, BootId] = {}
    """The boot in which a probe of the host last reported."""
    opened: int = 0
    """Cases that were ever opened; the last one has this number."""
    cases: dict[CaseId, Case] = {}
    """Those that are not closed."""
    case_of: dict[HostId, CaseId] = {}
    """The same by host."""
    closed: list[Case] = []
    """The newest `CLOSED_KEPT`, oldest first."""
    errands: dict[HostId, Errand] = {}
    """The last one of each host."""
    breakers: dict[PoolName, Breaker] = {}
    history: History = msgspec.field(default_factory=History)
    returned: int = 0
    """Parts that were ever sent back; the last one has this number."""
    rmas: dict[RmaId, Rma] = {}

    def is_bad(self, host: HostId) -> bool:
        """Something bad stands against the host by itself."""
        return any(
            each.finding.verdict is Verdict.BAD and not each.finding.echo_of for each in self.standings.get(host, ())
        )
