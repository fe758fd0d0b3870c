"""What a job measured of its saves and restarts, and what the fleet saw of failures: the state behind a choice."""

import msgspec

from trainmaster.core.base.time import Instant
from trainmaster.core.checkpoint.choice import RECENT, Choice, usual
from trainmaster.core.checkpoint.rate import History

Recent = tuple[float, ...]
"""The newest measurements in seconds, oldest first."""


class Exposure(msgspec.Struct, kw_only=True, gc=False):
    """Failures that took a host from a job, over the host time that jobs trained. Of the whole fleet."""

    failures: int = 0
    beyond_memory: int = 0
    """Of them, those that took several hosts, or the whole attempt, and with them a snapshot and its copy."""
    host_time: int = 0

    def history(self) -> History:
        return History(failures=self.failures, host_time=self.host_time)


class Pacing(msgspec.Struct, kw_only=True):
    """How often a job saves, and from what that follows. Mutable, private to the engine."""

    stalls_s: Recent = ()
    lags_s: Recent = ()
    """Of saves from snapshots; none while the ranks write them."""
    steps_s: Recent = ()
    """Mean time of a step between two saves."""
    restarts_s: Recent = ()
    """From a failure to the first step after it."""
    failures: int = 0
    """That threw the job back and left it all its hosts."""
    trained: int = 0
    """Time that it trained, in microseconds."""
    counted_at: Instant | None = None
    """Until when that is counted; None while it does not train."""
    marked_at: Instant | None = None
    marked_step: int = 0
    """Where the present stretch of steps began."""
    every_steps: int = 0
    """What the ranks are told; 0: nothing."""
    choice: Choice | None = None
    chosen_at: Instant | None = None

    def step_s(self) -> float | None:
        return usual(self.steps_s)

    def stall_s(self) -> float | None:
        return usual(self.stalls_s)

    def lag_s(self) -> float:
        return usual(self.lags_s) or 0.0

    def restart_s(self) -> float | None:
        return usual(self.restarts_s)


def added(measured: Recent, value: float) -> Recent:
    """With one more; the oldest goes where there are enough. What is no duration (clocks jump) is left out."""
    return (*measured[-(RECENT - 1) :], value) if value > 0 else measured
