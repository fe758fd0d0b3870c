"""How long a step may take before somebody is asked why, and before something is done about it. The one policy of
progress: the watch names by it, the engine restarts by it, and views tell by it.

    bound = max(3 s, 5 x the median of the last steps, 2 x the longest of them)
    patience = max(30 s, 2 x bound), four times as long after each restart that it led to

Beyond the bound a stop is *named*. Beyond the patience a stop that might yet end by itself (a rank in code of its own,
a collective that all have joined) is *ended*: a pause that nobody announced is no hang, and a restart costs more than
to wait for it. If it comes again after the restart, it may be what this job does: hence the four times. What can't end
by itself, a process that is stopped or ranks that went apart, needs no patience. A job file may state the bound; then
that is the patience as well.

The median follows the job's pace, the longest its habits. A step beyond five medians was a stop and teaches nothing,
until it has come `HABIT` times: then it is what this job does every so often. Steps in which a rank was in a phase that
takes long by nature (start, save, evaluation, compilation) teach nothing, and have the bound `PHASE_S`. A job without
three steps behind it has no pace yet, and the same bound.

The promise that follows from it: a rank that stops is named within twice the bound, because heartbeats come each second
and the bound is at least three. A fixed time-out of the collectives is ten to thirty minutes for the same.

A *change of pace* is no stop: when the last steps take half again as long as the ones before them, it is asked who
arrives late.
"""

from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.diagnosis.tables import median

LEAST_S: Final = 3.0
MEDIANS: Final = 5.0
LONGEST: Final = 2.0
PHASE_S: Final = 600.0
STEPS_LEAST: Final = 3
KEPT: Final = 64
HABIT: Final = 3
SLOWER: Final = 1.5
RECENT: Final = 2
"""Steps that must be slower before anybody asks."""
PATIENCE_LEAST_S: Final = 30.0
PATIENCE_BOUNDS: Final = 2.0
PATIENCE_GROWS: Final = 4.0


class Bound(Value):
    """What a step may take."""

    bound_s: float
    steps: int
    """That it was learnt from."""
    median_s: float = 0.0
    longest_s: float = 0.0
    told: bool = False
    """The job file says so."""

    def patience_s(self, restarts: int = 0) -> float:
        """How long a stop may last that could yet end by itself. `restarts`: those that it has led to before."""
        assert restarts >= 0
        if self.told:
            return self.bound_s
        least_s = self.bound_s if self.steps < STEPS_LEAST else max(PATIENCE_LEAST_S, PATIENCE_BOUNDS * self.bound_s)
        return least_s * PATIENCE_GROWS**restarts

    def sentence(self) -> str:
        if self.told:
            return f"a step may take {self.bound_s:g} s, as the job file says"
        if self.steps < STEPS_LEAST:
            return f"no pace is known yet ({self.steps} steps); the bound is {self.bound_s:g} s"
        return (
            f"a step may take {self.bound_s:.2f} s (the largest of {LEAST_S:g} s, {MEDIANS:g} times the median of "
            f"{self.median_s:.3f} s, {LONGEST:g} times the longest of {self.longest_s:.3f} s; {self.steps} steps)"
        )


def bound(steps_s: Sequence[float], told_s: float = 0.0) -> Bound:
    """The bound that these steps teach, oldest first. `told_s`: the one that the job file states; 0: none."""
    found = _learnt(steps_s)
    return found.but(bound_s=told_s, told=True) if told_s > 0 else found


def _learnt(steps_s: Sequence[float]) -> Bound:
    recent = list(steps_s)[-KEPT:]
    if len(recent) < STEPS_LEAST:
        return Bound(bound_s=PHASE_S, steps=len(recent))
    middle = median(recent)
    odd = [step_s for step_s in recent if step_s > MEDIANS * middle]
    longest = max(recent if len(odd) >= HABIT else [step_s for step_s in recent if step_s <= MEDIANS * middle])
    return Bound(
        bound_s=max(LEAST_S, MEDIANS * middle, LONGEST * longest), steps=len(recent), median_s=middle, longest_s=longest
    )


def slowed(steps_s: Sequence[float]) -> bool:
    """Whether each of the last steps took half again as long as those before them took."""
    recent, before = list(steps_s)[-RECENT:], list(steps_s)[:-RECENT][-KEPT:]
    if len(before) < STEPS_LEAST or len(recent) < RECENT:
        return False
    return min(recent) > SLOWER * median(before)


class Pace:
    """What is known of the steps of one epoch of a job, from heartbeats. Mutable."""

    def __init__(self) -> None:
        self.steps_s: list[float] = []
        self.seen = 0
        """Steps since the first that was told."""
        self.step = -1
        """The newest that was told."""
        self._step_at = 0

    def see(self, step: int, step_at_us: int, quiet: bool) -> None:
        """A step that was completed. `quiet`: no slow phase since the last one; else it teaches nothing."""
        if step <= self.step or step <= 0:
            return
        taken = (step_at_us - self._step_at) / 1e6 / (step - self.step)
        self.seen += step - self.step if self.step > 0 else 0
        if self.step > 0 and quiet and taken > 0:
            self.steps_s = [*self.steps_s, taken][-KEPT:]
        self.step, self._step_at = step, step_at_us

    def bound(self, told_s: float = 0.0) -> Bound:
        """See `bound`."""
        return bound(self.steps_s, told_s)
