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

_CLEARLY: Final = 4.0
"""Least differences: so far apart they are surely the thing that is measured."""


class Limits(Value):
    """When a difference counts."""

    effect: float = 1.5
    """Ratio to the usual cost."""
    deviations: float = 5.0
    least_spread: float = 0.05
    """Of the logarithm, so about 5 %: no set is taken to be steadier than that."""
    least_samples: int = 3
    """Of a pair in a round."""
    least_difference: float = 0.0
    """In the unit of the costs: what is below it is not the thing that is measured (the scheduler, say)."""
    most_hidden: float = 3.0
    """Ratio. If by deviations somebody has to be slower than that to stand out, nobody was seen to be well."""


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
        return max(self.centre * self._factor(limits), self.centre + limits.least_difference)

    def is_worse(self, cost: float, limits: Limits) -> bool:
        return cost > self.bound(limits)

    def is_better(self, cost: float, limits: Limits) -> bool:
        """So much better that the others are the ones to be explained. Twice as far away as the bound for worse, since
        near neighbours are a little faster everywhere."""
        return cost * self._factor(limits) ** 2 < self.centre

    def is_unsteady(self, limits: Limits) -> bool:
        """The peers differ so much that a slow one may be hidden among them."""
        hides = math.exp(limits.deviations * self.spread)
        return hides > limits.most_hidden and self.centre * (hides - 1.0) > _CLEARLY * limits.least_difference

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
