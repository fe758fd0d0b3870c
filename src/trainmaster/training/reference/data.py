"""Which tokens a rank sees in a step: a function of seed and global sample index, with no state to save.

A sample is `length + 1` neighbouring tokens (the last one is only a target); samples do not overlap but for that token.
The samples of a global batch go to the ranks in turn, so each is seen once whatever the number of ranks.
"""

from array import array

import torch
from torch import Tensor

from trainmaster.core.checkpoint.order import sample_at


class Samples:
    """Samples of `length` tokens of a corpus, in the order of a seed."""

    def __init__(self, tokens: "array[int]", length: int, seed: int) -> None:
        self._tokens = torch.frombuffer(tokens, dtype=torch.uint16)
        self._length = length
        self._seed = seed
        self.count = (len(tokens) - 1) // length
        assert self.count > 0, "the corpus is shorter than one sample"

    def batch(self, first: int, global_batch: int, rank: int, world: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of this rank for the global samples from `first` on, each (share, length)."""
        picked = [sample_at(first + at, self.count, self._seed) for at in range(rank, global_batch, world)]
        rows = [self._tokens[number * self._length : (number + 1) * self._length + 1] for number in picked]
        stacked = torch.stack([row.to(torch.int64) for row in rows])
        return stacked[:, :-1].contiguous(), stacked[:, 1:].contiguous()
