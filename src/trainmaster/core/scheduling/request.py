"""What a job asks for: the content of a job file, as a value."""

from typing import Literal

from trainmaster.core.base.time import HOUR, MINUTE, Duration, Instant, in_seconds
from trainmaster.core.base.value import Value

OnDrain = Literal["move", "finish"]
"""What a planned drain of one of its hosts does to a job: *move* to a spare after a checkpoint, or let it *finish*."""


class CheckpointPolicy(Value):
    directory: str = ""
    """Absolute path, shared by all hosts; empty: a directory below the job's own."""
    every_steps: int = 0
    """0: only when asked for and at the end."""
    auto: bool = False
    """How often is chosen while the job runs, so that least time is wasted; `every_steps` is then 0."""
    snapshot_every_steps: int = 1
    """Snapshots in the memory of the hosts, for jobs that use our session; 0: none. A snapshot is copied while the next
    step computes, so every step is the default: it costs next to nothing and loses the least. It takes three times the
    memory of the state; where that is not free the job says so and does without."""
    replicate_every_steps: int = 1
    """Snapshots that are copied to another host as well; 0: none, and then the loss of a host goes back to storage. The
    next snapshot waits for the copy, so it takes no more of the network than there is."""
    room_wait_s: int = 600
    """How long the ranks stay, with their state in memory, where the last save finds no room; tried again meanwhile."""
    keep: int = 2
    """Published checkpoints that retention keeps; at least 1."""


class RestartBudget(Value):
    max_restarts: int = 3
    """Unplanned restarts through the job's own fault (a worker failed) within `window`."""
    window: Duration = HOUR
    same_failure_limit: int = 3
    """A start that fails this many times in a row with the same signature is a fault of the job: stop."""
    standby: bool = False
    """Workers are started ahead on members and spares, up to where a rank is needed. The script must use `tm.run`."""


class ChecksPolicy(Value):
    """What a job that uses our session checks of itself."""

    agreement_every_steps: int | None = None
    """Steps between two comparisons of data-parallel replicas; 0: none; None: as often as is next to free."""


class HangPolicy(Value):
    """What is done about a job that stands still although all its processes live; see `core/diagnosis/pace.py`."""

    recover: bool = True
    """End the ranks that hang, and go on; else they are only named."""
    bound: Duration | None = None
    """A step that takes longer is a hang; None: by the job's own steps."""

    def told_s(self) -> float:
        """The bound in seconds; 0: none is stated."""
        return in_seconds(self.bound) if self.bound is not None else 0.0


class MaintenanceContract(Value):
    """What the job asks of planned maintenance. It delays it; emergencies and failures do not read it."""

    notice: Duration = Duration(0)
    """From being told until its hosts may drain."""
    checkpoint_wait: Duration = Duration(0)
    """How long after the notice its next checkpoint may be waited for."""
    protected_until: Instant | None = None
    """Planned work does not touch its hosts before."""
    expected_duration: Duration | None = None
    """From its placement to its end, as far as the asker knows."""
    wait_for_end: Duration = Duration(0)
    """It is let to its end if that is no farther away."""


class JobSpec(Value):
    name: str
    command: tuple[str, ...]
    hosts: int
    ranks_per_host: int = 1
    spares: int = 0
    priority: int = 0
    """Higher goes first; -1000 to 1000."""
    environment: dict[str, str] = {}
    workdir: str = ""
    preload: tuple[str, ...] = ()
    """Modules that a warm process imports ahead; workers are then forked from it. Needs a Python command."""
    preload_needed: bool = True
    """It imports ahead also what the command is seen to need, of PyTorch and of our training library."""
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    restart: RestartBudget = RestartBudget()
    checks: ChecksPolicy = ChecksPolicy()
    hangs: HangPolicy = HangPolicy()
    contract: MaintenanceContract = MaintenanceContract()
    on_drain: OnDrain = "move"
    yield_deadline: Duration = MINUTE
    """How long a job may take from the request to leave until all its ranks have left with a checkpoint."""
