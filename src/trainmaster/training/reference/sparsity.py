"""A linear layer in which two weights of every four neighbours are zero: the pattern that GPUs multiply twice as fast.

Which two is decided by magnitude and kept for some steps, so that the rest can learn to do without them. The others are
not deleted: they get the gradients of what they would have been (straight through the mask), and may come back when the
masks are drawn anew. So the state is weights *and* masks: between two drawings the masks can't be found again from
weights that have moved since. Masks are saved like weights; one that a checkpoint lacks is drawn at the next step.

On a processor the masked weights go into a plain product. On a GPU they are packed (`torch.sparse`), which works for
the forward product only: the pattern of the transposed weights is another one, and the gradients stay dense.
Rejected: drawing in every step (weights at the boundary flicker, and learning suffers), and masks from the initial
weights for good. Limit: every rank holds the masks of all weights, a byte for each.
"""

from typing import Any, Final

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from trainmaster.training.distcp.planner import DERIVED

GROUP: Final = 4
KEPT: Final = 2


def strongest(weight: Tensor) -> Tensor:
    """1 for the two largest of each four neighbours in a row, else 0; of equal ones the first two."""
    assert weight.shape[-1] % GROUP == 0
    groups = weight.detach().abs().reshape(-1, GROUP)
    order = torch.argsort(groups, dim=1, descending=True, stable=True)
    mask = torch.zeros_like(groups, dtype=torch.uint8)
    mask.scatter_(1, order[:, :KEPT], 1)
    return mask.reshape(weight.shape)


class _Masked(torch.autograd.Function):
    """The masked weights; their gradient goes to all weights."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, mask: Tensor) -> Tensor:
        return weight * mask

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Packed(torch.autograd.Function):
    """`x @ weight.T` with weights that a GPU multiplies in packed form; gradients are dense."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        with torch.autocast("cuda", enabled=False):
            packed = torch.sparse.to_sparse_semi_structured(weight)
            result: Tensor = functional.linear(x.reshape(-1, x.shape[-1]), packed)
        return result.reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].to(weight.dtype)
        flat = gradient.reshape(-1, gradient.shape[-1])
        return gradient @ weight, flat.t() @ x.reshape(-1, x.shape[-1])


class SparseLinear(nn.Linear):
    """A linear layer without a bias, half of whose weights take no part. Masks are drawn in the next forward pass after
    `due` is set."""

    def __init__(self, linear: nn.Linear) -> None:
        assert linear.bias is None
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        self.weight = linear.weight
        self.register_buffer(DERIVED, torch.zeros_like(linear.weight, dtype=torch.uint8))
        self.due = True

    @property
    def mask(self) -> Tensor:
        return self.get_buffer(DERIVED)

    def forward(self, x: Tensor) -> Tensor:
        mask = self.mask
        if self.due:
            mask.copy_(strongest(self.weight))
            self.due = False
        kept = _Masked.apply(self.weight, mask)
        if x.device.type == "cuda":
            packed: Tensor = _Packed.apply(x.to(torch.bfloat16), kept.to(torch.bfloat16))
            return packed
        result: Tensor = functional.linear(x, kept)
        return result
