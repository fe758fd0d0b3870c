"""float8 through torchao and packed 2:4 weights, on a GPU that has them: near bf16 on the same GPU."""

import importlib.util

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as functional  # noqa: E402

from trainmaster.training.reference.model import Llama, Shape  # noqa: E402
from trainmaster.training.reference.numerics import Arithmetic, Numerics, convert  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.torch]
SHAPE = Shape(vocabulary=512, dim=256, layers=2, heads=8, key_heads=4, hidden=704, context=64)
BF16 = Numerics(precision="bf16")


def trained(numerics: Numerics, steps: int = 40) -> float:
    """Mean loss of the last four steps on a text that repeats itself."""
    model = Llama(SHAPE)
    model.draw_weights(1)
    model.cuda()
    names = convert(model, numerics)
    assert len(names) == (0 if numerics == BF16 else 6)
    arithmetic = Arithmetic(model, numerics)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.arange(8 * 65, device="cuda").reshape(8, 65) * 7 % 512
    told = []
    for step in range(1, steps + 1):
        logits = arithmetic.forward(step, tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(loss.item())
    assert told[-1] < told[0] - 0.5
    return sum(told[-4:]) / 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed: extra float8")
@pytest.mark.filterwarnings("ignore")
def test_float8_through_torchao() -> None:
    """1. Forty steps in bf16, and in float8 on a GPU from 8.9 on. 2. Losses end near each other."""
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs compute capability 8.9")
    assert abs(trained(Numerics(precision="float8")) - trained(BF16)) < 0.15


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.filterwarnings("ignore")
def test_packed_weights() -> None:
    """1. One layer: the packed product and both gradients are those of the masked product. 2. Forty steps end near
    bf16."""
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("needs compute capability 8.0")
    from trainmaster.training.reference.sparsity import SparseLinear

    part = SparseLinear(torch.nn.Linear(256, 704, bias=False, device="cuda"))
    x = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    out = part(x)
    kept = (part.weight * part.mask).to(torch.bfloat16).detach()
    exact = functional.linear(x, kept)
    assert (out - exact).norm() < 0.01 * exact.norm()
    out.backward(torch.ones_like(out))
    assert torch.allclose(x.grad, torch.ones_like(out) @ kept, rtol=0.02, atol=0.02)
    assert bool((part.weight.grad[part.mask == 0] != 0).any()), "weights that are left out learn nothing"
    assert abs(trained(Numerics(precision="bf16", sparsity="2:4")) - trained(BF16)) < 0.5
