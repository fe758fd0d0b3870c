"""Laws of chance: their formulas, large samples with fixed seeds, and streams that do not depend on each other."""

import math
import statistics
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import HOUR, MINUTE, SECOND, Duration, Instant
from trainmaster.core.base.value import decode, encode
from trainmaster.twin.chance import (
    REPAIR,
    Exponential,
    Fixed,
    Law,
    Lognormal,
    Poisson,
    Purpose,
    Uniform,
    Weibull,
    Weighted,
    happens,
    integer_between,
    words,
)

COUNT = 200_000
SPREAD: tuple[Law, ...] = (
    Uniform(low=SECOND, high=MINUTE),
    Exponential(mean=HOUR),
    Weibull(shape=2.0, scale=HOUR),
    Lognormal(median=MINUTE, p90=Duration(5 * MINUTE), limit=HOUR),
    REPAIR,
)
LAWS = pytest.mark.parametrize("law", [Fixed(length=MINUTE), *SPREAD], ids=lambda law: type(law).__name__)


def hours(durations: list[Duration]) -> list[float]:
    return sorted(duration / HOUR for duration in durations)


def near(value: float, expected: float, part: float) -> bool:
    return abs(value / expected - 1) <= part


@LAWS
def test_a_law_has_a_written_form(law: Law) -> None:
    """1. A scenario can store it. 2. It comes back as the same law."""
    assert decode(encode(law), Law) == law  # type: ignore[arg-type]


@LAWS
def test_a_draw_takes_one_number_and_is_whole(law: Law) -> None:
    """1. Each draw moves the stream by one. 2. Draws in bulk are the same, as is what the stream has left."""
    one, many = Stream.of(3, "law"), Stream.of(3, "law")
    drawn = [law.draw(one) for _ in range(600)]
    assert one.drawn == 600
    assert all(type(duration) is int and duration >= 0 for duration in drawn)
    assert law.draws(many, 600) == drawn
    assert many.drawn == 600


@LAWS
def test_a_law_rises_and_survives_both_ends(law: Law) -> None:
    """1. Quantiles never fall. 2. The least and the greatest number that a stream can give have a duration."""
    points = [0.0, 2.0**-53, 0.001, 0.25, 0.5, 0.75, 0.999, 1 - 2.0**-53]
    values = [law.quantile(u) for u in points]
    assert values == sorted(values)
    assert values[0] >= 0


@pytest.mark.parametrize("law", SPREAD, ids=lambda law: type(law).__name__)
def test_a_sample_follows_its_law(law: Law) -> None:
    """1. In a large sample, the parts below the quartiles and the 90th percentile are as they should be."""
    drawn = law.draws(Stream.of(11, "sample"), COUNT)
    for u in (0.25, 0.5, 0.75, 0.9):
        part = sum(duration <= law.quantile(u) for duration in drawn) / COUNT
        assert abs(part - u) < 4 * math.sqrt(u * (1 - u) / COUNT)


def test_quantiles_known_by_hand() -> None:
    """1. Exponential: the median is ln 2 of the mean. 2. Weibull: 1 - 1/e below the scale. 3. Uniform: both ends."""
    assert Exponential(mean=HOUR).quantile(0.5) == round(math.log(2) * HOUR)
    assert Weibull(shape=0.7, scale=HOUR).quantile(1 - 1 / math.e) == HOUR
    dice = Uniform(low=Duration(1), high=Duration(6))
    assert [dice.quantile(u) for u in (0.0, 0.16, 0.17, 0.5, 0.99)] == [1, 1, 2, 4, 6]
    assert Fixed(length=HOUR).quantile(0.3) == HOUR


def test_exponential_is_that_of_the_stream() -> None:
    ours, stream = Stream.of(5, "x"), Stream.of(5, "x")
    law = Exponential(mean=HOUR)
    assert [law.draw(ours) for _ in range(50)] == [round(stream.exponential(HOUR)) for _ in range(50)]


def test_repair_times_are_those_of_the_trace() -> None:
    """1. A large sample has the median, mean and 90th percentile of the law. 2. The law has those of the trace."""
    drawn = hours(REPAIR.draws(Stream.of(7, "repair"), COUNT))
    median, mean, p90 = drawn[COUNT // 2], statistics.fmean(drawn), drawn[COUNT * 9 // 10]
    assert near(median, 50.7 * math.log(2) ** (1 / 0.4505), 0.02)
    assert near(mean, REPAIR.mean / HOUR, 0.02)
    assert near(p90, 50.7 * math.log(10) ** (1 / 0.4505), 0.02)
    assert near(p90, 311, 0.06)
    assert near(mean, 132.8, 0.08)
    assert near(median, 20.4, 0.12)


def test_long_repairs_make_most_of_the_time_lost() -> None:
    """1. About a sixth lasts over a week. 2. That sixth is about four fifths of all hours."""
    drawn = hours(REPAIR.draws(Stream.of(8, "repair"), COUNT))
    long = [length for length in drawn if length > 7 * 24]
    assert abs(len(long) / COUNT - 0.161) < 0.03
    assert abs(sum(long) / sum(drawn) - 0.824) < 0.05


def test_lognormal_keeps_the_figures_it_is_given() -> None:
    """1. Median and p90 come out. 2. What would be longer takes the limit. 3. Logarithms are normal."""
    law = Lognormal(median=MINUTE, p90=Duration(5 * MINUTE), limit=HOUR)
    assert law.quantile(0.5) == MINUTE
    assert abs(law.quantile(0.9) - 5 * MINUTE) <= 1
    assert law.quantile(0.9999) == HOUR
    drawn = law.but(limit=Duration(10**18)).draws(Stream.of(9, "lognormal"), COUNT)
    logs = [math.log(duration / MINUTE) for duration in drawn]
    assert abs(statistics.fmean(logs)) < 0.01
    assert near(statistics.pstdev(logs), math.log(5) / 1.2815515655, 0.01)


@pytest.mark.parametrize(
    "text",
    [
        '{"law":"fixed","length":-1}',
        '{"law":"uniform","low":5,"high":4}',
        '{"law":"exponential","mean":0}',
        '{"law":"weibull","shape":0,"scale":5}',
        '{"law":"lognormal","median":5,"p90":4,"limit":9}',
        '{"law":"lognormal","median":5,"p90":6,"limit":5}',
    ],
)
def test_a_law_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="must"):
        decode(text, Law)  # type: ignore[arg-type]


def test_longer_means_give_longer_draws() -> None:
    """1. Two laws, one seed. 2. Draw by draw, the law with the longer scale gives the longer duration."""
    short, long = (REPAIR.but(scale=Duration(n * HOUR)) for n in (10, 20))
    pairs = zip(short.draws(Stream.of(1, "p"), 500), long.draws(Stream.of(1, "p"), 500), strict=True)
    assert all(a < b for a, b in pairs)


def test_arrivals_come_at_their_rate_and_always_later() -> None:
    """1. 6.5 failures per 1,000 node-days, 2,048 nodes: one in 1.803 h. 2. Counts vary as they should (index 1)."""
    faults = Poisson.of_nodes(6.5, 2_048)
    assert near(faults.mean_gap / HOUR, 1.803, 0.001)
    stream, now, by_day = Stream.of(2, "faults"), Instant(0), Counter[int]()
    days = 4_000
    while (now := faults.following(stream, now)) < days * 24 * HOUR:
        by_day[now // (24 * HOUR)] += 1
    counts = [by_day[day] for day in range(days)]
    assert near(statistics.fmean(counts), 24 / 1.803, 0.02)
    assert near(statistics.variance(counts) / statistics.fmean(counts), 1, 0.1)
    rushed = Poisson(mean_gap=Duration(1))
    instants = [now := rushed.following(stream, now) for _ in range(1_000)]
    assert instants == sorted(set(instants))


def test_causes_come_in_the_ratio_of_their_counts() -> None:
    """1. Counts of a published table. 2. A sample has their shares. 3. Weight 0 never comes."""
    counts = (("gpu", 148), ("never", 0), ("hbm", 72), ("software", 54), ("switch", 35), ("none", 0))
    stream, causes = Stream.of(4, "causes"), Weighted(counts)
    seen = Counter(causes.draw(stream) for _ in range(50_000))
    assert set(seen) == {"gpu", "hbm", "software", "switch"}
    for name, count in counts:
        assert abs(seen[name] / 50_000 - count / 309) < 0.01


@pytest.mark.parametrize("weights", [(), (("a", 0),), (("a", 2), ("b", -1))])
def test_weights_that_choose_nothing_are_refused(weights: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(ValueError, match="weight"):
        Weighted(weights)


def test_happens_as_often_as_it_should() -> None:
    """1. Never, always. 2. A fifth. 3. Each takes a number, so that a changed probability moves nothing else."""
    stream = Stream.of(5, "happens")
    assert not any(happens(stream, 0.0) for _ in range(1_000))
    assert all(happens(stream, 1.0) for _ in range(1_000))
    assert abs(sum(happens(stream, 0.2) for _ in range(20_000)) / 20_000 - 0.2) < 0.01
    assert stream.drawn == 22_000


def test_integers_of_a_range_come_equally_often() -> None:
    stream = Stream.of(6, "range")
    seen = Counter(integer_between(stream, -2, 3) for _ in range(12_000))
    assert sorted(seen) == [-2, -1, 0, 1, 2, 3]
    assert all(abs(count - 2_000) < 200 for count in seen.values())
    assert integer_between(stream, 7, 7) == 7


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**66), st.sampled_from([0, 1, 255, 256, 257, 600]))
def test_words_in_bulk_are_the_same(key: int, drawn: int, count: int) -> None:
    """1. Any stream, anywhere. 2. In bulk or one by one: the same words, and the stream stands at the same place."""
    bulk, single = Stream(key, drawn), Stream(key, drawn)
    assert words(bulk, count) == [single.word() for _ in range(count)]
    assert bulk.drawn == single.drawn


@given(st.integers(-5, 2**64), st.text(max_size=12), st.text(max_size=12))
def test_a_purpose_splits_as_the_stream_does(seed: int, purpose: str, entity: str) -> None:
    """1. The same key as `Stream.of`. 2. Asking for one stream changes nothing about the next."""
    streams = Purpose(seed, purpose)
    assert streams.stream(entity).key == Stream.of(seed, purpose, entity).key
    assert streams.stream("h1").key == Stream.of(seed, purpose, "h1").key
