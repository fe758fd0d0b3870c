"""Whether a grace period is worth anything: what became of the saves that a warning signal was to allow.

"The job is warned 300 s before it is killed" says nothing about whether a checkpoint was written in them. Three things
swallow the signal in practice: a loop that does not look for it (warm-up, evaluation), a launcher that kills at once,
and ranks that do not agree at which step to save. The record of past preemptions shows which, and what it cost.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.time import SECOND, Duration
from trainmaster.core.base.value import Value

_AT_ONCE: Final = Duration(5 * SECOND)


class Preemption(Value):
    """One warning and what followed. `grace` is the time from the warning to the kill."""

    number: int
    phase: str
    grace: Duration
    last_checkpoint_step: int
    step_at_kill: int

    def lost_steps(self) -> int:
        return self.step_at_kill - self.last_checkpoint_step


class GraceReport(Value):
    """`swallowed` counts, by phase, the warnings after which no save came; `killed_at_once` are their numbers."""

    saves: int
    preemptions: int
    lost_steps: tuple[int, ...]
    lost_steps_total: int
    swallowed: dict[str, int]
    killed_at_once: tuple[int, ...]
    sentence: str
    advice: tuple[str, ...]


def report(preemptions: Sequence[Preemption], saved: frozenset[int] = frozenset()) -> GraceReport:
    """What came of the warnings. `saved` are the numbers of those after which a checkpoint was published in time."""
    assert saved <= {each.number for each in preemptions}
    lost = tuple(each.lost_steps() for each in preemptions)
    assert all(steps >= 0 for steps in lost)
    missed = [each for each in preemptions if each.number not in saved]
    at_once = tuple(each.number for each in missed if each.grace <= _AT_ONCE)
    swallowed = Counter(each.phase for each in missed if each.grace > _AT_ONCE)
    total = sum(lost)
    return GraceReport(
        saves=len(saved),
        preemptions=len(preemptions),
        lost_steps=lost,
        lost_steps_total=total,
        swallowed=dict(sorted(swallowed.items())),
        killed_at_once=at_once,
        sentence=f"{len(saved)} of {len(preemptions)} warnings led to a save; {total} steps were lost",
        advice=_advice(swallowed, at_once),
    )


def _advice(swallowed: Counter[str], at_once: tuple[int, ...]) -> tuple[str, ...]:
    advice = []
    if swallowed:
        phases = " and ".join(sorted(swallowed))
        advice.append(f"look for the request in every loop ({phases} did not), and let all ranks agree on one step")
    if at_once:
        numbers = ", ".join(str(number) for number in at_once)
        advice.append(
            f"remove what kills at once (no. {numbers}): a trap with kill -9 in the batch script, or a launcher"
        )
    return tuple(advice)
