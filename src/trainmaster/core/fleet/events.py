"""What can happen to hosts and to the agents that own them."""

from trainmaster.core.base.event import Event
from trainmaster.core.base.ids import AttemptId, BootId, ComponentName, HostId, Owner, SessionId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import HostSpec


class FleetDeclared(Event):
    """The hosts that should exist. Hosts that are known already keep their state; others start as *expected*."""

    hosts: tuple[HostSpec, ...]
    by: Owner


class AgentRegistered(Event):
    """An agent came (back). `boot` tells whether the host rebooted since; `attempts` is what still runs there."""

    host: HostId
    session: SessionId
    boot: BootId
    address: str
    """Where other hosts of an attempt reach this one (MASTER_ADDR when rank 0 runs here)."""
    attempts: tuple[tuple[AttemptId, int], ...]
    """(attempt, epoch) of whatever is left of attempts on the host: the epoch of its workers, 0 where none live and
    only a keeper is warm."""
    versions: dict[ComponentName, str] = {}
    """What the agent sees of the components that it was told to watch."""


class Reached(Value):
    """How far an epoch was on a host, by the last heartbeat. If the host is dead, nothing newer will ever be known."""

    attempt: AttemptId
    epoch: int
    step: int
    step_at: Instant


class AgentDisconnected(Event):
    """The agent's connection closed: its process ended, or its host died. Not yet a verdict on the host."""

    host: HostId
    session: SessionId
    reached: tuple[Reached, ...] = ()


class AgentSilent(Event):
    """The agent is connected but sent no heartbeat for longer than the bound."""

    host: HostId
    session: SessionId
    silent_s: float
    reached: tuple[Reached, ...] = ()


class DrainRequested(Event):
    """Take no new work on these hosts, and move or end what runs there."""

    hosts: tuple[HostId, ...]
    reason: str
    by: Owner
    deadline: Instant | None = None
    """When it is passed and `evict` is set, jobs are stopped (after a checkpoint) and requeued."""
    evict: bool = False


class ResumeRequested(Event):
    """Lift the holds of `by` on these hosts; a host without holds returns through verification."""

    hosts: tuple[HostId, ...]
    reason: str
    by: Owner
