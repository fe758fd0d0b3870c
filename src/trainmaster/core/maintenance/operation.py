"""An operation: one change on one scope, from its request to its end.

    requested   at the gate: not allowed to start yet (dependencies, contracts of jobs, capacity, a paused train)
    admitted    the capacity that it takes is promised; it waits for its resources
    draining    its units leave production
    running     steps are carried out
    verifying   carried out; the units prove that they work before they return
    done | failed | off-boarded | cancelled

An operation that disturbs nothing goes from admitted to running; one whose units are out already skips the drain and is
*handed* the units without their going back to production in between. Ended operations leave the state but for a short
memory; the log has them all.

Its place in every queue is fixed at its request: the instant plus the penalty of its class, or earlier if its deadline
asks for it. Where one waits on another, the other inherits the better place, so neither priorities nor dependencies can
deadlock.
"""

from typing import Final, Literal

import msgspec

from trainmaster.core.base.ids import EffectId, HostId, JobId, OperationId, Owner, RolloutId, TrainName
from trainmaster.core.base.machine import Chapter, Machine, State
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import HOUR, Duration, Instant, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.scope import Scope


class OperationState(State):
    REQUESTED = "requested"
    ADMITTED = "admitted"
    DRAINING = "draining"
    RUNNING = "running"
    VERIFYING = "verifying"
    DONE = "done"
    FAILED = "failed"
    OFF_BOARDED = "off-boarded"
    CANCELLED = "cancelled"


_S = OperationState
_LIVE: Final = (_S.REQUESTED, _S.ADMITTED, _S.DRAINING, _S.RUNNING, _S.VERIFYING)

OPERATION_MACHINE: Final = Machine(
    "operation",
    _S.REQUESTED,
    [
        (_S.REQUESTED, _S.ADMITTED, "nothing forbids it any more"),
        (_S.ADMITTED, _S.DRAINING, "its units leave production"),
        (_S.ADMITTED, _S.RUNNING, "it leads on all its resources"),
        (_S.DRAINING, _S.RUNNING, "its units are out, and it leads on all its resources"),
        (_S.RUNNING, _S.VERIFYING, "carried out; its units are to be verified"),
        (_S.RUNNING, _S.DONE, "carried out"),
        (_S.VERIFYING, _S.DONE, "its units passed"),
        (_S.ADMITTED, _S.REQUESTED, "a unit was lost before it started"),
        (_S.DRAINING, _S.REQUESTED, "a unit was lost before it started"),
        *((state, _S.FAILED, "failed") for state in _LIVE),
        *((state, _S.OFF_BOARDED, "its version was taken off the train") for state in _LIVE[:-1]),
        *((state, _S.CANCELLED, "cancelled") for state in _LIVE[:-1]),
    ],
)

PENALTIES: Final[dict[Priority, Duration]] = {
    Priority.EMERGENCY: Duration(-10 * 365 * 24 * HOUR),
    Priority.REPAIR: Duration(0),
    Priority.PLANNED: Duration(6 * HOUR),
    Priority.BACKGROUND: Duration(48 * HOUR),
}
"""Added to the instant of the request: who waits, ages. A repair overtakes what was planned in the last six hours."""

ANSWER_SLACK: Final = seconds(60)
"""From the deadline of the last command of an effect until the effect itself is overdue: killing what hangs, the
journal's sync and the way back are in it."""

REBOOT_DEADLINE: Final = Duration(HOUR)
"""A host with memory training, firmware that updates itself at boot and a file system check needs most of it."""

ENDED_KEPT: Final = 1_000

Leg = Literal["", "apply", "check", "undo"]


class Operation(msgspec.Struct, kw_only=True, gc=False):
    """State of an operation. Mutable, private to the engine."""

    id: OperationId
    spec: OperationSpec
    by: Owner
    requested_at: Instant
    sequence: int
    aged_at: Instant
    scope: Scope
    units: tuple[HostId, ...]
    """Those that must be out of production for it; none if it disturbs nothing."""
    executor: HostId
    """Whose agent carries out the steps."""
    state: OperationState = OperationState.REQUESTED
    since: Instant
    story: tuple[Chapter, ...] = ()
    reason: Reason | None = None
    """What it waits on, or why it ended."""
    after: tuple[OperationId, ...] = ()
    """Predecessors that have not ended."""
    line: str = ""
    """The book in whose line it stands at the gate; empty: in none."""
    promised: bool = False
    """The ledger counts its units as promised."""
    locked: bool = False
    """Holds its resources (of its own; a visit's operations use the visit's)."""
    asked_lock: bool = False
    leg: Leg = ""
    effect: EffectId | None = None
    tries: int = 0
    started_at: Instant | None = None
    observed: str = ""
    previous: str = ""
    """The version before, as last observed; what undo goes back to."""
    left: tuple[HostId, ...] = ()
    """Units of a wide operation that have still to be verified."""
    failure: Reason | None = None
    """Why it will end as failed once it is undone."""
    ends_as: OperationState | None = None
    """What it ends as when its present leg has: cancelled or off-boarded."""
    train: TrainName | None = None
    rollout: RolloutId | None = None
    """On trial: its version is not proven yet."""
    evict_at: Instant | None = None
    """Jobs that could not be moved by then are stopped for it, after a checkpoint, and queued again."""
    job: JobId | None = None
    """The job whose gang it belongs to, where all hosts of a job are upgraded together."""

    def key(self) -> tuple[int, int]:
        return (self.aged_at, self.sequence)

    def is_live(self) -> bool:
        return self.state in _LIVE

    def promised_units(self) -> tuple[HostId, ...]:
        """What it was promised and has not given back: of a wide one that was carried out, units go back one by one."""
        if not self.promised:
            return ()
        return self.left if self.state is OperationState.VERIFYING and self.is_wide() else self.units

    def is_wide(self) -> bool:
        """It needs units out, and is carried out for all of them at once."""
        return len(self.units) > 1 or (len(self.units) == 1 and self.units[0] != self.executor)


class EndedOperation(Value):
    """What is remembered of an operation that ended."""

    id: OperationId
    spec: OperationSpec
    state: OperationState
    reason: Reason | None
    requested_at: Instant
    started_at: Instant | None
    ended_at: Instant
    units: int
    observed: str
    train: TrainName | None
    rollout: RolloutId | None
    previous: str = ""
    story: tuple[Chapter, ...] = ()


def aged(spec: OperationSpec, now: Instant) -> Instant:
    """Its place in line: the request, later by its class, earlier if its deadline asks for it."""
    place = Instant(now + PENALTIES[spec.priority])
    if spec.deadline is not None and spec.priority is not Priority.EMERGENCY:
        place = min(place, spec.deadline)
    return place
