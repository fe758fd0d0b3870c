"""A maintenance train: the cycle that visits every maintenance domain.

A train stops at one domain after the other. At a stop all that is pending on its units is applied in order, with one
drain and at most one reboot a unit; then they return. A unit that missed its stop (a job would not let it go, it was
failed, time ran out) is *carried over* to the next stops of the cycle. At the end of a cycle stands a proof: which
units were visited, when, and who was missed and why; a missed one wants a person's attention.

    resting    until the next stop is due
    waiting    the stop is due, and something forbids it: a buffer is spent, a guarantee would break
    stopping   units of the domain are on their way out, worked on, or on their way back
    ended      aborted by a person, or an emergency train that has been everywhere

Stops are spread evenly over the cycle. A train stops by itself when the ledger refuses, and goes on when it does not.
In *observe* it only writes what it would do.
"""

from enum import Enum
from typing import Final, Literal

import msgspec

from trainmaster.core.base.ids import ComponentName, HostId, Owner, TrainName
from trainmaster.core.base.machine import Chapter, Machine
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import HOUR, Duration, Instant
from trainmaster.core.base.value import Value

PROOFS_KEPT: Final = 24


class TrainSpec(Value):
    """A train as declared; the domains were built before, see `domains`."""

    name: TrainName
    domains: tuple[tuple[HostId, ...], ...]
    """In the order in which they are visited."""
    cycle: Duration
    """From one visit of a domain to the next."""
    components: tuple[ComponentName, ...] = ()
    """What it brings; empty: everything that is due."""
    stop_limit: Duration = Duration(8 * HOUR)
    """What has not begun by then is carried over."""
    evict_after: Duration | None = None
    """From the begin of a stop until jobs that could not be moved are stopped, after a checkpoint, and queued again.
    None: never; their hosts are carried over."""
    emergency: bool = False
    """Contracts of jobs are not read, stops follow each other at once, and it ends after one cycle."""
    mode: Literal["observe", "act"] = "act"
    size: int = 0
    """The most units of a domain that it was built for; 0: its domains were named one by one."""


class TrainState(Enum):
    RESTING = "resting"
    WAITING = "waiting"
    STOPPING = "stopping"
    ENDED = "ended"


_T = TrainState

TRAIN_MACHINE: Final = Machine(
    "train",
    _T.RESTING,
    [
        (_T.RESTING, _T.STOPPING, "a stop is due"),
        (_T.RESTING, _T.WAITING, "a stop is due, and something forbids it"),
        (_T.WAITING, _T.STOPPING, "nothing forbids it any more"),
        (_T.STOPPING, _T.RESTING, "the stop is over"),
        (_T.WAITING, _T.RESTING, "paused, or nothing is due any more"),
        *((state, _T.ENDED, "aborted, or done") for state in (_T.RESTING, _T.WAITING, _T.STOPPING)),
    ],
)


class Stop(msgspec.Struct, kw_only=True):
    """The present stop."""

    domain: int
    began_at: Instant
    after: int
    """The number of the last operation that was requested before it; those of earlier stops may still be ending."""
    units: tuple[HostId, ...]
    """Of the domain, and carried over."""
    open: dict[HostId, int] = {}
    """Operations that have not ended, by unit."""
    over: bool = False
    """Its time is over: nothing more begins."""
    requested: int = 0
    failed: int = 0


class MissedUnit(Value):
    unit: HostId
    reason: Reason


class CycleProof(Value):
    """What a cycle has visited."""

    number: int
    began_at: Instant
    ended_at: Instant
    units: int
    visited: int
    worked_on: int
    """Visited units that had something pending."""
    missed: tuple[MissedUnit, ...]
    longest_gap: Duration
    """The longest time between two visits of a unit, of those that were visited before."""


class Train(msgspec.Struct, kw_only=True):
    """State of a train. Mutable, private to the engine."""

    spec: TrainSpec
    by: Owner
    state: TrainState = TrainState.RESTING
    since: Instant
    story: tuple[Chapter, ...] = ()
    reason: Reason | None = None
    cycle: int = 1
    cycle_began: Instant
    next_domain: int = 0
    stop: Stop | None = None
    visited_at: dict[HostId, Instant] = {}
    """The last visit of each unit, over all cycles."""
    worked_on: int = 0
    """Units of this cycle that had something pending."""
    longest_gap: Duration = Duration(0)
    carried: dict[HostId, Reason] = {}
    """Units that missed their stop in this cycle, and why."""
    held_back: dict[ComponentName, Reason] = {}
    """Components that the last stop did not bring although they are due, since versions would not go together."""
    proofs: tuple[CycleProof, ...] = ()
    advice: tuple[str, ...] = ()
    """In observe: what the last stop would have done."""

    def units(self) -> int:
        return sum(len(domain) for domain in self.spec.domains)

    def due_at(self) -> Instant:
        """When the next stop is due: stops are spread evenly over the cycle."""
        if self.spec.emergency:
            return self.cycle_began
        return Instant(self.cycle_began + self.spec.cycle * self.next_domain // len(self.spec.domains))
