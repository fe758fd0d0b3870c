"""A visit: the time that a unit is out of production for maintenance.

One drain, any number of operations one after the other, at most one reboot, one verification. A visit is opened by the
first admitted operation that needs the unit out. Others join it, whenever they come before the unit is back, so the
unit is handed over from one to the next without going back to production in between. Operations of the unit itself
stand in `pending`, in the order of the catalogue; `wide` are those that need it out together with others (a rack, a
power row).

    noticed    the jobs on the unit were told; it drains at the moment that costs them least
    draining   it leaves production
    out        nothing runs; it waits for locks, for other units of a wide operation, or for what is next
    applying   one operation after the other is carried out
    rebooting  once, for all that asked for it
    checking   what was applied before the reboot is observed after it
    returning  it proves that it works

The visit holds the unit's lock from the first operation to the last check. A unit that is lost meanwhile ends the
visit: what was not started goes back to the gate and waits for the repair.
"""

from typing import Final

import msgspec

from trainmaster.core.base.ids import EffectId, HostId, OperationId, Owner, TrainName
from trainmaster.core.base.machine import Chapter, Machine, State
from trainmaster.core.base.time import Instant

MAINTENANCE: Final = Owner("policy:maintenance")
UNDONE: Final = "policy:undo/"
"""Begins the owner of a hold on a unit on which an undo failed; the operation follows. A person lifts it."""
VERSIONS: Final = Owner("policy:versions")
"""Holds a unit whose versions do not go together; lifted at the end of the visit that mends it."""


class VisitPhase(State):
    NOTICED = "noticed"
    DRAINING = "draining"
    OUT = "out"
    APPLYING = "applying"
    REBOOTING = "rebooting"
    CHECKING = "checking"
    RETURNING = "returning"
    CLOSED = "closed"


_P = VisitPhase

VISIT_MACHINE: Final = Machine(
    "visit",
    _P.NOTICED,
    [
        (_P.NOTICED, _P.DRAINING, "the moment has come"),
        (_P.NOTICED, _P.OUT, "it is out already"),
        (_P.DRAINING, _P.OUT, "nothing runs on it any more"),
        (_P.OUT, _P.APPLYING, "its lock is held"),
        (_P.APPLYING, _P.REBOOTING, "all is applied, and something asks for a reboot"),
        (_P.APPLYING, _P.OUT, "all is applied"),
        (_P.OUT, _P.REBOOTING, "a wide operation asks for a reboot"),
        (_P.REBOOTING, _P.CHECKING, "booted anew"),
        (_P.CHECKING, _P.OUT, "all is checked"),
        (_P.OUT, _P.RETURNING, "nobody needs it out any more"),
        (_P.RETURNING, _P.OUT, "passed, but somebody needs it out again"),
        *((phase, _P.CLOSED, "ended") for phase in (_P.NOTICED, _P.DRAINING, _P.OUT, _P.APPLYING)),
        *((phase, _P.CLOSED, "ended") for phase in (_P.REBOOTING, _P.CHECKING, _P.RETURNING)),
    ],
)


class Visit(msgspec.Struct, kw_only=True, gc=False):
    """State of a visit. Mutable, private to the engine."""

    unit: HostId
    key: tuple[int, int]
    """Its place in line for locks: the best of the operations that opened or joined it."""
    opened_at: Instant
    since: Instant
    phase: VisitPhase = VisitPhase.NOTICED
    story: tuple[Chapter, ...] = ()
    pending: tuple[OperationId, ...] = ()
    """Operations of this unit that were not started, in the order in which they will be."""
    applied: tuple[OperationId, ...] = ()
    """Carried out; they end when the unit is verified."""
    unchecked: tuple[OperationId, ...] = ()
    """Applied ones that are to be observed after the reboot."""
    wide: tuple[OperationId, ...] = ()
    """Wide operations that need this unit out and have not been carried out."""
    current: OperationId | None = None
    locked: bool = False
    asked_lock: bool = False
    unbooted: tuple[OperationId, ...] = ()
    """Applied ones that want the reboot which is still to come."""
    reboot: EffectId | None = None
    tasks: tuple[str, ...] = ()
    """Verification that the operations demand."""
    failed: tuple[str, ...] = ()
    """Components whose operation failed in this visit: what comes after them is not tried."""
    drain_from: Instant | None = None
    """From here on it drains when a checkpoint was just published."""
    drain_by: Instant | None = None
    """It drains now at the latest."""
    evict_at: Instant | None = None
    """What still runs on the unit then is stopped after a checkpoint and queued again."""
    train: TrainName | None = None
    drained_at: Instant | None = None

    @property
    def needs_reboot(self) -> bool:
        return bool(self.unbooted)

    @property
    def lock_name(self) -> str:
        return f"visit/{self.unit}"
