"""Which layers are converted, what is refused and why, and what a resume in another arithmetic says."""

import argparse

import pytest

torch = pytest.importorskip("torch")

from trainmaster.core.checkpoint.position import Position, proceed  # noqa: E402
from trainmaster.training.errors import TrainingError  # noqa: E402
from trainmaster.training.reference.float8 import Float8Linear  # noqa: E402
from trainmaster.training.reference.main import arguments  # noqa: E402
from trainmaster.training.reference.model import Llama, Shape  # noqa: E402
from trainmaster.training.reference.numerics import Arithmetic, Device, Numerics, chosen, convert, refusal  # noqa: E402
from trainmaster.training.reference.sparsity import SparseLinear  # noqa: E402

pytestmark = pytest.mark.torch
SMALL = Shape(vocabulary=64, dim=16, layers=2, heads=4, key_heads=2, hidden=32, context=8)
CONVERTED = [f"blocks.{block}.feed_forward.{part}" for block in range(2) for part in ("gate", "up", "down")]
TOKENS = torch.arange(8)[None]
HOPPER = Device(kind="cuda", name="NVIDIA H100", capability=(9, 0), torchao=True)


def made(numerics: Numerics) -> tuple[Llama, tuple[str, ...]]:
    model = Llama(SMALL)
    model.draw_weights(1)
    return model, convert(model, numerics)


@pytest.mark.parametrize(
    ("numerics", "kind"),
    [
        (Numerics(), None),
        (Numerics(precision="bf16"), None),
        (Numerics(precision="float8"), Float8Linear),
        (Numerics(precision="bf16", sparsity="2:4"), SparseLinear),
    ],
)
def test_feed_forward_is_converted_and_nothing_else(numerics: Numerics, kind: type | None) -> None:
    """1. Gate, up and down of each block become other layers. 2. Attention, norms, embedding and head stay. 3. So do
    all names, weights and their float32."""
    model, names = made(numerics)
    plain, _ = made(Numerics())
    found = [name for name, part in model.named_modules() if isinstance(part, Float8Linear | SparseLinear)]
    assert found == list(names) == (CONVERTED if kind else [])
    assert all(type(model.get_submodule(name)) is kind for name in found)
    for name, part in plain.named_modules():
        if name and name not in found:
            assert type(model.get_submodule(name)) is type(part)
    parameters = dict(model.named_parameters())
    assert list(parameters) == [name for name, _ in plain.named_parameters()]
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameters[name], parameter)
        assert parameters[name].dtype is torch.float32


@pytest.mark.parametrize("precision", ["float32", "bf16", "float8"])
def test_what_is_computed_in_what(precision: str) -> None:
    """1. Norms and residuals are float32. 2. Attention and head are float32 or bfloat16, never eight bits."""
    model, _ = made(Numerics(precision=precision))
    seen: dict[str, torch.dtype] = {}
    for name, part in model.named_modules():
        part.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out.dtype))
    logits = Arithmetic(model, Numerics(precision=precision)).forward(1, TOKENS)
    wide = torch.float32 if precision == "float32" else torch.bfloat16
    assert logits.dtype is torch.float32
    assert seen["blocks.0.attention_norm"] is seen["norm"] is seen["blocks.1"] is torch.float32
    assert seen["blocks.0.attention.query"] is seen["head"] is seen["blocks.0.feed_forward.up"] is wide


def test_float32_is_what_it_was() -> None:
    """The default does not touch a bit of the model's own result."""
    model, _ = made(Numerics())
    assert torch.equal(Arithmetic(model, Numerics()).forward(1, TOKENS), model(TOKENS))


@pytest.mark.parametrize(
    ("numerics", "device", "features", "words"),
    [
        (
            Numerics(precision="float8"),
            Device(kind="cuda", name="NVIDIA A100", capability=(8, 0), torchao=True),
            (),
            ("NVIDIA A100", "8.0", "8.9", "--precision bf16"),
        ),
        (Numerics(precision="float8"), HOPPER.but(torchao=False), (), ("torchao", "pip install 'trainmaster[float8]'")),
        (Numerics(precision="float8"), HOPPER, (256, 700), ("700", "multiples of 16", "704")),
        (
            Numerics(precision="bf16", sparsity="2:4"),
            Device(kind="cuda", name="Tesla V100", capability=(7, 0)),
            (),
            ("Tesla V100", "7.0", "8.0", "--sparsity none"),
        ),
        (Numerics(sparsity="2:4"), HOPPER, (), ("float32", "--precision bf16")),
        (Numerics(sparsity="2:4"), Device(), (16, 30), ("30", "multiple of 4", "32")),
        (Numerics(precision="float8", sparsity="2:4"), Device(), (), ("do not go together", "bf16")),
        (Numerics(mask_steps=0), Device(), (), ("--mask-steps 0", "1 or more")),
    ],
)
def test_refusals(numerics: Numerics, device: Device, features: tuple[int, ...], words: tuple[str, ...]) -> None:
    """A sentence with the reason, the numbers, and what to choose instead."""
    sentence = refusal(numerics, device, features)
    assert all(word in sentence for word in words), sentence


@pytest.mark.parametrize(
    ("numerics", "device", "features"),
    [
        (Numerics(precision="float8"), HOPPER, (256, 704)),
        (Numerics(precision="float8"), HOPPER.but(capability=(8, 9)), (16,)),
        (Numerics(precision="bf16", sparsity="2:4"), HOPPER, (256,)),
        (Numerics(precision="float8"), Device(), (7, 33)),
        (Numerics(sparsity="2:4"), Device(), (12,)),
        (Numerics(), HOPPER.but(capability=(6, 0), torchao=False), (7,)),
    ],
)
def test_what_can_be_had(numerics: Numerics, device: Device, features: tuple[int, ...]) -> None:
    assert refusal(numerics, device, features) == ""


def test_a_refused_choice_changes_nothing() -> None:
    """1. A width that does not go. 2. The error comes before any layer is replaced."""
    model = Llama(Shape(vocabulary=64, dim=16, layers=1, heads=4, key_heads=2, hidden=30, context=8))
    with pytest.raises(TrainingError, match="30 inputs"):
        convert(model, Numerics(sparsity="2:4"))
    assert not any(isinstance(part, SparseLinear) for part in model.modules())


def test_the_command_line() -> None:
    assert chosen(arguments([])) == Numerics()
    given = ["--precision", "bf16", "--sparsity", "2:4", "--mask-steps", "5"]
    assert chosen(arguments(given)) == Numerics(precision="bf16", sparsity="2:4", mask_steps=5)
    with pytest.raises(SystemExit):
        arguments(["--precision", "float16"])
    assert isinstance(arguments([]), argparse.Namespace)


def test_masks_are_drawn_every_so_many_steps() -> None:
    """1. Masks at step 1, kept at 2 and 3, drawn at 4. 2. Without any (a checkpoint had none) at once."""
    numerics = Numerics(sparsity="2:4", mask_steps=3)
    model, _ = made(numerics)
    arithmetic = Arithmetic(model, numerics)
    part = model.blocks[0].feed_forward.gate
    drawings = []
    for step in range(1, 8):
        with torch.no_grad():
            part.weight.copy_(part.weight.roll(1, dims=1))
        before = part.mask.clone()
        arithmetic.forward(step, TOKENS)
        drawings.append(not torch.equal(before, part.mask))
        assert part.mask.reshape(-1, 4).sum(dim=1).tolist() == [2] * (part.weight.numel() // 4)
    assert drawings == [True, False, False, True, False, False, True]
    part.mask.zero_()
    arithmetic.forward(9, TOKENS)
    assert int(part.mask.sum()) == part.weight.numel() // 2


def test_overflow_is_told_once_and_with_the_layer() -> None:
    """1. A weight is infinite. 2. The news name layer and count; the next step has its own. 3. All well: no news."""
    model, _ = made(Numerics(precision="float8"))
    arithmetic = Arithmetic(model, Numerics(precision="float8"))
    arithmetic.forward(1, TOKENS)
    assert arithmetic.news() == ""
    with torch.no_grad():
        model.blocks[1].feed_forward.up.weight[0, 0] = torch.inf
    logits = arithmetic.forward(2, TOKENS)
    assert not bool(logits.isfinite().all())
    news = arithmetic.news()
    assert "1 in blocks.1.feed_forward.up" in news
    assert "--precision bf16" in news
    assert arithmetic.news() == ""


def test_a_resume_in_another_arithmetic_says_what_happens() -> None:
    """1. The same: nothing. 2. Another precision: weights are taken over, losses are of the new one. 3. Masks that come
    or go: the loss jumps. 4. A checkpoint that names none: nothing."""

    def told(saved: str, now: str) -> list[str]:
        position = Position(samples=8, global_batch=8, step=20, numerics=saved)
        return [warning.sentence for warning in proceed(position, 1, 8, now).warnings]

    assert told("float8", "float8") == told("", "float8") == []
    (precision,) = told("bf16", "float8")
    assert "step 20 was computed in bf16, and float8 goes on" in precision
    assert "bit for bit" in precision
    assert "jump" not in precision
    assert "half of the feed-forward weights fall out" in told("bf16", "bf16 2:4")[0]
    assert "count again" in told("bf16 2:4", "bf16")[0]
    assert Numerics(precision="bf16", sparsity="2:4").name == "bf16 2:4"
