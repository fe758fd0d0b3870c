"""Everything that can be asked of an agent.

The order matters only by epoch: a launch of epoch e fences all earlier epochs of the attempt on that host (the agent
kills what is left of them before it starts anything), so a stop that is lost or late does no harm.
"""

from collections.abc import Iterator
from typing import Final, Literal

from trainmaster.core.base.event import Effect, GangEffect
from trainmaster.core.base.ids import AttemptId, ComponentName, HostId, JobId, OperationId
from trainmaster.core.base.time import Duration
from trainmaster.core.base.value import Value


class PrepareAttempt(GangEffect):
    """Make the host ready for an attempt: directories, and the warm process with `preload` imported. Sent to members
    and spares alike, so that a spare is warm when it is needed. Done when the keeper of the attempt runs."""

    attempt: AttemptId
    job: JobId
    job_name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    workdir: str
    preload: tuple[str, ...]
    """As the job names them."""
    checkpoint_directory: str
    checkpoint_every_steps: int
    checkpoint_keep: int
    max_restarts: int
    standby: int = 0
    """Workers to start ahead, which come as far as they can without a rank; 0: none."""
    preload_needed: bool = False
    """Import ahead also what the command is seen to need."""
    snapshot_every_steps: int = 0
    replicate_every_steps: int = 0
    room_wait_s: int = 0
    fleet: str = ""
    agreement_every_steps: int | None = None
    domains: tuple[str, ...] = ()
    """For each of `hosts`: what is likely to fail together with it. Its copies in memory should lie elsewhere."""

    def part(self, place: int) -> "PrepareAttempt":
        return self.but(hosts=(self.hosts[place],), domains=self.domains[place : place + 1])


class ReserveStore(Effect):
    """Bind a free TCP port for the rendezvous store of this epoch and keep it bound until the launch.
    Outcome `done` carries numbers["port"]."""

    attempt: AttemptId
    epoch: int


class LaunchWorkers(GangEffect):
    """Start the ranks of an epoch: `ranks` on each host, in the order of the hosts. Done when all processes run."""

    attempt: AttemptId
    epoch: int
    ranks: int
    """On each host."""
    world: int
    """Of the whole gang, as are the following."""
    master_address: str
    master_port: int
    restart_count: int
    node_rank: int = 0
    """Place in the gang of the first of `hosts`."""
    began_step: int | None = None
    """See `Job.began_step`."""

    def part(self, place: int) -> "LaunchWorkers":
        return self.but(hosts=(self.hosts[place],), node_rank=self.node_rank + place)

    @property
    def first_rank(self) -> int:
        """The lowest rank of the first of `hosts`."""
        return self.node_rank * self.ranks

    @property
    def nodes(self) -> int:
        """Hosts of the whole gang."""
        return self.world // self.ranks


class AskWorkers(GangEffect):
    """Put a request on the boards of the workers of an epoch. Done when written. *interval*: save every so many steps
    from now on; the others are answered once."""

    attempt: AttemptId
    epoch: int
    request: Literal["checkpoint", "yield", "interval"]
    every_steps: int = 0
    """Of an interval."""


class StopWorkers(GangEffect):
    """End the workers of this epoch and earlier ones: SIGTERM, then SIGKILL after `grace` (0: SIGKILL at once).
    Done when none is left in these epochs."""

    attempt: AttemptId
    epoch: int
    grace: Duration
    keep: bool = False
    """The attempt goes on: a worker that can leave its epoch without ending does that, and lives."""
    kill: tuple[int, ...] = ()
    """Ranks that are killed at once all the same: what they are in is not to be trusted."""


class ReleaseAttempt(GangEffect):
    """End everything of the attempt on this host, its keeper included, and remove its shared memory. The host is
    free for others only after this is done."""

    attempt: AttemptId


class VerifyHost(Effect):
    """Run the named verification tasks. Outcome `done` is a pass; `failed` names the first failing task in `detail`."""

    tasks: tuple[str, ...]


class StepCommand(Value):
    """One step of an operation: a command that ends by itself within its deadline. No shell: the words as they are."""

    name: str
    command: tuple[str, ...]
    deadline: Duration


class Observation(Value):
    """How to see which version of a component a unit has: the first line that the command prints."""

    component: ComponentName
    command: tuple[str, ...]
    deadline: Duration
    wanted: str
    """The version that makes the operation a success; empty: any, it is only asked."""


class RunSteps(Effect):
    """Run steps of an operation one after the other; a step that fails or passes its deadline ends the row. Then look:
    where there is an `observe`, what it shows decides (`done` if it is the wanted version), not the exit codes. Without
    one, `done` is that every step ended with 0. numbers["version"] is what was observed of numbers["component"],
    numbers["step"] the number of steps that ended well, numbers["exit_code"] that of the step that failed."""

    operation: OperationId
    leg: Literal["apply", "check", "undo"]
    steps: tuple[StepCommand, ...]
    observe: Observation | None


class RebootHost(Effect):
    """Boot the unit anew. Done when it runs under another boot id than when it was asked. `why` is left on the unit
    before it goes down, so that who looks there finds who rebooted it."""

    operation: OperationId
    why: str


AnyEffect = (
    PrepareAttempt
    | ReserveStore
    | LaunchWorkers
    | AskWorkers
    | StopWorkers
    | ReleaseAttempt
    | VerifyHost
    | RunSteps
    | RebootHost
)


_ALONE: Final = frozenset({VerifyHost, RunSteps, RebootHost})


def attempt_of(effect: AnyEffect) -> AttemptId | None:
    """The attempt that an effect concerns; None: it concerns a host alone."""
    return None if type(effect) in _ALONE else effect.attempt  # type: ignore[union-attr]


def for_host(effect: AnyEffect, host: HostId) -> AnyEffect:
    """What this host is sent: the part of the effect that is addressed to it alone, under the same id."""
    assert host in effect.hosts, f"{effect.id} is not addressed to {host}"
    return effect.part(effect.hosts.index(host)) if isinstance(effect, GangEffect) else effect


def parts(effect: AnyEffect) -> Iterator[tuple[HostId, AnyEffect]]:
    """What each host is sent."""
    for place, host in enumerate(effect.hosts):
        yield host, effect.part(place) if isinstance(effect, GangEffect) else effect
