"""How often hosts fail a job, from a history that is short.

A job must choose an interval on its first day, when it has seen no failure or two. Failures over host-days are taken as
Poisson. What is known beforehand is a mixture of gamma laws, each as firm as two failures: the published rate, and with
less and less belief rates that are 4, 16, ... times as high (a fleet in its first months, a bad batch, a trial with
kills) or a fourth of it. Each law learns by itself (failures and host-days are added to its own), their weights follow
how well each foretold the history, and the estimate is the mean of all: the mean, since what failures cost is linear in
their rate. So the empty history gives the published rate, ten failures leave little of it, and three that come a
thousand times too fast are believed.

The published rates (per 1,000 days of a host with eight GPUs): 2.34 and 6.50 for the two clusters of Meta's reliability
paper (2025), 3.79 for the 419 interruptions of Llama 3's 54 days on 2,048 hosts, 4.2 for InfiniteHBD's 400 servers.
Their geometric mean is 3.9. A fleet in its first months has 15 and more.

Rejected: the plain quotient, which knows nothing before the first failure and believes the first one too much; a single
gamma law, which a small fleet can't move, since 500 host-days are a year of it; the law of the gaps (Weibull), which
twenty failures can't tell from an exponential. Limit: a history is taken whole, so a fleet that gets better or worse is
followed slowly.
"""

import math
from typing import Final, Literal

from trainmaster.core.base.time import DAY
from trainmaster.core.base.value import Value

PUBLISHED_PER_THOUSAND_HOST_DAYS: Final = 4.0
_SHAPE: Final = 2.0
_FACTORS: Final = tuple(4.0**power for power in range(-1, 9))
_BELIEFS: Final = tuple(16.0 ** -abs(power) for power in range(-1, 9))
_MEAN_FACTOR: Final = sum(a * b for a, b in zip(_FACTORS, _BELIEFS, strict=True)) / sum(_BELIEFS)
_HOST_DAYS: Final = _SHAPE * _MEAN_FACTOR / PUBLISHED_PER_THOUSAND_HOST_DAYS * 1000
"""Of the law with factor 1; the mean of all is then the published rate."""
MEASURED_AT: Final = 10
"""Failures from which on the history decides alone, for all that people care about."""


class History(Value):
    """What was seen: failures that threw a job back, and the host time in which they could happen."""

    failures: int = 0
    host_time: int = 0
    """Microseconds, summed over hosts."""

    @property
    def host_days(self) -> float:
        return self.host_time / DAY


class Rate(Value):
    """An estimate, and what it rests on."""

    per_host_day: float
    failures: int
    host_days: float
    source: Literal["published", "mixed", "measured", "given"]

    def per_s(self, hosts: int) -> float:
        """Of a job on so many hosts, of which it needs each one."""
        assert hosts > 0, hosts
        return self.per_host_day * hosts / 86_400


def estimate(history: History) -> Rate:
    """The rate to go by after a history."""
    failures, host_days = history.failures, history.host_days
    assert failures >= 0, history
    assert host_days >= 0, history
    scores: list[float] = []
    rates: list[float] = []
    for factor, belief in zip(_FACTORS, _BELIEFS, strict=True):
        known = _HOST_DAYS / factor
        # the chance of so many failures under this law (negative binomial), without what is the same for all
        scores.append(
            math.log(belief) - _SHAPE * math.log1p(host_days / known) - failures * math.log(known + host_days)
        )
        rates.append((_SHAPE + failures) / (known + host_days))
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    rate = sum(weight * each for weight, each in zip(weights, rates, strict=True)) / sum(weights)
    source: Literal["published", "mixed", "measured"] = "measured" if failures >= MEASURED_AT else "mixed"
    if failures == 0 and host_days * rate < 0.1:
        source = "published"
    return Rate(per_host_day=rate, failures=failures, host_days=host_days, source=source)
