"""Who writes what several ranks hold alike: each thing once, and the ranks about as much each.

A save ends with the rank that writes most. What only one rank has is its own to write; everything else goes, the
largest first, to whoever of its holders has least so far. That is at most a third more than the best that could be
(and nothing, where things are small beside a rank's share). PyTorch's own way takes things in order of their names and
counts a shard as large as the whole tensor, so two large replicas may end up at one rank beside an idle one.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

K = TypeVar("K")


def shares(holders: Mapping[K, Sequence[int]], sizes_bytes: Mapping[K, int], ranks: int) -> dict[K, int]:
    """The rank that writes each thing. Equal inputs give equal answers: ties go to what comes first."""
    assert all(holders.values()), "somebody holds each thing"
    load = [0] * ranks
    result: dict[K, int] = {}
    single = [key for key, ranks_of in holders.items() if len(ranks_of) == 1]
    several = sorted((key for key in holders if len(holders[key]) > 1), key=lambda key: -sizes_bytes[key])
    for key in (*single, *several):
        rank = min(holders[key], key=lambda each: (load[each], each))
        result[key] = rank
        load[rank] += sizes_bytes[key]
    assert len(result) == len(holders)
    return result
