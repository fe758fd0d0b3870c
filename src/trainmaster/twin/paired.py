"""Is a difference larger than noise? Two worlds under the same seeds, compared seed by seed.

Both worlds of a pair have the same failures and the same draws as far as their histories agree, so most of the chance
cancels in the difference, and far fewer seeds are needed than for two independent samples. Of each figure there is one
difference a seed; a paired t test (Student 1908) asks whether their mean could be zero. It takes the differences for
roughly normal, which matters little for a mean of several, and it is stated with the result. A sign test would assume
less, but cannot call anything significant with fewer than six seeds.

Many figures are tested at once, and one in twenty would look different by chance alone, so the levels are those of Holm
(1979): the chance that even one of the figures that are called different is not, is at most `LEVEL`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import fmean, stdev
from typing import Final, Literal

from trainmaster.core.base.value import Value

LEVEL: Final = 0.05
TEST: Final = f"paired t test, {LEVEL:.0%} over all figures together (Holm)"

Verdict = Literal["more", "less", "noise", "equal", "unknown"]


class Compared(Value):
    """A figure of two worlds, A and B, over all seeds."""

    figure: str
    a: float
    """Mean."""
    b: float
    difference: float
    """Mean of B minus A."""
    spread: float
    """Standard deviation of the differences; 0 with one seed."""
    low: float
    """95 % interval of the mean difference; as the difference itself with one seed."""
    high: float
    p: float
    """Chance of such a mean, or a larger one, if there were no difference; 1 with one seed."""
    verdict: Verdict
    """B has more or less of it; noise; equal in all seeds; unknown, with one seed."""


def compare(a: Sequence[Mapping[str, float]], b: Sequence[Mapping[str, float]]) -> tuple[Compared, ...]:
    """Figures of both worlds, one row a seed, in the same order of seeds."""
    assert len(a) == len(b) > 0, (len(a), len(b))
    names = _ordered(dict.fromkeys(name for row in (*a, *b) for name in row))
    rows = [_row(name, [one.get(name, 0.0) for one in a], [one.get(name, 0.0) for one in b]) for name in names]
    return tuple(_judged(rows))


def _ordered(names: Iterable[str]) -> list[str]:
    """With the parts of a figure (`NAME: PART`) behind it, also those that only later rows have."""
    places: dict[str, int] = {}
    for name in names:
        places.setdefault(name.partition(":")[0], len(places))
    return sorted(names, key=lambda name: places[name.partition(":")[0]])


def _row(name: str, a: Sequence[float], b: Sequence[float]) -> Compared:
    differences = [y - x for x, y in zip(a, b, strict=True)]
    mean, count = fmean(differences), len(differences)
    spread = stdev(differences) if count > 1 else 0.0
    error = spread / math.sqrt(count)
    reach = t_quantile(1 - LEVEL / 2, count - 1) * error if count > 1 else 0.0
    verdict: Verdict = "equal" if not any(differences) else "unknown" if count == 1 else "noise"
    p = 1.0
    if verdict == "noise":
        p = t_test(mean / error, count - 1) if error > 1e-12 * abs(mean) else 0.0
    return Compared(
        figure=name,
        a=fmean(a),
        b=fmean(b),
        difference=mean,
        spread=spread,
        low=mean - reach,
        high=mean + reach,
        p=p,
        verdict=verdict,
    )


def _judged(rows: Sequence[Compared]) -> list[Compared]:
    """Holm: the smallest p must be below LEVEL / m, the next below LEVEL / (m - 1), and so on."""
    tested = sorted((row for row in rows if row.verdict == "noise"), key=lambda row: row.p)
    verdicts: dict[str, Verdict] = {}
    for place, row in enumerate(tested):
        if row.p > LEVEL / (len(tested) - place):
            break
        verdicts[row.figure] = "more" if row.difference > 0 else "less"
    return [row.but(verdict=verdicts.get(row.figure, row.verdict)) for row in rows]


def t_test(t: float, freedom: int) -> float:
    """Chance of |T| at least |t| under Student's law with so many degrees of freedom."""
    assert freedom > 0, freedom
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@cache
def t_quantile(part: float, freedom: int) -> float:
    """The value that T does not exceed with this probability, from 0.5 on. By bisection."""
    assert 0.5 <= part < 1, part
    low, high = 0.0, 1.0
    while 1 - t_test(high, freedom) / 2 < part:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if 1 - t_test(middle, freedom) / 2 < part:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22), evaluated from the front."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    numerator, denominator, value = 1.0, 0.0, 1.0
    for term in range(200):
        half = term // 2
        if term == 0:
            factor = 1.0
        elif term % 2 == 0:
            factor = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            factor = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        denominator = 1.0 / _away_from_zero(1.0 + factor * denominator)
        numerator = _away_from_zero(1.0 + factor / numerator)
        value *= numerator * denominator
        if term and abs(numerator * denominator - 1.0) < 1e-15:
            break
    return front * (value - 1.0)


def _away_from_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
