"""Snapshots: what they hold is the state of one moment, whole, whoever dies and whatever is written meanwhile."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: E402

from trainmaster.core.checkpoint.position import Position  # noqa: E402
from trainmaster.storage import arena as arenas  # noqa: E402
from trainmaster.storage.arena import Snapshot  # noqa: E402
from trainmaster.storage.contents import Unsound  # noqa: E402
from trainmaster.storage.memory_store import index_over  # noqa: E402
from trainmaster.training.distcp import CarefulPlanner  # noqa: E402
from trainmaster.training.distcp.reader import MemoryReader  # noqa: E402
from trainmaster.training.errors import TrainingError  # noqa: E402
from trainmaster.training.snapshot import Changed, Snapshotter  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def fd() -> Iterator[int]:
    made = arenas.make("test")
    yield made
    os.close(made)


def at(step: int) -> Position:
    return Position(samples=8 * step, global_batch=8, step=step)


class Trained:
    """A model of some megabytes, and its optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(700, 700), torch.nn.Linear(700, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.learn()
        self.optimizer.step()

    def learn(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(2, 700)).square().mean().backward()

    def state(self) -> dict[str, Any]:
        """A copy."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return copied({"model": model, "optimizer": optimizer})


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: copied(each) for name, each in value.items()}
    if isinstance(value, list):
        return [copied(each) for each in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(torch.equal(one, other)) if isinstance(one, torch.Tensor) else bool(one == other)


def loaded(snapshot: Snapshot | None) -> dict[str, Any]:
    assert snapshot is not None
    state = Trained().state()
    dcp.load(state, storage_reader=MemoryReader([snapshot]), planner=CarefulPlanner())
    return state


def test_a_snapshot_is_the_state_of_its_step(fd: int) -> None:
    """1. A snapshot of step 1. 2. Training goes on, with another learning rate. 3. The snapshot is still step 1's.
    4. The next one is step 2's, with the new rate, and the one before it is still there."""
    trained = Trained()
    snapshotter = Snapshotter.of(fd, trained.model, trained.optimizer)
    first = trained.state()
    snapshotter.take(at(1))
    held = snapshotter.newest()
    trained.learn()
    trained.optimizer.step()
    trained.optimizer.param_groups[0]["lr"] = 0.0625
    assert equal(loaded(snapshotter.newest()), first)
    snapshotter.take(at(2))
    newest = snapshotter.newest()
    assert newest is not None
    assert newest.table.position == at(2)
    assert equal(loaded(newest), trained.state())
    assert loaded(newest)["optimizer"]["param_groups"][0]["lr"] == 0.0625
    assert equal(loaded(held), first)


def test_the_optimizer_waits_for_a_copy_that_is_under_way(fd: int) -> None:
    """1. A copy begins after a step and the next one computes. 2. The optimizer is about to write. 3. Ten times, the
    snapshot is of the moment at which it began."""
    trained = Trained()
    snapshotter = Snapshotter.of(fd, trained.model, trained.optimizer)
    snapshotter.guard(trained.optimizer)
    for step in range(1, 11):
        before = trained.state()
        snapshotter.start(at(step))
        trained.learn()
        trained.optimizer.step()
        newest = snapshotter.newest()
        assert newest is not None
        assert newest.table.position.step == step
        assert equal(loaded(newest), before)


def test_death_in_a_copy_leaves_the_last_one_whole(fd: int) -> None:
    """1. A process takes two snapshots, begins a third and dies in the middle of it. 2. The one that holds the memory
    has the second one, whole. 3. So has a Snapshotter that is made over it, until its own first."""
    trained = Trained()
    expected = trained.state()
    snapshotter = Snapshotter.of(fd, trained.model, trained.optimizer)
    child = os.fork()
    if child == 0:
        snapshotter.take(at(1))
        snapshotter.take(at(2))
        part = snapshotter._arena.begin()
        assert part is not None
        part.payload[:1000] = bytes(1000)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other = Trained()
    again = Snapshotter.of(fd, other.model, other.optimizer)
    newest = again.newest()
    assert newest is not None
    assert newest.table.position == at(2)
    assert equal(loaded(newest), expected)
    again.take(at(3))
    after = again.newest()
    assert after is not None
    assert (after.table.position, after.sequence) == (at(3), newest.sequence + 1)


def test_an_exchanged_tensor_is_noticed(fd: int) -> None:
    trained = Trained()
    snapshotter = Snapshotter.of(fd, trained.model, trained.optimizer)
    trained.model[0].weight.data = torch.zeros(700, 700)
    with pytest.raises(TrainingError, match="exchanged"):
        snapshotter.take(at(1))


def test_a_state_that_changes_during_the_copy_is_refused(fd: int) -> None:
    """1. Nobody guards the optimizer, which writes while a copy is under way. 2. The copy is not taken for a snapshot,
    and the one before it is the newest. 3. So for a write by hand, and for one to a moment."""
    trained = Trained()
    snapshotter = Snapshotter.of(fd, trained.model, trained.optimizer)
    snapshotter.take(at(1))
    moment = trained.optimizer.state[trained.model[0].weight]["exp_avg"]

    def by_hand() -> None:
        with torch.no_grad():
            trained.model[0].weight.mul_(2)

    for step, write in enumerate((trained.optimizer.step, by_hand, lambda: moment.add_(1)), 2):
        part, items, values = snapshotter._begin(())
        write()
        with pytest.raises(Changed):
            snapshotter._finish(part, items, values, at(step))
        newest = snapshotter.newest()
        assert newest is not None
        assert newest.table.position == at(1)


def test_buffers_may_change_in_the_forward_pass(fd: int) -> None:
    """1. A model whose forward pass changes its buffers. 2. The copy is that of the step, though it ran beside one."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(500, 500), torch.nn.BatchNorm1d(500))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 500)).sum().backward()
    optimizer.step()
    snapshotter = Snapshotter.of(fd, model, optimizer)
    snapshotter.guard(optimizer)
    mean = model[1].running_mean.clone()
    snapshotter.start(at(1))
    model(torch.randn(9, 500)).sum().backward()
    optimizer.step()
    newest = snapshotter.newest()
    assert newest is not None
    assert not torch.equal(model[1].running_mean, mean)
    target = {"model": {"1.running_mean": torch.zeros(500)}}
    dcp.load(target, storage_reader=MemoryReader([newest]), planner=CarefulPlanner())
    assert torch.equal(target["model"]["1.running_mean"], mean)


def test_the_guard_can_be_taken_away(fd: int) -> None:
    trained = Trained()
    snapshotter = Snapshotter.of(fd, trained.model, trained.optimizer)
    snapshotter.guard(trained.optimizer)()
    assert not trained.optimizer._optimizer_step_pre_hooks


def test_a_hundred_snapshots_take_no_more_memory_than_ten(fd: int) -> None:
    trained = Trained()
    snapshotter = Snapshotter.of(fd, trained.model, trained.optimizer)
    snapshotter.guard(trained.optimizer)
    resident = []
    for step in range(1, 111):
        snapshotter.start(at(step))
        trained.learn()
        trained.optimizer.step()
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
    assert resident[-1] - resident[9] < snapshotter.size_bytes / 2


def test_memory_that_is_not_there_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(needed_bytes: int) -> None:
        raise OSError(errno.ENOMEM, f"{needed_bytes}")

    monkeypatch.setattr(arenas, "refuse_full", full)
    trained = Trained()
    with pytest.raises(OSError, match=r"\[Errno 12\]"):
        Snapshotter.of(tmp_path / "arena-0", trained.model, trained.optimizer)
    assert not list(tmp_path.iterdir())
    deferred = Snapshotter.of(tmp_path / "arena-0", trained.model, trained.optimizer, deferred=True)
    with pytest.raises(TrainingError, match="not there yet"):
        deferred.take(at(1))


def test_a_state_with_gaps_is_refused(fd: int) -> None:
    with pytest.raises(TrainingError, match="has gaps"):
        Snapshotter(fd, {"w": torch.ones(8, 8).t()})


def test_a_flipped_bit_in_a_table_makes_the_older_one_the_newest(fd: int) -> None:
    trained = Trained()
    snapshotter = Snapshotter.of(fd, trained.model, trained.optimizer)
    for step in (1, 2):
        snapshotter.take(at(step))
    newest = snapshotter.newest()
    assert newest is not None
    part = [snapshotter._arena._sequence(each) for each in range(3)].index(newest.sequence)
    snapshotter._arena._areas(part)[0][5] ^= 1
    left = snapshotter.newest()
    assert left is not None
    assert left.table.position == at(1)


def test_snapshots_that_do_not_fit_together_are_refused(fd: int) -> None:
    """1. Of different steps. 2. Of two ranks of which one is missing. 3. None is in fresh memory."""
    trained = Trained()
    snapshotter = Snapshotter.of(fd, trained.model, trained.optimizer)
    assert snapshotter.newest() is None
    snapshotter.take(at(1))
    first = snapshotter.newest()
    snapshotter.take(at(2))
    second = snapshotter.newest()
    assert first is not None
    assert second is not None
    with pytest.raises(Unsound, match="not of one step"):
        index_over([first, second])
    half = Snapshot(1, first.table.but(world=2), first.payload)
    with pytest.raises(Unsound, match="snapshot of rank 1 is missing"):
        index_over([half])
