"""8-bit products: exact where they can be, close where they can't, and nothing infinite is made finite."""

import pytest

torch = pytest.importorskip("torch")

from trainmaster.training.reference.float8 import FLOOR, GRADIENT, INPUT, Float8Linear, product, rounded, scale_of  # noqa: E402

pytestmark = pytest.mark.torch
UNEVEN = [(1, 8, 4), (7, 5, 3), (64, 33, 17), (2, 16, 2), (5, 1, 1)]
"""Rows, inputs, outputs."""


def drawn(*shape: int, seed: int = 1) -> "torch.Tensor":
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layers(inputs: int, outputs: int) -> tuple["torch.nn.Linear", Float8Linear]:
    plain = torch.nn.Linear(inputs, outputs, bias=False)
    with torch.no_grad():
        plain.weight.copy_(drawn(outputs, inputs, seed=2))
    other = torch.nn.Linear(inputs, outputs, bias=False)
    other.load_state_dict(plain.state_dict())
    return plain, Float8Linear(other)


@pytest.mark.parametrize("shape", UNEVEN)
def test_products_are_those_of_scaled_mm(shape: tuple[int, int, int]) -> None:
    """1. Matrices of uneven sizes, one of them of gradients. 2. The product is that of PyTorch's own, to the
    last bit of bfloat16."""
    rows, inputs, outputs = shape
    weight, weight_scale, _ = rounded(drawn(outputs, inputs), INPUT)
    for form in (INPUT, GRADIENT):
        left, scale, _ = rounded(drawn(rows, inputs, seed=3), form)
        ours = product(left, scale, weight.t(), weight_scale)
        theirs = torch._scaled_mm(left, weight.t(), scale_a=scale, scale_b=weight_scale, out_dtype=torch.float32)
        assert ours.dtype is torch.bfloat16
        assert torch.allclose(ours.float(), theirs, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("form", [INPUT, GRADIENT])
@pytest.mark.parametrize("size", [1e-30, 1e-8, 0.3, 1.0, 448.0, 3e4, 1e30])
def test_a_scale_fits_the_largest_and_wastes_less_than_half(form: "torch.dtype", size: float) -> None:
    """1. Scales are powers of two. 2. The largest number fits, and would not with half the scale."""
    values = torch.tensor([size, -size / 3, 0.0])
    scale = scale_of(values, form)
    assert torch.frexp(scale).mantissa == 0.5
    greatest = torch.finfo(form).max
    assert size / scale <= greatest < 2 * size / scale * (1 + 1e-6)


def test_zeros_have_a_scale() -> None:
    """1. A tensor of zeros, one of nothing, and one below the floor. 2. No scale is zero, no product is NaN."""
    for values in (torch.zeros(4, 4), torch.zeros(0, 4), torch.full((2, 4), FLOOR / 8)):
        assert scale_of(values, INPUT) > 0
    plain, layer = layers(4, 3)
    assert torch.equal(layer(torch.zeros(2, 4)).float(), torch.zeros(2, 3))
    assert layer(torch.zeros(0, 4)).shape == (0, 3)
    assert plain is not layer


def test_what_fits_is_exact() -> None:
    """1. Whole numbers below 16, a sum of products below 256. 2. Forward and both gradients are exact."""
    plain, layer = layers(4, 3)
    numbers = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 0.0]])
    for one in (plain, layer):
        with torch.no_grad():
            one.weight.copy_(torch.tensor([[1.0, 0.0, 2.0, 1.0], [0.5, 1.0, 0.0, 4.0], [3.0, 1.0, 1.0, 0.0]]))
    results = []
    for one in (plain, layer):
        x = numbers.clone().requires_grad_()
        out = one(x).float()
        (out * torch.tensor([[1.0, 2.0, 0.5], [4.0, 1.0, 2.0]])).sum().backward()
        results.append((out, x.grad, one.weight.grad))
    for ours, exact in zip(results[1], results[0], strict=True):
        assert torch.equal(ours, exact)


@pytest.mark.parametrize("shape", [*UNEVEN, (256, 64, 96)])
def test_forward_and_gradients_are_close(shape: tuple[int, int, int]) -> None:
    """1. Random numbers. 2. Relative distance to float32 below 6 % forward, and 12 % in gradients (two digits)."""
    rows, inputs, outputs = shape
    results = []
    for layer in layers(inputs, outputs):
        x = drawn(rows, inputs, seed=3).requires_grad_()
        out = layer(x).float()
        out.backward(drawn(rows, outputs, seed=4))
        assert layer.weight.grad is not None
        assert (layer.weight.grad.dtype, x.grad.dtype) == (torch.float32, torch.float32)
        results.append((out, x.grad, layer.weight.grad))
    for ours, exact, limit in zip(results[1], results[0], (0.06, 0.12, 0.12), strict=True):
        assert (ours - exact).norm() <= limit * exact.norm()
    assert not torch.equal(results[1][0], results[0][0]), "nothing was rounded"


def test_a_cast_alone_hides_infinity() -> None:
    """Why this is checked: PyTorch's cast makes 448 of it."""
    assert torch.tensor([torch.inf, 1e5]).to(INPUT).float().tolist() == [448.0, 448.0]


def test_infinite_numbers_are_counted_and_stay_visible() -> None:
    """1. Two infinite inputs. 2. Both are counted, their rows are NaN, the other row is what it would be. 3. An
    infinite gradient is counted too."""
    _, layer = layers(4, 3)
    rows = drawn(3, 4)
    clean = layer(rows)
    rows[1, 2], rows[2, 0] = torch.inf, -torch.inf
    out = layer(rows)
    assert layer.overflowed == 2
    assert bool(out[1:].isnan().all())
    assert torch.allclose(out[0].float(), clean[0].float(), rtol=0.1, atol=0.1)
    layer(drawn(1, 4)).backward(torch.tensor([[1.0, torch.inf, 0.0]], dtype=torch.bfloat16))
    assert layer.overflowed == 3
    assert not bool(layer.weight.grad.isfinite().all())
