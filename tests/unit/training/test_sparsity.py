"""Two of every four."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from trainmaster.training.reference.sparsity import SparseLinear, strongest  # noqa: E402

pytestmark = pytest.mark.torch


def layer(rows: list[list[float]]) -> SparseLinear:
    weight = torch.tensor(rows)
    plain = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    with torch.no_grad():
        plain.weight.copy_(weight)
    return SparseLinear(plain)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, -1.0, 2.5, -3.0]), min_size=8, max_size=8), min_size=1, max_size=4))
def test_exactly_two_of_four_and_the_largest(rows: list[list[float]]) -> None:
    """1. Any weights, with ties and zeros. 2. Each four have two kept, and none that is left out is larger."""
    weight = torch.tensor(rows)
    mask = strongest(weight)
    groups, kept = weight.abs().reshape(-1, 4), mask.reshape(-1, 4).bool()
    assert kept.sum(dim=1).tolist() == [2] * len(groups)
    for values, chosen in zip(groups, kept, strict=True):
        assert values[chosen].min() >= values[~chosen].max()


def test_ties_go_to_the_first() -> None:
    assert strongest(torch.ones(1, 8)).tolist() == [[1, 1, 0, 0, 1, 1, 0, 0]]


def test_half_of_the_weights_count_and_all_learn() -> None:
    """1. The product is that of the two largest. 2. The gradient is that of all (straight through)."""
    one = layer([[1.0, -4.0, 3.0, 2.0]])
    x = torch.tensor([[1.0, 10.0, 100.0, 1000.0]])
    out = one(x)
    assert out.item() == -40.0 + 300.0
    out.sum().backward()
    assert one.weight.grad.tolist() == x.tolist()


def test_masks_stay_until_they_are_drawn_anew() -> None:
    """1. A weight that is left out grows. 2. It counts only after the next drawing."""
    one = layer([[1.0, -4.0, 3.0, 2.0]])
    one(torch.ones(1, 4))
    with torch.no_grad():
        one.weight[0, 0] = 50.0
    assert one(torch.ones(1, 4)).item() == -1.0
    one.due = True
    assert one(torch.ones(1, 4)).item() == 46.0
    assert one.mask.tolist() == [[1, 1, 0, 0]]


def test_masks_are_state() -> None:
    """A copy that is loaded has the mask, although its weights would give another one."""
    one = layer([[1.0, -4.0, 3.0, 2.0]])
    one(torch.ones(1, 4))
    with torch.no_grad():
        one.weight[0, 0] = 50.0
    other = layer([[0.0, 0.0, 0.0, 0.0]])
    other.load_state_dict(one.state_dict())
    other.due = False
    assert other(torch.ones(1, 4)).item() == -1.0
