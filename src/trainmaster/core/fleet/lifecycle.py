"""The life of a host.

A host is *expected* until its agent registers, *verifying* until it has proved that it works, *ready* when work may be
placed on it. A drain makes it *draining* (nothing new; what runs is moved or ends) and then *out-planned*; a loss makes
it *out-failed*. Both ways back lead through verification. Allocation (which attempt uses it) and holds stand beside the
state: a host is free for work when it is ready, connected, without holds and without an allocation.

Every state in which somebody is waited for has a deadline; past it the host counts as failed. What is unknown is never
ready: a host whose agent is gone keeps its state only for a short grace, since agents restart faster than hosts do.
"""

from typing import Final

import msgspec

from trainmaster.core.base.ids import AttemptId, BootId, ComponentName, HostId, Owner, SessionId
from trainmaster.core.base.machine import Chapter, Machine, State
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import HOUR, MINUTE, Duration, Instant, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import HostSpec


class HostState(State):
    EXPECTED = "expected"
    VERIFYING = "verifying"
    READY = "ready"
    DRAINING = "draining"
    OUT_PLANNED = "out-planned"
    OUT_FAILED = "out-failed"


HOST_MACHINE: Final = Machine(
    "host",
    HostState.EXPECTED,
    [
        (HostState.EXPECTED, HostState.VERIFYING, "agent registered"),
        (HostState.EXPECTED, HostState.OUT_FAILED, "never came"),
        (HostState.VERIFYING, HostState.READY, "verification passed"),
        (HostState.VERIFYING, HostState.OUT_PLANNED, "verification passed, but held"),
        (HostState.VERIFYING, HostState.OUT_FAILED, "verification failed, or host lost"),
        (HostState.READY, HostState.DRAINING, "drain requested"),
        (HostState.READY, HostState.OUT_FAILED, "host lost"),
        (HostState.DRAINING, HostState.READY, "drain withdrawn"),
        (HostState.DRAINING, HostState.OUT_PLANNED, "nothing runs on it any more"),
        (HostState.DRAINING, HostState.OUT_FAILED, "host lost"),
        (HostState.OUT_PLANNED, HostState.VERIFYING, "last hold lifted"),
        (HostState.OUT_PLANNED, HostState.OUT_FAILED, "maintenance took too long"),
        (HostState.OUT_FAILED, HostState.VERIFYING, "agent registered, or resume asked"),
    ],
)

RECONNECT_GRACE: Final = seconds(5)
"""How long an agent may be away before its host is lost. An agent restarts in about half a second; peers of a dead host
confirm its death at once through their broken connections, so jobs rarely wait for this."""

RESTART_GRACE: Final = seconds(15)
"""The same after a restart of the server: all agents come back at once, and none of them is at fault."""

DEADLINES: Final[dict[HostState, Duration]] = {
    HostState.EXPECTED: Duration(15 * MINUTE),
    HostState.VERIFYING: Duration(2 * MINUTE),
    HostState.DRAINING: Duration(24 * HOUR),
    HostState.OUT_PLANNED: Duration(7 * 24 * HOUR),
}
"""Draining has a long one: a job that may finish first decides how long it takes; a request may set a shorter one."""

DEMANDED_DEADLINE: Final = HOUR
"""For a verification with tasks that the last work demands: a deep check runs all GPUs under load."""

CLEAN_DEADLINE: Final = seconds(120)
"""From the moment an attempt lets go of a host until nothing of it is left there. Killing takes milliseconds; a process
that hangs in the kernel takes for ever, and the host with it."""

VERIFICATION_TASKS: Final = ("memory", "disk", "shared-memory", "loopback", "python", "jobs-dir")


class Hold(Value):
    """A reason why a host may not take work. A host has a set of them, one an owner; each owner lifts only its own."""

    owner: Owner
    reason: str
    since: Instant
    evict_at: Instant | None = None
    """When what still runs on the host is stopped; None: this owner can wait."""


class Host(msgspec.Struct, kw_only=True, gc=False):
    """State of a host. Mutable, private to the engine."""

    spec: HostSpec
    position: int
    """Place in the order of declaration; hosts are taken in this order."""
    state: HostState = HostState.EXPECTED
    since: Instant
    story: tuple[Chapter, ...] = ()
    reason: Reason
    boot: BootId = BootId("")
    session: SessionId = SessionId("")
    address: str = ""
    connected: bool = False
    gone_at: Instant | None = None
    """When the agent's connection closed; None while it is connected, and when the server itself was away: then not
    being connected says nothing about the host."""
    verified: bool = False
    """The verification of this boot has passed; what remains is to be clean of older attempts."""
    holds: tuple[Hold, ...] = ()
    allocation: AttemptId | None = None
    role: str = ""
    """member or spare of the allocation; stopping or releasing when the attempt has let go but it is not clean yet."""
    versions: dict[ComponentName, str] = {}
    """What was last observed of its components."""
    stack: str = ""
    """Versions of the components that must agree over the hosts of an attempt, as one word; equal words agree."""
    demands: tuple[str, ...] = ()
    """Verification tasks beside the usual ones that its last work demands before it returns."""
    evict_at: Instant | None = None
    """The earliest eviction that a hold asks for: when what still runs here is stopped."""
    at_fault: bool = False
    """It was taken out because it is bad: it counts as failed, whoever holds it, until it is in service again."""

    @property
    def id(self) -> HostId:
        return self.spec.id

    def is_usable(self) -> bool:
        """A job may keep running here, and a spare may be called up."""
        return self.state is HostState.READY and self.connected and not self.holds

    def is_free(self) -> bool:
        return self.allocation is None and self.is_usable() and self.spec.kind == "compute"

    def is_gone(self) -> bool:
        """Lost, or its agent's connection was seen to close: not to be counted on right now."""
        return self.state is HostState.OUT_FAILED or self.gone_at is not None

    def is_unheard(self) -> bool:
        """The server restarted and the agent has not come back yet: it is neither here nor gone."""
        return not self.connected and not self.is_gone()

    def hold_of(self, owner: Owner) -> Hold | None:
        return next((hold for hold in self.holds if hold.owner == owner), None)
