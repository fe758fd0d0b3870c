"""Replicas that should be equal to the bit and are not: who differs, in what, and who can't say.

Ranks of one *class* hold the same tensors. Each tells one number for all of them; where numbers differ, one number for
each tensor. Who holds what most of the class holds is right, as far as anybody can tell; the others are named. Two
replicas, or a tie, have no majority: then both sides are named and nobody is blamed.

The words "replicas disagree" are how the server knows the cause in what a rank leaves behind.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.diagnosis.answer import ranks_text

WORDS: Final = "replicas disagree"
TIED: Final = "no majority says who is right"
TENSORS_TOLD: Final = 3


class Disagreement(Value):
    odd: tuple[int, ...]
    """Ranks that differ from the majority; without one, all of the class."""
    majority: tuple[int, ...]
    """Empty: no value is held by more than half."""
    tensors: tuple[str, ...]
    """Names of those that differ."""
    of: int
    """Tensors that were compared."""


def judge(names: Sequence[str], sums: Mapping[int, Sequence[int]]) -> Disagreement | None:
    """What the sums of each tensor by each rank of a class say; None: all are equal."""
    assert all(len(row) == len(names) for row in sums.values()), "ranks of a class hold the same tensors"
    by_value: dict[tuple[int, ...], list[int]] = {}
    for rank, row in sorted(sums.items()):
        by_value.setdefault(tuple(row), []).append(rank)
    if len(by_value) <= 1:
        return None
    differing = tuple(name for place, name in enumerate(names) if len({row[place] for row in by_value}) > 1)
    largest = max(by_value.values(), key=len)
    ranks = tuple(sorted(sums))
    if 2 * len(largest) <= len(ranks):
        return Disagreement(odd=ranks, majority=(), tensors=differing, of=len(names))
    odd = tuple(rank for rank in ranks if rank not in largest)
    return Disagreement(odd=odd, majority=tuple(largest), tensors=differing, of=len(names))


def sentence(found: Disagreement, hosts: Mapping[int, str], step: int, agreed: int) -> str:
    """One line, as a rank says it and as the server reads it."""
    told = ", ".join(found.tensors[:TENSORS_TOLD])
    more = len(found.tensors) - TENSORS_TOLD
    what = f"in {told}{f' and {more} more' if more > 0 else ''} ({len(found.tensors)} of {found.of} tensors)"
    when = f"after step {step}; they agreed after step {agreed}"
    if not found.majority:
        return f"{WORDS}, and {TIED}: {ranks_text(found.odd)} differ {what} {when}"
    where = ", ".join(sorted({hosts[rank] for rank in found.odd if rank in hosts}))
    who = f"{ranks_text(found.odd)}{f' on {where}' if where else ''}"
    return f"{WORDS}: {who} differs from {ranks_text(found.majority)} {what} {when}"
