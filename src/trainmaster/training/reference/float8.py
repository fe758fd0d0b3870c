"""A linear layer that multiplies in 8-bit floating point, for processors; on a GPU torchao's takes its place.

Numbers are scaled so that the largest of a tensor just fits, rounded to 8 bits, multiplied, and scaled back: like
photographs that are exposed for their brightest spot. Weights and inputs are e4m3 (more digits), gradients e5m2 (more
range). Each tensor has one scale, measured when it is used, so there is no scale to save: a resume has the scales of an
undisturbed run, and weights stay float32 outside of the product.

Scales are powers of two: scaling is then exact, and rounding happens once. The largest magnitude has a floor, since a
tensor of zeros would have the scale zero and make every product NaN. `e4m3fn` has no infinity: a cast turns one into
448 without a word, which would hide an overflow for good. Here it becomes NaN, as the next layer of any other precision
would show it, and it is counted.

Two 8-bit numbers and their product are exact in bfloat16 and float32, so the product is computed there and is the same
as that of `torch._scaled_mm` up to the order of the sum. Rejected: calling that, which processors without AMX-FP16
answer with a reference loop (seen: 3 s for 256 x 256 x 256, against 0.5 ms), and delayed scales (they are state, and
saturate when a tensor grows).
Limit: on a processor this shows the numbers of float8, not its speed.
"""

from typing import Any, Final

import torch
from torch import Tensor, nn

INPUT: Final = torch.float8_e4m3fn
GRADIENT: Final = torch.float8_e5m2
FLOOR: Final = 2.0**-100
"""Least magnitude that a scale is made for."""
EXACT: Final = torch.bfloat16
"""Holds every 8-bit number, and adds their products in float32."""


def scale_of(tensor: Tensor, form: torch.dtype) -> Tensor:
    """The power of two by which a tensor is divided to fit into `form`; what is not finite does not count."""
    magnitude = tensor.detach().abs().float()
    amax = magnitude.amax() if magnitude.numel() else magnitude.new_zeros(())
    if not torch.isfinite(amax):
        amax = torch.where(torch.isfinite(magnitude), magnitude, 0.0).amax()
    return torch.exp2(torch.ceil(torch.log2(amax.clamp(min=FLOOR) / torch.finfo(form).max)))


def rounded(tensor: Tensor, form: torch.dtype) -> tuple[Tensor, Tensor, int]:
    """(8-bit numbers, their scale, how many were infinite). Infinite ones are NaN in e4m3 and stay infinite in e5m2."""
    scale = scale_of(tensor, form)
    scaled = tensor.detach().float() / scale
    infinite = torch.isinf(scaled)
    count = int(infinite.sum())
    if count and form == INPUT:
        scaled = torch.where(infinite, torch.nan, scaled)
    return scaled.to(form), scale, count


def product(left: Tensor, left_scale: Tensor, right: Tensor, right_scale: Tensor) -> Tensor:
    """Product of two scaled 8-bit matrices, as bfloat16."""
    return (left.to(EXACT) @ right.to(EXACT)) * (left_scale * right_scale).to(EXACT)


class _Product(torch.autograd.Function):
    """`input @ weight.T` and its two gradients, each of them a product of 8-bit matrices."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: "Float8Linear") -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        rows8, rows_scale, lost_rows = rounded(rows, INPUT)
        weight8, weight_scale, lost_weights = rounded(weight, INPUT)
        layer.overflowed += lost_rows + lost_weights
        ctx.save_for_backward(rows8, rows_scale, weight8, weight_scale)
        ctx.shape, ctx.dtypes, ctx.layer = x.shape, (x.dtype, weight.dtype), layer
        result = product(rows8, rows_scale, weight8.t(), weight_scale)
        return result.reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        rows8, rows_scale, weight8, weight_scale = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, gradients[0].shape[-1])
        gradient8, scale, lost = rounded(gradient, GRADIENT)
        ctx.layer.overflowed += lost
        to_input = product(gradient8, scale, weight8, weight_scale).reshape(ctx.shape)
        to_weight = product(gradient8.t(), scale, rows8, rows_scale)
        return to_input.to(ctx.dtypes[0]), to_weight.to(ctx.dtypes[1]), None


class Float8Linear(nn.Linear):
    """A linear layer without a bias whose three products are in float8. Its weight stays what it was.

    `overflowed` counts the infinite numbers that it met.
    """

    def __init__(self, linear: nn.Linear) -> None:
        assert linear.bias is None
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        self.weight = linear.weight
        self.overflowed = 0

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Product.apply(x, self.weight, self)
        return result
