"""Which tokens a rank sees in a step: a function of seed and global sample index, with no state to save.

A sample is `length + 1` neighbouring tokens (the last one is only a target); samples do not overlap but for that token.
The samples of a global batch go to the ranks in turn, so each is seen once whatever the number of ranks.
"""

from array import array
from typing import Protocol

import torch
from torch import Tensor

from trainmaster.core.checkpoint.order import sample_at

Batch = tuple[Tensor, Tensor]


class Source(Protocol):
    """Tokens that are read in stretches; see `training/shards.py`."""

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> "array[int]": ...


class Samples:
    """Samples of `length` tokens of a corpus, in the order of a seed."""

    def __init__(self, tokens: "array[int] | Source", length: int, seed: int) -> None:
        self._source = tokens
        self._length = length
        self._seed = seed
        self.count = (len(tokens) - 1) // length
        assert self.count > 0, "the corpus is shorter than one sample"

    def batch(self, first: int, global_batch: int, rank: int, world: int) -> Batch:
        """Inputs and targets of this rank for the global samples from `first` on, each (share, length)."""
        picked = [sample_at(first + at, self.count, self._seed) for at in range(rank, global_batch, world)]
        stacked = torch.stack([self._row(number) for number in picked])
        return stacked[:, :-1].contiguous(), stacked[:, 1:].contiguous()

    def _row(self, number: int) -> Tensor:
        start, stop = number * self._length, (number + 1) * self._length + 1
        tokens = self._source[start:stop] if isinstance(self._source, array) else self._source.read(start, stop)
        return torch.frombuffer(tokens, dtype=torch.uint16).to(torch.int64)
