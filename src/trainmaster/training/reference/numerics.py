"""The arithmetic of the reference trainer: `--precision float32|bf16|float8` and `--sparsity none|2:4`.

Weights, gradients and moments are float32 in every case; the choice is about products. So a checkpoint of one choice
goes on with another, and says so. What becomes of each part:

    part of the model                   float32   bf16      float8    2:4
    gate, up, down (feed-forward)       float32   bf16      float8    half of the weights, in the precision chosen
    query, key, value, output           float32   bf16      bf16      dense
    scores and softmax, embedding, head float32   bf16      bf16      dense
    norms, rotary angles, residuals     float32   float32   float32   dense

The feed-forward part holds nearly three quarters of the weights of a block; attention is where 8 bits cost accuracy.
What this machine or model can't do is refused before the first step, with the reason and what to choose instead.
"""

import argparse
import importlib.util
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import torch
from torch import Tensor, nn

from trainmaster.core.base.value import Value
from trainmaster.training.errors import TrainingError
from trainmaster.training.reference.float8 import Float8Linear
from trainmaster.training.reference.sparsity import GROUP, SparseLinear

PRECISIONS: Final = ("float32", "bf16", "float8")
SPARSITIES: Final = ("none", "2:4")
FLOAT8_CAPABILITY: Final = (8, 9)
SPARSE_CAPABILITY: Final = (8, 0)
GPU_MULTIPLE: Final = 16
"""Rows and columns that a GPU multiplies in float8, or packed, come in multiples of this."""
_CONVERTED: Final = ".feed_forward."


class Numerics(Value):
    """A choice. Masks are drawn in step 1 and every `mask_steps` after it."""

    precision: str = "float32"
    sparsity: str = "none"
    mask_steps: int = 10

    @property
    def name(self) -> str:
        """As it stands in a checkpoint."""
        return self.precision if self.sparsity == "none" else f"{self.precision} {self.sparsity}"


class Device(Value):
    """What matters of the device that computes. `capability` is that of a GPU."""

    kind: str = "cpu"
    name: str = "a processor"
    capability: tuple[int, int] = (0, 0)
    torchao: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    default = Numerics()
    parser.add_argument(
        "--precision", choices=PRECISIONS, default=default.precision, help="of products (default: %(default)s)"
    )
    parser.add_argument(
        "--sparsity",
        choices=SPARSITIES,
        default=default.sparsity,
        help="of feed-forward weights (default: %(default)s)",
    )
    parser.add_argument(
        "--mask-steps",
        type=int,
        default=default.mask_steps,
        help="steps between drawings of masks (default: %(default)s)",
    )


def chosen(options: argparse.Namespace) -> Numerics:
    return Numerics(precision=options.precision, sparsity=options.sparsity, mask_steps=options.mask_steps)


def device_of(model: nn.Module) -> Device:
    """The device that the weights are on."""
    place = next(model.parameters()).device
    if place.type != "cuda":
        return Device(kind=place.type)
    return Device(
        kind="cuda",
        name=torch.cuda.get_device_name(place),
        capability=torch.cuda.get_device_capability(place),
        torchao=importlib.util.find_spec("torchao") is not None,
    )


def refusal(numerics: Numerics, device: Device, features: tuple[int, ...]) -> str:
    """Why a choice can't be had on a device with layers of these widths, and what to do; empty: it can."""
    sparse, float8 = numerics.sparsity != "none", numerics.precision == "float8"
    if numerics.mask_steps < 1:
        return f"--mask-steps {numerics.mask_steps} is not possible: masks are drawn once a step at most; use 1 or more"
    if sparse and float8:
        return (
            "--precision float8 and --sparsity 2:4 do not go together: neither torchao nor torch.sparse multiplies "
            "packed 8-bit weights in training; use --precision bf16 with --sparsity 2:4, or float8 with --sparsity none"
        )
    if device.kind == "cuda":
        return _gpu_refusal(numerics, device, features)
    odd = [width for width in features if width % GROUP]
    if sparse and odd:
        return (
            f"--sparsity 2:4 takes two of every four neighbouring weights, and a layer has {odd[0]} inputs, which is "
            f"no multiple of {GROUP}: choose --dim and --hidden so, e.g. {_next(odd[0], GROUP)}, or --sparsity none"
        )
    return ""


def _gpu_refusal(numerics: Numerics, device: Device, features: tuple[int, ...]) -> str:
    sparse, float8 = numerics.sparsity != "none", numerics.precision == "float8"
    have = "{}.{}".format(*device.capability)
    odd = [width for width in features if width % GPU_MULTIPLE]
    if float8 and device.capability < FLOAT8_CAPABILITY:
        return (
            f"--precision float8 needs a GPU of compute capability 8.9 or newer (Ada, Hopper); {device.name} has "
            f"{have}: use --precision bf16"
        )
    if float8 and not device.torchao:
        return (
            "--precision float8 on a GPU goes through torchao, which is not installed: pip install "
            "'trainmaster[float8]', or use --precision bf16"
        )
    if sparse and device.capability < SPARSE_CAPABILITY:
        return (
            f"--sparsity 2:4 needs a GPU of compute capability 8.0 or newer (Ampere); {device.name} has {have}: "
            "use --sparsity none"
        )
    if sparse and numerics.precision != "bf16":
        return f"--sparsity 2:4 on a GPU multiplies bf16, not {numerics.precision}: use --precision bf16 with it"
    if (sparse or float8) and odd:
        option = "--sparsity 2:4" if sparse else "--precision float8"
        return (
            f"{option} on a GPU needs layers whose widths are multiples of {GPU_MULTIPLE}, and one has {odd[0]}: "
            f"choose --dim and --hidden so, e.g. {_next(odd[0], GPU_MULTIPLE)}, or leave {option} out"
        )
    return ""


def _next(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def convert(model: nn.Module, numerics: Numerics, device: Device | None = None) -> tuple[str, ...]:
    """Puts layers of the choice in the place of the feed-forward ones; their names. Weights and their names stay.

    Call it before the model is sharded. Raises `TrainingError` if the choice can't be had.
    """
    device = device or device_of(model)
    linears = {name: part for name, part in model.named_modules() if _CONVERTED in name and type(part) is nn.Linear}
    features = {part.in_features for part in linears.values()} | {part.out_features for part in linears.values()}
    reason = refusal(numerics, device, tuple(sorted(features)))
    if reason:
        raise TrainingError(reason)
    if numerics.precision != "float8" and numerics.sparsity == "none":
        return ()
    if numerics.precision == "float8" and device.kind == "cuda":
        from torchao.float8 import convert_to_float8_training

        convert_to_float8_training(model, module_filter_fn=lambda _, name: name in linears)
        return tuple(linears)
    kind = SparseLinear if numerics.sparsity != "none" else Float8Linear
    for name, part in linears.items():
        model.set_submodule(name, kind(part))
    return tuple(linears)


class Arithmetic:
    """Forward passes of a converted model."""

    def __init__(self, model: nn.Module, numerics: Numerics) -> None:
        self._model, self._numerics = model, numerics
        self._sparse = [part for part in model.modules() if isinstance(part, SparseLinear)]
        self._float8 = {name: part for name, part in model.named_modules() if isinstance(part, Float8Linear)}
        self._told: dict[str, int] = {}

    @property
    def name(self) -> str:
        return self._numerics.name

    def forward(self, step: int, tokens: Tensor) -> Tensor:
        """Logits in float32 of a step, counted from 1."""
        drawing = (step - 1) % self._numerics.mask_steps == 0
        for part in self._sparse:
            part.due = drawing or not bool(part.mask.any())
        with self._region(tokens.device.type):
            logits: Tensor = self._model(tokens)
        return logits.float()

    def news(self) -> str:
        """What overflowed since the last call, by layer; empty: nothing. Of this rank."""
        now = {name: part.overflowed for name, part in self._float8.items()}
        grown = {
            name: count - self._told.get(name, 0) for name, count in now.items() if count > self._told.get(name, 0)
        }
        self._told = now
        if not grown:
            return ""
        layers = ", ".join(f"{count} in {name}" for name, count in sorted(grown.items())[:3])
        rest = f" and {len(grown) - 3} more layers" if len(grown) > 3 else ""
        return (
            f"float8: {sum(grown.values())} numbers were infinite ({layers}{rest}); they are passed on as NaN or "
            "infinity and not as the largest number. Lower --learning-rate or --clip, or use --precision bf16"
        )

    def _region(self, device: str) -> AbstractContextManager[object]:
        if self._numerics.precision == "float32":
            return nullcontext()
        region: AbstractContextManager[object] = torch.autocast(device, dtype=torch.bfloat16)
        return region
