"""Replicas that are compared: any flipped bit shows, the right rank is named, and what is no replica raises no alarm.

Ranks are threads here, which exchange what they would send over a process group.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from trainmaster.training import replicas  # noqa: E402
from trainmaster.training.replicas import PeerDisagreed, ReplicaDisagreement, Replicas, checksum  # noqa: E402

pytestmark = pytest.mark.torch
PATIENCE_S = 30.0


class Gang:
    """Ranks of a job, each with a model of its own."""

    def __init__(self, ranks: int, every: int = 10, asked: bool = True, before: frozenset[str] = frozenset()) -> None:
        self.ranks = ranks
        self._barrier = threading.Barrier(ranks)
        self._local = threading.local()
        self._slots: list[Any] = [None] * ranks
        self.told: list[str] = []
        self.distrusted: list[int] = []
        self.agreed: list[frozenset[str]] = []
        self.models = [self._model() for _ in range(ranks)]
        self.optimizers = [torch.optim.AdamW(model.parameters()) for model in self.models]
        self.checks = [
            Replicas(
                every,
                asked,
                f"h{rank}",
                self.told.append if rank == 0 else lambda _: None,
                self.distrusted.append,
                before if rank == 0 else frozenset(),
                self.agreed.append,
            )
            for rank in range(ranks)
        ]

    @staticmethod
    def _model() -> torch.nn.Module:
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 1))

    def gather(self, value: Any) -> list[Any]:
        self._slots[self._local.rank] = value
        self._barrier.wait(PATIENCE_S)
        found = list(self._slots)
        self._barrier.wait(PATIENCE_S)
        return found

    def all_gather(self, into: list[Any], mine: Any) -> None:
        for place, value in zip(into, self.gather(mine), strict=True):
            place.copy_(value)

    @contextmanager
    def exchanging(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        with patch.context() as inner:
            inner.setattr(replicas, "gather", self.gather)
            own = SimpleNamespace(
                get_rank=lambda: self._local.rank, get_world_size=lambda: self.ranks, all_gather=self.all_gather
            )
            inner.setattr(replicas, "dist", own)
            yield

    def all(self, act: Callable[[int], None], patch: pytest.MonkeyPatch) -> list[Exception | None]:
        """Lets every rank act, and returns what each raised."""
        raised: list[Exception | None] = [None] * self.ranks

        def run(rank: int) -> None:
            self._local.rank = rank
            try:
                act(rank)
            except Exception as error:  # noqa: BLE001  (the test looks at it)
                raised[rank] = error

        with self.exchanging(patch):
            threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.ranks)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads)
        return raised

    def step(self, rank: int, inputs: torch.Tensor) -> None:
        self.models[rank](inputs).sum().backward()
        self.optimizers[rank].step()
        self.optimizers[rank].zero_grad()

    def train(self, until: int, patch: pytest.MonkeyPatch, saves: tuple[int, ...] = ()) -> list[Exception | None]:
        """Steps from the beginning, checked as a session does."""

        def act(rank: int) -> None:
            self.checks[rank].watch(self.models[rank], self.optimizers[rank], 0)
            for step in range(1, until + 1):
                self.step(rank, torch.full((2, 5), float(step)))
                self.checks[rank].check(step, saving=step in saves)

        return self.all(act, patch)

    def check(self, step: int, patch: pytest.MonkeyPatch, saving: bool = False) -> list[Exception | None]:
        return self.all(lambda rank: self.checks[rank].check(step, saving), patch)


def flip(tensor: torch.Tensor, element: int, bit: int) -> None:
    """Flips one bit in place."""
    words = tensor.detach().view(-1).view(torch.int32)
    words[element] ^= 1 << bit if bit < 31 else -(1 << 31)


def test_replicas_that_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Four ranks train alike for 40 steps. 2. Nobody says anything; the last agreement is of step 40."""
    gang = Gang(4)
    assert gang.train(40, monkeypatch) == [None] * 4
    assert [check.agreed_step for check in gang.checks] == [40] * 4
    assert gang.told == []


def test_what_agreed_before_and_is_restored_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Four ranks agree, and that is kept by name. 2. In the next membership rank 1 begins with another bias. 3. At
    the first look it is named, and what this membership took is distrusted. 4. Nobody knew that bias as a replica: it
    is one of each rank's own, and left out, which is kept as well."""
    first = Gang(4)
    first.train(3, monkeypatch)
    (names,) = first.agreed
    assert {"0.weight", "1.bias", "0.weight/exp_avg"} <= names
    again = Gang(4, before=names)
    flip(again.models[1][1].bias, 0, 12)
    raised = again.train(3, monkeypatch)
    assert [type(each) for each in raised] == [PeerDisagreed, ReplicaDisagreement, PeerDisagreed, PeerDisagreed]
    assert "rank 1 on h1 differs from ranks 0, 2-3 in 1.bias" in str(raised[1])
    assert (again.distrusted, again.agreed) == ([0], [])
    other = Gang(4, before=names - {"1.bias"})
    flip(other.models[1][1].bias, 0, 12)
    assert other.train(3, monkeypatch) == [None] * 4
    assert other.agreed[0] == names - {"1.bias"}


def test_one_flipped_bit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. After step 25 one bit of a weight of rank 2 flips. 2. At the next look rank 2 is named with its host and the
    tensor; the others say that they lost a peer. 3. What came after step 20 is distrusted, before anybody leaves."""
    gang = Gang(4)
    gang.train(25, monkeypatch)
    flip(gang.models[2][0].weight, 7, 12)
    assert gang.check(29, monkeypatch) == [None] * 4
    raised = gang.check(30, monkeypatch)
    assert [type(error) for error in raised] == [PeerDisagreed, PeerDisagreed, ReplicaDisagreement, PeerDisagreed]
    assert str(raised[2]) == (
        "replicas disagree: rank 2 on h2 differs from ranks 0-1, 3 in 0.weight (1 of 12 tensors) after step 30; "
        "they agreed after step 20"
    )
    assert gang.distrusted == [20]


def test_optimizer_state_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A bit flips in a moment of rank 1. 2. It is found, by its name."""
    gang = Gang(3)
    gang.train(10, monkeypatch)
    flip(gang.optimizers[1].state[gang.models[1][1].bias]["exp_avg_sq"], 0, 3)
    raised = gang.check(20, monkeypatch)
    assert isinstance(raised[1], ReplicaDisagreement)
    assert "1.bias/exp_avg_sq" in str(raised[1])


def test_before_a_save_all_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A bit flips after step 25, and step 26 is saved. 2. It is found before, so nothing wrong is written."""
    gang = Gang(4, every=100)
    gang.train(25, monkeypatch, saves=(20,))
    flip(gang.models[0][1].weight, 0, 31)
    raised = gang.check(26, monkeypatch, saving=True)
    assert isinstance(raised[0], ReplicaDisagreement)
    assert gang.distrusted == [20]


def test_two_replicas_have_no_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Of two ranks one is wrong. 2. Both say that nobody can tell which."""
    gang = Gang(2)
    gang.train(10, monkeypatch)
    flip(gang.models[1][0].bias, 0, 0)
    raised = gang.check(20, monkeypatch)
    assert [type(error) for error in raised] == [ReplicaDisagreement] * 2
    assert "no majority says who is right" in str(raised[0])


def test_what_is_no_replica_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Each rank has a bias of its own from the start. 2. That is said once, and no alarm is raised for it. 3. The
    rest is compared all the same."""
    gang = Gang(3)
    for rank, model in enumerate(gang.models):
        model[1].bias.data.fill_(float(rank))
    assert gang.train(30, monkeypatch) == [None] * 3
    assert gang.told == ["agreement is not checked for 1 of 12 tensors that differ from the start: 1.bias"]
    flip(gang.models[1][0].weight, 0, 5)
    assert isinstance(gang.check(40, monkeypatch)[1], ReplicaDisagreement)


def test_where_nothing_is_alike_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Ranks hold tensors of their own names. 2. Whoever asked for the check is told that it can't be done."""
    gang = Gang(2)
    for rank in range(2):
        gang.models[rank] = torch.nn.ModuleDict({f"stage{rank}": torch.nn.Linear(5, 1)})
        gang.optimizers[rank] = torch.optim.AdamW(gang.models[rank].parameters())
    gang.step = lambda rank, inputs: None  # type: ignore[method-assign]
    assert gang.train(20, monkeypatch) == [None] * 2
    assert gang.told == [
        "agreement can't be checked: no two ranks hold the same parameters (each rank holds a shard of its own)"
    ]


def test_nothing_is_done_when_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. 0 steps. 2. No word is exchanged, whatever differs."""
    gang = Gang(2, every=0)
    flip(gang.models[1][0].bias, 0, 0)
    assert gang.train(3, monkeypatch, saves=(2,)) == [None] * 2
    assert [check.agreed_step for check in gang.checks] == [0, 0]


DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float64,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(DTYPES), st.integers(1, 67), st.integers(0, 3), st.data())
def test_any_flipped_bit_changes_the_sum(dtype: torch.dtype, length: int, offset: int, data: st.DataObject) -> None:
    """1. A tensor of any type and length, at any place in its storage. 2. One bit flips, anywhere. 3. The sum differs;
    flipped back it is as before."""
    size = torch.empty((), dtype=dtype).element_size()
    base = torch.randint(0, 256, (size * (length + offset),), dtype=torch.uint8)
    memory = base if dtype is not torch.bool else base % 2
    tensor = memory.view(dtype)[offset:]
    before = int(checksum(tensor))
    place = data.draw(st.integers(size * offset, len(memory) - 1))
    bit = data.draw(st.integers(0, 7)) if dtype is not torch.bool else 0
    memory[place] ^= 1 << bit
    assert int(checksum(tensor)) != before
    memory[place] ^= 1 << bit
    assert int(checksum(tensor)) == before


def test_a_tensor_with_gaps() -> None:
    """1. Every other column of a matrix. 2. Its sum is that of the same numbers without gaps."""
    tensor = torch.randn(6, 8)[:, ::2]
    assert int(checksum(tensor)) == int(checksum(tensor.clone(memory_format=torch.contiguous_format)))
    assert int(checksum(torch.empty(0))) == 0
