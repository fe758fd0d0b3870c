"""Versions are ordered by their numbers, and patterns are sets of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.maintenance.version import (
    PatternError,
    common,
    contains,
    intervals,
    key_of,
    matches,
    same_version,
)


@pytest.mark.parametrize(
    "text",
    [
        "9.1 10.0",
        "12.4 12.4.1",
        "12.4rc1 12.4",
        "2.0.dev3 2.0",
        "530.30.02 530.41.03",
        "530.9.1 530.41.03",
        "5.15.0-91-generic 5.15.0-101-generic",
        "1.0rc2 1.0rc10",
        "2.21.5-1 2.21.5-2",
        "v1.9 v1.10",
    ],
)
def test_the_first_comes_before_the_second(text: str) -> None:
    first, second = text.split()
    assert key_of(first) < key_of(second)


@pytest.mark.parametrize("text", ["12.4 12.4.0", "v1.2 1.2", "530.41.03 530.41.3", "1.0rc1 1rc1"])
def test_one_version_in_two_spellings(text: str) -> None:
    one, other = text.split()
    assert same_version(one, other)


def test_unknown_is_never_the_same() -> None:
    assert not same_version("", "")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", "1 550.54.14 sha256:ab", ""),
        ("550.*", "550 550.0 550.54.14 550-server 550rc1", "55 5501 551.1 549.9"),
        ("12.0.*", "12.0 12 12.0.5", "12.1 11.9 120"),
        (">=12.4", "12.4 12.4.0 12.4.1 12.10 13", "12.4rc1 12.3.9 9.9"),
        (">12.4", "12.4.1 12.10", "12.4 12.4.0 12.3"),
        ("<12.4", "12.3 12.4rc1 9.9", "12.4 12.4.0 12.10"),
        ("<=12.4", "12.4 12.4.0 12.3", "12.4.1 12.10"),
        ("530.41.03", "530.41.03", "530.30.02 530 530.41 530.41.03.1"),
        ("535.*, >=550", "535.1 550 560.2", "540.1 536"),
    ],
)
def test_patterns(pattern: str, inside: str, outside: str) -> None:
    """1. All that is inside matches. 2. Nothing that is outside does, nor what is not known."""
    assert [version for version in inside.split() if not matches(version, pattern)] == []
    assert [version for version in outside.split() if matches(version, pattern)] == []
    assert not matches("", pattern)


@pytest.mark.parametrize("pattern", ["", "550*", ">=", "1,,2", "~=1", "a b", "*.1", ">=550.*"])
def test_a_pattern_that_says_nothing(pattern: str) -> None:
    with pytest.raises(PatternError) as caught:
        intervals(pattern)
    assert caught.value.fix


VERSIONS = st.lists(st.integers(0, 12), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))
PATTERNS = st.lists(
    st.one_of(
        VERSIONS,
        st.builds(lambda version: f"{version}.*", VERSIONS),
        st.builds(lambda sign, version: sign + version, st.sampled_from([">=", ">", "<=", "<"]), VERSIONS),
    ),
    min_size=1,
    max_size=3,
).map(",".join)


@given(VERSIONS, PATTERNS, PATTERNS)
def test_arithmetic_of_patterns_agrees_with_matching(version: str, one: str, other: str) -> None:
    """1. A version matches the common part exactly if it matches both. 2. What is contained matches the outer."""
    key = key_of(version)
    both = any(low <= key < high for low, high in common(intervals(one), intervals(other)))
    assert both == (matches(version, one) and matches(version, other))
    if contains(intervals(one), intervals(other)):
        assert not matches(version, other) or matches(version, one)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
def test_numbers_order_versions(one: list[int], other: list[int]) -> None:
    """Rows of numbers compare as such, with zeros where one is shorter."""
    length = max(len(one), len(other))
    padded = [row + [0] * (length - len(row)) for row in (one, other)]
    keys = [key_of(".".join(map(str, row))) for row in (one, other)]
    assert (keys[0] < keys[1]) == (padded[0] < padded[1])
    assert (keys[0] == keys[1]) == (padded[0] == padded[1])
