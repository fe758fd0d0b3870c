"""Chance as named streams of one seed.

A stream belongs to a purpose and an entity: `Stream.of(seed, "faults", "h12")`. Its key is a hash of seed and names, so
that one more host, or one more draw elsewhere, changes nothing in the other streams; one generator shared by all would
renumber the world at every change. A stream is counter-based: the n-th number is a mix of key and n (SplitMix64,
Steele, Lea and Flood 2014), so its whole state is (key, drawn), which fits into a snapshot and can be rebuilt from it.

Numbers are the same on every machine, with one limit: `exponential` takes a logarithm, whose last bit is the C
library's. Round it (to microseconds) before it decides anything. Not for secrets.
"""

import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

T = TypeVar("T")

_WORD: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15


class Stream:
    """A sequence of numbers that depends on nothing but its key and how many were drawn."""

    __slots__ = ("drawn", "key")

    def __init__(self, key: int, drawn: int = 0) -> None:
        assert 0 <= key <= _WORD, key
        assert drawn >= 0, drawn
        self.key = key
        self.drawn = drawn

    @classmethod
    def of(cls, seed: int, *names: str) -> "Stream":
        """The stream of a purpose and its entity; ("a", "bc") is not ("ab", "c")."""
        assert names, "a stream without a name is shared by accident"
        text = f"{seed};" + "".join(f"{len(name)}:{name};" for name in names)
        return cls(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little"))

    def word(self) -> int:
        """The next 64 bits."""
        self.drawn += 1
        mixed = (self.key + self.drawn * _GOLDEN) & _WORD
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _WORD
        return mixed ^ (mixed >> 31)

    def integer(self, bound: int) -> int:
        """One of 0 .. bound - 1, each equally likely (draws again where 2**64 is no multiple of the bound)."""
        assert 0 < bound <= _WORD, bound
        word = self.word()
        if word > _WORD - bound:  # only there may it lie above the last multiple of the bound
            unbiased = (_WORD + 1) - (_WORD + 1) % bound
            while word >= unbiased:
                word = self.word()
        return word % bound

    def uniform(self) -> float:
        """From 0 (included) to 1 (excluded), in steps of 2**-53."""
        self.drawn = drawn = self.drawn + 1  # as `word`, without the call
        mixed = (self.key + drawn * _GOLDEN) & _WORD
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _WORD
        return ((mixed ^ (mixed >> 31)) >> 11) * 2.0**-53

    def exponential(self, mean: float) -> float:
        """The wait for the next event of a process with this mean wait, in the unit of the mean."""
        assert mean > 0, mean
        return -math.log1p(-self.uniform()) * mean

    def permutation(self, count: int) -> tuple[int, ...]:
        """0 .. count - 1 in an order of chance."""
        order = list(range(count))
        for last in range(count - 1, 0, -1):
            other = self.integer(last + 1)
            order[last], order[other] = order[other], order[last]
        return tuple(order)

    def shuffled(self, items: Iterable[T]) -> tuple[T, ...]:
        """The items in an order of chance. Give them in a fixed order (never a set), or the result has none."""
        listed = tuple(items)
        return tuple(listed[index] for index in self.permutation(len(listed)))

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        assert items
        return items[self.integer(len(items))]
