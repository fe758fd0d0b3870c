"""Versions as points of one order, and patterns as intervals of it.

A version is read as a row of numbers and words: `530.41.03` is 530, 41, 3, so 9 comes before 10 and 03 is 3. A version
that ends comes before one that goes on (`12.4` before `12.4.1`), except where it goes on with a word of the time before
a release (`12.4rc1` before `12.4`). Zeros at the end change nothing (`12.4.0` is `12.4`), nor does a `v` in front.

Each pattern is then a union of half-open intervals, so that matching is a comparison, and whether two patterns have a
version in common, or one contains the other, is arithmetic; the lint of rules rests on it. Regular expressions or
globs would match as well, but nobody can ask them whether they contradict each other.

    *           any version               >=12.4  >12.4  <=12.4  <12.4     numbers compared as numbers
    550.*       550 and all below it      530.41.03                         exactly this one
    550.*,>=560                           with commas: any of them

Signs between the parts are all alike: `1.2-3` and `1.2.3` are one version. What has no order, such as digests, should
be matched exactly or by `*` only.
"""

import functools
import re
from typing import Final

Token = tuple[int, int, str]
Key = tuple[Token, ...]
Interval = tuple[Key, Key]
"""From the first, without the second."""

_LOW: Final[Token] = (-1, 0, "")
_END: Final[Token] = (1, 0, "")
_PAST: Final[Token] = (1, 1, "")
"""Takes the place of `_END` in the point right behind a version."""
_HIGH: Final[Token] = (9, 0, "")
_EARLY: Final = frozenset({"a", "alpha", "b", "beta", "c", "rc", "pre", "preview", "dev", "nightly"})
_BOTTOM: Final[Key] = (_LOW,)
_TOP: Final[Key] = (_HIGH,)
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~:@/-]*")


class PatternError(ValueError):
    """A pattern that says nothing. The message is a reason, `fix` what to write instead."""

    def __init__(self, reason: str, fix: str) -> None:
        self.fix = fix
        super().__init__(reason)


@functools.lru_cache(maxsize=4096)
def key_of(version: str) -> Key:
    """The place of a version in the order. Equal keys are the same version."""
    return (*_tokens(version, strip=True), _END)


def same_version(one: str, other: str) -> bool:
    """Both are known and the same. The branch is not enough: 530.30.02 is not 530.41.03."""
    return bool(one) and bool(other) and key_of(one) == key_of(other)


@functools.lru_cache(maxsize=8192)
def matches(version: str, pattern: str) -> bool:
    """A known version that the pattern allows; unknown (empty) matches nothing. Raises `PatternError`."""
    if not version:
        return False
    key = key_of(version)
    return any(low <= key < high for low, high in intervals(pattern))


@functools.lru_cache(maxsize=1024)
def intervals(pattern: str) -> tuple[Interval, ...]:
    """What a pattern allows: intervals in order that neither meet nor overlap. Raises `PatternError`."""
    return _merged([_interval(part.strip()) for part in pattern.split(",")])


def common(one: tuple[Interval, ...], other: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """What both allow."""
    both = [(max(a[0], b[0]), min(a[1], b[1])) for a in one for b in other]
    return tuple(sorted((low, high) for low, high in both if low < high))


def contains(outer: tuple[Interval, ...], inner: tuple[Interval, ...]) -> bool:
    """Everything that `inner` allows, `outer` allows too. Both are merged, as `intervals` gives them."""
    return all(any(low <= a and b <= high for low, high in outer) for a, b in inner)


def _tokens(text: str, strip: bool) -> Key:
    """Numbers and words. With `strip`, without the zeros that end a row of numbers."""
    found: list[Token] = []
    for number, word in re.findall(r"(\d+)|([A-Za-z]+)", re.sub(r"^[vV](?=\d)", "", text)):
        if number:
            found.append((3, int(number), ""))
            continue
        if strip:
            _strip_zeros(found)
        found.append((0 if word.lower() in _EARLY else 2, 0, word))
    if strip:
        _strip_zeros(found)
    return tuple(found)


def _strip_zeros(tokens: list[Token]) -> None:
    while tokens and tokens[-1] == (3, 0, ""):
        tokens.pop()


def _interval(part: str) -> Interval:
    if part == "*":
        return (_BOTTOM, _TOP)
    if part.endswith(".*") and _VERSION.fullmatch(part[:-2]):
        stem = part[:-2]
        return ((*_tokens(stem, strip=True), _LOW), (*_tokens(stem, strip=False), _HIGH))
    found = re.fullmatch(r"(>=|<=|>|<|)\s*(.*)", part)
    assert found is not None, part
    sign, version = found.groups()
    if not _VERSION.fullmatch(version):
        fix = "write a version, such as 530.41.03, or one of 550.*, >=12.4, >12.4, <=12.4, <12.4, *"
        raise PatternError(f"{part!r} is not a pattern of versions" if part else "a pattern is empty", fix)
    key = key_of(version)
    behind = (*key[:-1], _PAST)
    return {
        "": (key, behind), ">=": (key, _TOP), ">": (behind, _TOP), "<": (_BOTTOM, key), "<=": (_BOTTOM, behind)
    }[sign]  # fmt: skip


def _merged(parts: list[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for low, high in sorted(parts):
        assert low < high
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)
