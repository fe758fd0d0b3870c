"""Streams of chance: fixed values for ever, independence, and simple statistics."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.seed import Stream


def test_mixes_as_the_reference_does() -> None:
    """1. The published first outputs of SplitMix64 for state 1234567 come out."""
    stream = Stream(1234567)
    assert [stream.word() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_values_never_change() -> None:
    """1. A stored scenario means the same draws in every later version."""
    stream = Stream.of(7, "faults", "h1")
    assert stream.key == 8237566784948463551
    assert [stream.integer(100) for _ in range(8)] == [10, 15, 29, 51, 71, 40, 65, 27]
    assert stream.permutation(6) == (4, 3, 0, 2, 1, 5)
    assert stream.uniform() == 0.95646496656179


def test_names_and_seeds_make_their_own_streams() -> None:
    keys = {
        Stream.of(seed, *names).key
        for seed in (0, 1, 12)
        for names in (("a", "bc"), ("ab", "c"), ("abc",), ("a", "b", "c"), ("2:a",), ("",))
    }
    assert len(keys) == 18


def test_state_is_key_and_count() -> None:
    """1. A stream draws a few numbers. 2. One rebuilt from (key, drawn) goes on with the same numbers."""
    stream = Stream.of(1, "x")
    for _ in range(5):
        stream.integer(3)
    rebuilt = Stream(stream.key, stream.drawn)
    assert [rebuilt.word() for _ in range(4)] == [stream.word() for _ in range(4)]


@given(st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_integers_stay_below_the_bound(bound: int, key: int) -> None:
    assert 0 <= Stream(key).integer(bound) < bound


@given(st.lists(st.integers(), max_size=30), st.integers(0, 2**64 - 1))
def test_a_shuffle_loses_nothing(items: list[int], key: int) -> None:
    assert sorted(Stream(key).shuffled(items)) == sorted(items)


def test_statistics() -> None:
    """1. 20,000 draws each: means within five standard errors, every face of a die within five of its share."""
    stream = Stream.of(42, "statistics")
    count = 20_000
    uniforms = [stream.uniform() for _ in range(count)]
    assert abs(statistics.fmean(uniforms) - 0.5) < 5 * (1 / 12) ** 0.5 / count**0.5
    assert min(uniforms) >= 0
    assert max(uniforms) < 1
    waits = [stream.exponential(30.0) for _ in range(count)]
    assert abs(statistics.fmean(waits) - 30) < 5 * 30 / count**0.5
    assert abs(sum(wait > 30 for wait in waits) / count - 0.3679) < 5 * 0.48 / count**0.5
    faces = [stream.integer(6) for _ in range(count)]
    for face in range(6):
        assert abs(faces.count(face) / count - 1 / 6) < 5 * (5 / 36) ** 0.5 / count**0.5
    firsts = [stream.permutation(4)[0] for _ in range(count)]
    for first in range(4):
        assert abs(firsts.count(first) / count - 1 / 4) < 5 * (3 / 16) ** 0.5 / count**0.5
    assert {stream.choice("abc") for _ in range(100)} == set("abc")


def test_misuse_is_noticed() -> None:
    with pytest.raises(AssertionError):
        Stream.of(1)
    with pytest.raises(AssertionError):
        Stream(1).integer(0)
    with pytest.raises(AssertionError):
        Stream(1).choice(())
