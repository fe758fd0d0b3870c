"""Laws of chance for a simulated fleet: how long things take, when they break, what breaks.

A law of durations is its quantile function: which length is not exceeded with probability u. A draw takes one uniform
number and looks it up (inversion; Devroye, Non-Uniform Random Variate Generation, 1986, II.2). That is not the fastest
way for every law, but one draw costs one number for all of them, so two worlds with the same seed stay in step, and a
law with longer durations gives a longer one at each draw: comparing two policies in pairs needs both. Rejection was
left out because it takes a number of numbers that depends on them.

Durations are rounded to microseconds before they decide anything, which also takes care of the last bits in which the
logarithms of two machines may differ. Streams are split by purpose and entity (`Purpose`), so one more host, or one
more draw, changes nothing elsewhere. All of it needs nothing but `core.base.seed.Stream`.
"""

import math
import struct
from bisect import bisect_right
from collections.abc import Iterable
from hashlib import blake2b
from itertools import accumulate
from statistics import NormalDist
from typing import Final, Generic, Protocol, TypeVar

from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import HOUR, Duration, Instant
from trainmaster.core.base.value import Value

T = TypeVar("T")

_DAY: Final = 24 * HOUR
_NORMAL: Final = NormalDist()
_NORMAL_P90: Final = _NORMAL.inv_cdf(0.9)


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


class Quantiles(Protocol):
    """What each law of durations tells."""

    def quantile(self, u: float) -> Duration:
        """The duration that is not exceeded with probability `u`, from 0 (included) to 1 (excluded)."""
        ...


class _Law(Value, tag_field="law"):
    """Base of the laws of durations, which have `Quantiles`."""

    def draw(self: Quantiles, stream: Stream) -> Duration:
        """A duration of chance. Takes one number of the stream."""
        return self.quantile(stream.uniform())

    def draws(self: Quantiles, stream: Stream, count: int) -> list[Duration]:
        """The same durations as `count` draws, about twice as fast for large counts."""
        quantile = self.quantile
        return [quantile((word >> 11) * 2.0**-53) for word in words(stream, count)]


class Fixed(_Law, tag="fixed"):
    """Always the same."""

    length: Duration

    def __post_init__(self) -> None:
        _check(self.length >= 0, "length must not be negative")

    def quantile(self, u: float) -> Duration:
        return self.length


class Uniform(_Law, tag="uniform"):
    """Every whole number of microseconds from `low` to `high`, both included."""

    low: Duration
    high: Duration

    def __post_init__(self) -> None:
        _check(0 <= self.low <= self.high, "low must be from 0 to high")

    def quantile(self, u: float) -> Duration:
        return Duration(self.low + int(u * (self.high - self.low + 1)))


class Exponential(_Law, tag="exponential"):
    """Has no memory: F(x) = 1 - exp(-x / mean), so x = -ln(1 - u) mean."""

    mean: Duration

    def __post_init__(self) -> None:
        _check(self.mean > 0, "mean must be positive")

    def quantile(self, u: float) -> Duration:
        return Duration(round(-math.log1p(-u) * self.mean))


class Weibull(_Law, tag="weibull"):
    """F(x) = 1 - exp(-(x / scale)^shape), so x = scale (-ln(1 - u))^(1 / shape) (Weibull 1951).

    With a shape below 1, what has lasted long will last longer; with 1 it is exponential; above, it wears out.
    """

    shape: float
    scale: Duration

    def __post_init__(self) -> None:
        _check(self.shape > 0 and self.scale > 0, "shape and scale must be positive")

    def quantile(self, u: float) -> Duration:
        return Duration(round((-math.log1p(-u)) ** (1 / self.shape) * self.scale))

    @property
    def mean(self) -> Duration:
        """scale Gamma(1 + 1 / shape)."""
        return Duration(round(self.scale * math.gamma(1 + 1 / self.shape)))


class Lognormal(_Law, tag="lognormal"):
    """The logarithm is normal: x = median exp(sigma z(u)), where sigma = ln(p90 / median) / z(0.9).

    Given by the two figures that people know of their operations. What would be longer than `limit` takes `limit` (a
    deadline ends it), so median and 90th percentile are as given.
    """

    median: Duration
    p90: Duration
    limit: Duration

    def __post_init__(self) -> None:
        _check(0 < self.median <= self.p90 <= self.limit, "median, p90 and limit must be positive and ascend")

    def quantile(self, u: float) -> Duration:
        if u <= 0:
            return Duration(0)
        ratio = (self.p90 / self.median) ** (_NORMAL.inv_cdf(u) / _NORMAL_P90)
        return Duration(min(round(self.median * ratio), self.limit))


Law = Fixed | Uniform | Exponential | Weibull | Lognormal

REPAIR: Final = Weibull(shape=0.4505, scale=Duration(round(50.7 * HOUR)))
"""How long a broken host is away: half are back within a day, while a sixth, away for over a week, make four fifths of
all time lost. An exponential law misses both ends.

Fitted to the faults of 400 GPU servers over 348 days that were published with InfiniteHBD (584 faults; largest distance
of the distribution functions 0.064, against 0.358 for an exponential). Hours of the trace, and of this law: median
20.4, 22.5; mean 132.8, 124.6; 90th percentile 311, 323.
"""


class Poisson(Value):
    """Events that know nothing of each other, at a constant rate (gaps are exponential)."""

    mean_gap: Duration

    def __post_init__(self) -> None:
        _check(self.mean_gap > 0, "mean_gap must be positive")

    @classmethod
    def of_nodes(cls, per_thousand_node_days: float, nodes: int = 1) -> "Poisson":
        """From the rate that fleets publish: failures per 1,000 node-days; of so many nodes together."""
        assert per_thousand_node_days > 0, per_thousand_node_days
        assert nodes > 0, nodes
        return cls(mean_gap=Duration(round(1000 * _DAY / (per_thousand_node_days * nodes))))

    def following(self, stream: Stream, now: Instant) -> Instant:
        """When the next one comes: at least a microsecond after `now`, so that a world cannot stand still."""
        return Instant(now + max(1, round(stream.exponential(self.mean_gap))))


class Weighted(Generic[T]):
    """One of several items, with chances in the ratio of whole weights, such as counts from a table of causes.

    Exact, since it draws an integer below the sum and looks it up in running sums. Walker's aliases would be a tenth
    faster with 300 items, and either take two numbers or lose the last bits. Give the items in a fixed order.
    """

    __slots__ = ("_items", "_sums")

    def __init__(self, weights: Iterable[tuple[T, int]]) -> None:
        """Raises `ValueError` if a weight is negative or all are 0."""
        pairs = tuple(weights)
        _check(all(weight >= 0 for _, weight in pairs), "a weight must not be negative")
        self._items = tuple(item for item, _ in pairs)
        self._sums = tuple(accumulate(weight for _, weight in pairs))
        _check(bool(self._sums) and self._sums[-1] > 0, "at least one weight must be positive")

    def draw(self, stream: Stream) -> T:
        """One of the items; never one of weight 0."""
        return self._items[bisect_right(self._sums, stream.integer(self._sums[-1]))]


def happens(stream: Stream, probability: float) -> bool:
    """True with a probability from 0 (never) to 1 (always). Takes one number either way."""
    assert 0 <= probability <= 1, probability
    return stream.uniform() < probability


def integer_between(stream: Stream, low: int, high: int) -> int:
    """One of low .. high, both included, each equally likely."""
    assert low <= high, (low, high)
    return low + stream.integer(high - low + 1)


class Purpose:
    """The streams of one purpose, one for each entity: `Stream.of(seed, purpose, entity)` at half the cost.

    For worlds that ask for a stream for every operation and every host.
    """

    __slots__ = ("_hash",)

    def __init__(self, seed: int, purpose: str) -> None:
        self._hash = blake2b(f"{seed};{len(purpose)}:{purpose};".encode(), digest_size=8)

    def stream(self, entity: str) -> Stream:
        """The stream of an entity, from its start. A second call starts again."""
        digest = self._hash.copy()
        digest.update(f"{len(entity)}:{entity};".encode())
        return Stream(int.from_bytes(digest.digest(), "little"))


_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
_WORD: Final = (1 << 64) - 1
_LANES: Final = 256
_ONES: Final = sum(1 << (128 * lane) for lane in range(_LANES))
_LOW: Final = _ONES * _WORD
_RAMP: Final = sum(lane * _GOLDEN << (128 * lane) for lane in range(_LANES))
_UNPACK: Final = struct.Struct("<" + "Q8x" * _LANES).unpack


def words(stream: Stream, count: int) -> list[int]:
    """The next `count` words of a stream, the same as from `Stream.word`, five times as fast for large counts.

    256 words lie side by side in one long integer, 128 bits apart, so that a product of 64 by 64 bits does not reach
    its neighbour; one operation on the long integer is then 256 operations of the mix. Smaller counts go one by one.
    """
    assert count >= 0, count
    result: list[int] = []
    for _ in range(count // _LANES):
        first = (stream.key + (stream.drawn + 1) * _GOLDEN) & _WORD
        mixed = (_RAMP + _ONES * first) & _LOW
        mixed = ((mixed ^ (mixed >> 30 & _LOW)) * 0xBF58_476D_1CE4_E5B9) & _LOW
        mixed = ((mixed ^ (mixed >> 27 & _LOW)) * 0x94D0_49BB_1331_11EB) & _LOW
        mixed ^= mixed >> 31 & _LOW
        result += _UNPACK(mixed.to_bytes(16 * _LANES, "little"))
        stream.drawn += _LANES
    result.extend(stream.word() for _ in range(count % _LANES))
    return result
