"""Training in another arithmetic ends near bf16: how near is stated here, and checked.

The distance is that of the mean loss of the last tenth of the steps. `make prove NAME=numerics` trains the model of
five million parameters.
"""

import os
from functools import cache

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as functional  # noqa: E402

from trainmaster.training.reference import corpus  # noqa: E402
from trainmaster.training.reference.data import Samples  # noqa: E402
from trainmaster.training.reference.model import Llama, Shape  # noqa: E402
from trainmaster.training.reference.numerics import Arithmetic, Numerics, convert  # noqa: E402
from trainmaster.training.reference.optimizer import ShardAdamW  # noqa: E402

pytestmark = pytest.mark.torch
STEPS = int(os.environ.get("TRAINMASTER_NUMERICS_STEPS", "0"))
SMALL = Shape(vocabulary=2048, dim=32, layers=2, heads=4, key_heads=2, hidden=64, context=16)
SHAPE = Shape(vocabulary=2048, context=64) if STEPS else SMALL
FLOAT8_DISTANCE = 0.05 if STEPS else 0.02
SPARSE_DISTANCE = 0.3 if STEPS else 0.1
"""Half of the feed-forward weights are gone: the larger model has more to learn by then, and feels it."""
BF16 = Numerics(precision="bf16")
FLOAT8 = Numerics(precision="float8")
SPARSE = Numerics(precision="bf16", sparsity="2:4")


@cache
def losses(numerics: Numerics, steps: int = STEPS or 60) -> tuple[float, ...]:
    torch.set_num_threads(1)
    model = Llama(SHAPE)
    model.draw_weights(1)
    convert(model, numerics)
    arithmetic = Arithmetic(model, numerics)
    optimizer = ShardAdamW(model.parameters(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.1)
    samples = Samples(corpus.tokens(), SHAPE.context, 1)
    told = []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = (1e-3 if STEPS else 3e-3) * min(1.0, step / 20)
        inputs, targets = samples.batch((step - 1) * 8, 8, 0, 1)
        loss = functional.cross_entropy(arithmetic.forward(step, inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        told.append(loss.item())
    assert arithmetic.news() == ""
    return tuple(told)


def last(numerics: Numerics) -> float:
    """Mean loss of the last tenth."""
    told = losses(numerics)
    return sum(told[-len(told) // 10 :]) / len(told[-len(told) // 10 :])


@pytest.mark.parametrize(("numerics", "distance"), [(FLOAT8, FLOAT8_DISTANCE), (SPARSE, SPARSE_DISTANCE)])
def test_the_loss_is_near_that_of_bf16(numerics: Numerics, distance: float) -> None:
    """1. bf16 learns. 2. The other ends within the stated distance, and is not the same thing under another name."""
    assert losses(BF16)[0] - last(BF16) > 1.0
    print(f"{numerics.name}: {last(numerics) - last(BF16):+.4f} of {last(BF16):.4f}")
    assert abs(last(numerics) - last(BF16)) <= distance
    assert losses(numerics) != losses(BF16)


@pytest.mark.parametrize("numerics", [BF16, FLOAT8, SPARSE])
def test_the_same_run_gives_the_same_losses(numerics: Numerics) -> None:
    """To the bit, from the same seed."""
    steps = 12
    assert losses.__wrapped__(numerics, steps) == losses.__wrapped__(numerics, steps)
