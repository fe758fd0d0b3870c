"""What is usual among peers, and what is worse than that.

The usual cost is the lower median, the spread is the median absolute deviation, both of logarithms. Why not mean and
standard deviation: the host that is looked for moves both, and of n values none is farther from the mean than
(n - 1) / sqrt(n) deviations, so "three sigma" finds nothing among ten peers, however slow one is. A median stays where
it is until half of the values are bad. Logarithms, because speeds are compared by ratio: half as fast is as far away as
twice as fast, on every network.

A value is worse only if it is so by both measures: by the *effect*, a ratio that somebody would care about, and by
*deviations*, so that a set that is noisy by itself blames nobody. Among healthy hosts there is always a slowest one;
the effect is what protects it where all are nearly equal, for there ten deviations may be one per cent.
"""

import math
from collections.abc import Iterable
from typing import Final

from trainmaster.core.base.value import Value

_NORMAL: Final = 1.4826
"""Standard deviations in a median absolute deviation, of a normal distribution."""


class Limits(Value):
    """When a difference counts."""

    effect: float = 1.5
    """Ratio to the usual cost."""
    deviations: float = 5.0
    least_spread: float = 0.05
    """Of the logarithm, so about 5 %: no set is taken to be steadier than that."""
    least_samples: int = 3
    """Of a pair in a round."""
    most_spread: float = 0.22
    """Above it the peers differ so much that being three times as slow would not stand out."""


class Level(Value):
    """Of positive costs."""

    centre: float
    spread: float
    """Robust standard deviation of the logarithm; about the relative one, if small."""
    count: int

    def ratio(self, cost: float) -> float:
        return cost / self.centre

    def bound(self, limits: Limits) -> float:
        """Costs above it are worse than usual."""
        return self.centre * self._factor(limits)

    def is_worse(self, cost: float, limits: Limits) -> bool:
        return cost > self.bound(limits)

    def is_better(self, cost: float, limits: Limits) -> bool:
        """So much better that the others are the ones to be explained. Twice as far away as the bound for worse, since
        near neighbours are a little faster everywhere."""
        return cost * self._factor(limits) ** 2 < self.centre

    def _factor(self, limits: Limits) -> float:
        return max(limits.effect, math.exp(limits.deviations * max(self.spread, limits.least_spread)))


def level_of(costs: Iterable[float]) -> Level:
    """Of at least one cost; all positive and finite. Of an even number the lower middle one counts: costs have a floor,
    what lies above it is trouble."""
    logs = sorted(map(math.log, costs))
    assert logs, "no peers, no level"
    middle = logs[(len(logs) - 1) // 2]
    distances = sorted(abs(each - middle) for each in logs)
    return Level(centre=math.exp(middle), spread=_NORMAL * distances[(len(distances) - 1) // 2], count=len(logs))
