"""What a job asks for: the content of a job file, as a value."""

from typing import Literal

from trainmaster.core.base.time import HOUR, MINUTE, Duration
from trainmaster.core.base.value import Value

OnDrain = Literal["move", "finish"]
"""What a planned drain of one of its hosts does to a job: *move* to a spare after a checkpoint, or let it *finish*."""


class CheckpointPolicy(Value):
    directory: str = ""
    """Absolute path, shared by all hosts; empty: a directory below the job's own."""
    every_steps: int = 0
    """0: only when asked for and at the end."""
    keep: int = 2
    """Published checkpoints that retention keeps; at least 1."""


class RestartBudget(Value):
    max_restarts: int = 3
    """Unplanned restarts through the job's own fault (a worker failed) within `window`."""
    window: Duration = HOUR
    same_failure_limit: int = 3
    """A start that fails this many times in a row with the same signature is a fault of the job: stop."""


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
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    restart: RestartBudget = RestartBudget()
    on_drain: OnDrain = "move"
    yield_deadline: Duration = MINUTE
    """How long a job may take from the request to leave until all its ranks have left with a checkpoint."""
