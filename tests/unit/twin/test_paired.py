"""Student's law and what it is used for: differences of two worlds under the same seeds."""

import math

import pytest

from trainmaster.core.base.seed import Stream
from trainmaster.twin.paired import LEVEL, Compared, compare, t_quantile, t_test

# (degrees of freedom, t, two-sided p): the tables of every textbook; for 1 and 2 in closed form
KNOWN = [
    (1, 1.0, 0.5),
    (1, 12.706204736, 0.05),
    (2, 4.302652730, 0.05),
    (4, 2.776445105, 0.05),
    (9, 3.249835544, 0.01),
    (30, 2.042272456, 0.05),
    (100, 0.0, 1.0),
]


@pytest.mark.parametrize(("freedom", "t", "p"), KNOWN)
def test_student(freedom: int, t: float, p: float) -> None:
    """1. Known values of the law. 2. The chance is right, the same for -t, and its inverse leads back."""
    assert t_test(t, freedom) == pytest.approx(p, rel=1e-8)
    assert t_test(-t, freedom) == t_test(t, freedom)
    if t > 0:
        assert t_quantile(1 - p / 2, freedom) == pytest.approx(t, rel=1e-6)


def test_student_with_two_degrees_is_known_in_closed_form() -> None:
    """1. Two degrees of freedom, where F is t / sqrt(2 + t^2). 2. The series agrees from far below to far above."""
    for exponent in range(-6, 7):
        t = 2.0**exponent
        assert t_test(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)


def rows(values: list[float], name: str = "x") -> list[dict[str, float]]:
    return [{name: value} for value in values]


def only(found: tuple[Compared, ...]) -> Compared:
    (row,) = found
    return row


def test_pairs_cancel_what_both_have() -> None:
    """1. Values that differ by hundreds from seed to seed, and by about one between the worlds. 2. The difference is
    found, and its interval holds it; unpaired it would drown."""
    found = only(compare(rows([100.0, 350.0, 20.0, 800.0]), rows([101.1, 350.9, 21.2, 800.8])))
    assert found.verdict == "more"
    assert found.difference == pytest.approx(1.0)
    assert found.low < 1.0 < found.high
    assert found.low > 0
    assert only(compare(rows([101.1, 350.9, 21.2, 800.8]), rows([100.0, 350.0, 20.0, 800.0]))).verdict == "less"


def test_words_where_nothing_can_be_tested() -> None:
    """1. The same in all seeds: equal. 2. One seed: unknown. 3. The same difference in all seeds: certain. 4. Noise.
    5. A figure that one world lacks is zero there."""
    assert only(compare(rows([1.0, 2.0]), rows([1.0, 2.0]))).verdict == "equal"
    single = only(compare(rows([1.0]), rows([2.0])))
    assert (single.verdict, single.p, single.low) == ("unknown", 1.0, single.difference)
    assert only(compare(rows([1.0, 2.0]), rows([2.0, 3.0]))).verdict == "more"
    assert only(compare(rows([1.0, 2.0, 3.0]), rows([1.5, 1.4, 3.1]))).verdict == "noise"
    found = compare([{}, {}], [{"y": 3.0}, {"y": 3.0}])
    assert (only(found).a, only(found).b) == (0.0, 3.0)


def test_chance_alone_is_called_a_difference_in_one_comparison_of_twenty_at_most() -> None:
    """1. 400 comparisons of 20 figures each, in which nothing differs but by chance. 2. In about LEVEL of them any
    figure is called different; tested one by one it would be in two of three."""
    chance = Stream.of(1, "paired")
    wrong = 0
    for _ in range(400):
        a, b = ([{str(name): chance.uniform() for name in range(20)} for _ in range(6)] for _ in range(2))
        wrong += any(row.verdict in ("more", "less") for row in compare(a, b))
    assert wrong / 400 < LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 400)
    assert wrong > 0


def test_a_real_difference_is_found_among_many_that_are_none() -> None:
    """1. 30 figures of chance, one of which is larger by three of its deviations. 2. It alone is called different."""
    chance = Stream.of(2, "paired")
    a = [{str(name): chance.uniform() for name in range(30)} for _ in range(10)]
    b = [{str(name): chance.uniform() + (name == 7) for name in range(30)} for _ in range(10)]
    assert [row.figure for row in compare(a, b) if row.verdict in ("more", "less")] == ["7"]
