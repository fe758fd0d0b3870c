"""The reference model and its data do not depend on how many ranks there are."""

from array import array

import pytest

torch = pytest.importorskip("torch")

from trainmaster.training.reference.data import Samples  # noqa: E402
from trainmaster.training.reference.main import arguments, main, misfit, rate_at  # noqa: E402
from trainmaster.training.reference.model import Llama, Shape  # noqa: E402
from trainmaster.training.reference.optimizer import ShardAdamW  # noqa: E402

pytestmark = pytest.mark.torch
SMALL = Shape(vocabulary=64, dim=16, layers=2, heads=4, key_heads=2, hidden=32, context=8)


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_ranks_share_a_batch_without_gap_or_overlap(world: int) -> None:
    """The rows of all ranks together are the rows that one rank alone would see."""
    samples = Samples(array("H", range(1000)), 10, seed=3)
    whole, _ = samples.batch(40, 8, 0, 1)
    parts = [samples.batch(40, 8, rank, world)[0] for rank in range(world)]
    assert sorted(row[0].item() for part in parts for row in part) == sorted(row[0].item() for row in whole)


def test_an_epoch_has_every_sample_once_and_the_next_another_order() -> None:
    samples = Samples(array("H", range(1001)), 10, seed=3)
    firsts = [samples.batch(at, 1, 0, 1)[0][0, 0].item() for at in range(2 * samples.count)]
    assert samples.count == 100
    assert sorted(firsts[:100]) == sorted(firsts[100:]) == list(range(0, 1000, 10))
    assert firsts[:100] != firsts[100:]


def test_targets_are_the_next_tokens() -> None:
    inputs, targets = Samples(array("H", range(1000)), 10, seed=3).batch(0, 4, 0, 1)
    assert torch.equal(inputs + 1, targets)


def test_weights_are_a_function_of_the_seed() -> None:
    first, second, other = Llama(SMALL), Llama(SMALL), Llama(SMALL)
    first.draw_weights(1)
    torch.manual_seed(99)
    second.draw_weights(1)
    other.draw_weights(2)
    pairs = list(zip(first.parameters(), second.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(first.head.weight, other.head.weight)
    assert not torch.equal(first.blocks[0].attention.query.weight, first.blocks[1].attention.query.weight)


def test_the_future_does_not_reach_the_past() -> None:
    """Changing the last token changes the last logits only."""
    model = Llama(SMALL)
    model.draw_weights(1)
    tokens = torch.arange(8)[None]
    changed = tokens.clone()
    changed[0, -1] = 63
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])


def test_the_default_model_has_five_million_parameters() -> None:
    with torch.device("meta"):
        model = Llama(Shape(vocabulary=2048))
    assert 5_000_000 <= sum(parameter.numel() for parameter in model.parameters()) <= 6_000_000


def test_the_learning_rate_rises_then_falls_to_a_tenth() -> None:
    options = arguments(["--steps=100", "--warmup-steps=10", "--learning-rate=1.0"])
    rates = [rate_at(step, options) for step in range(1, 101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == 1.0
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)


@pytest.mark.parametrize("precision", ["float32", "bf16", "float8"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--dim 60 --hidden 100", "--dim 60 with --heads 8 makes heads of unequal width"),
        (
            "--dim 56 --heads 8",
            "makes heads of 7, an odd width, and rotary positions turn pairs of elements: use --dim 64",
        ),
        ("--heads 8 --key-heads 3", "--heads 8 is no multiple of --key-heads 3"),
        ("--hidden 0", "--hidden 0 is too small: use 1 or more"),
        ("--key-heads 0", "--key-heads 0 is too small"),
        ("--layers -1", "--layers -1 is too small"),
        ("--steps -5", "--steps -5 is too small: use 0 or more"),
    ],
)
def test_sizes_that_make_no_model_are_refused(
    capsys: pytest.CaptureFixture[str], precision: str, given: str, told: str
) -> None:
    """1. Sizes that do not go together, in every precision. 2. A sentence with the option and a fix; exit code 2."""
    assert main([*given.split(), "--precision", precision]) == 2
    assert told in capsys.readouterr().err
    fits = ["--steps=0", "--dim=64", "--heads=8", "--key-heads=2", "--hidden=100", f"--precision={precision}"]
    assert misfit(arguments(fits)) == ""


def test_the_optimizer_is_adamw() -> None:
    """Twenty steps with weight decay give the weights, and the names of state, of the stock fused AdamW."""
    models = [torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)]
    models[1].load_state_dict(models[0].state_dict())
    options = {"lr": 0.05, "betas": (0.9, 0.95), "weight_decay": 0.1}
    optimizers = [
        ShardAdamW(models[0].parameters(), **options),
        torch.optim.AdamW(models[1].parameters(), **options, fused=True),
    ]
    for step in range(20):
        for model, optimizer in zip(models, optimizers, strict=True):
            model(torch.full((2, 5), float(step))).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert torch.equal(models[0].weight, models[1].weight)
    states = [optimizer.state_dict()["state"][0] for optimizer in optimizers]
    assert states[0].keys() == states[1].keys()
    assert states[0]["step"] == states[1]["step"] == 20
