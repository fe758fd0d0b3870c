"""The order of samples: a permutation that is computed, not stored.

Sample `index` of a job is element `index % size` of epoch `index // size`, and each epoch has its own permutation, made
from the seed by a small Feistel network over the next power of four, walking on while the result lies outside (fewer
than four tries on average). Any rank finds any sample from two integers; there is no iterator whose state could be
lost, and a resume cannot see another order. Rejected: a shuffled list (must be
the same on all ranks and in all versions of the library that shuffles) and an affine map (neighbours stay neighbours).
"""

from typing import Final

_MASK: Final = (1 << 64) - 1
_ROUNDS: Final = 6


def mix(*values: int) -> int:
    """A well-mixed 64-bit number from some integers (the finalizer of splitmix64, chained)."""
    state = 0x9E3779B97F4A7C15
    for value in values:
        state = (state + value * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def permuted(place: int, size: int, key: int) -> int:
    """The element at `place` of the permutation of `range(size)` that belongs to `key`."""
    assert size > 0
    assert 0 <= place < size
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    half_mask = (1 << half_bits) - 1
    value = place
    while True:
        left, right = value >> half_bits, value & half_mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (mix(key, turn, right) & half_mask)
        value = (left << half_bits) | right
        if value < size:
            return value


def sample_at(index: int, size: int, seed: int) -> int:
    """The sample that a job with this seed consumes as its `index`-th, counted from 0 over all epochs."""
    assert index >= 0
    epoch, place = divmod(index, size)
    return permuted(place, size, mix(seed, epoch))
