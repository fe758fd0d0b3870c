"""When a session takes snapshots, and what it makes of the words of a vault, which is played by the test."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from trainmaster.core.agent import environment  # noqa: E402
from trainmaster.core.agent.vault_talk import PLACE_NAME, SOCKET_NAME, Announce, Peers, Place, ToVault, to_vault  # noqa: E402
from trainmaster.core.base.value import encode  # noqa: E402
from trainmaster.core.checkpoint.position import Position  # noqa: E402
from trainmaster.storage.arena import Arena, map_file  # noqa: E402
from trainmaster.training import surroundings  # noqa: E402
from trainmaster.training.agreement import maxima  # noqa: E402
from trainmaster.training.keeping import Keeping  # noqa: E402

pytestmark = pytest.mark.torch
DEADLINE_S = 30.0


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Job:
    """A model that trains, with its snapshots."""

    def __init__(self, folder: Path, vault: bool = False, **every: int) -> None:
        told = {
            environment.ARENA: str(folder / "arena-0"),
            environment.SNAPSHOT_EVERY_STEPS: str(every.get("snapshot", 1)),
            environment.REPLICATE_EVERY_STEPS: str(every.get("replicate", 1)),
        }
        if vault:
            told[environment.VAULT] = str(folder / SOCKET_NAME)
        self.said: list[str] = []
        self.path, self.step = folder / "arena-0", 0
        self.keeping = Keeping(surroundings.read(told, "h1"), self.said.append)
        torch.manual_seed(1)
        self.model = torch.nn.Linear(300, 300)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def train(self, steps: int = 1, store: bool = False, act: Callable[[], object] = lambda: None) -> None:
        for _ in range(steps):
            self.model(torch.ones(2, 300)).square().mean().backward()
            act()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            if store:
                self.keeping.want_store()
            agreed = maxima(*self.keeping.words(hurry=False))
            here = Position(samples=self.step, global_batch=1, step=self.step)
            self.keeping.go_on(agreed, here, self.model, self.optimizer, 0)

    def until(self, reached: Callable[[], object]) -> None:
        """Trains until something is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline, self.said
            self.train()

    @property
    def arena(self) -> Arena:
        found = map_file(self.path)
        assert found is not None
        return found

    def held(self) -> int:
        found = map_file(self.path)
        newest = found.newest() if found is not None else None
        return newest.table.position.step if newest is not None else 0


class FakeVault:
    """Listens, and says in the arena what the test lets it say."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(folder / SOCKET_NAME))
        self.be("one")

    def be(self, token: str) -> None:
        """Starts anew, under another token."""
        place = Place(host="h1", domain="r1", address="127.0.0.1", port=1, token=token)
        fresh = self._folder / "place.new"
        fresh.write_bytes(encode(place))
        os.rename(fresh, self._folder / PLACE_NAME)

    def heard(self) -> list[ToVault]:
        messages: list[ToVault] = []
        while True:
            try:
                messages.append(to_vault.decode(self._socket.recv(1 << 20)))
            except BlockingIOError:
                return messages

    def announced(self) -> list[Announce]:
        return [message for message in self.heard() if isinstance(message, Announce)]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("m")  # the path of a socket is short


@pytest.fixture
def vault(folder: Path) -> Iterator[FakeVault]:
    made = FakeVault(folder)
    yield made
    made.close()


def test_a_job_without_a_vault_keeps_every_step(folder: Path) -> None:
    """1. The first step plans; memory is made beside the next. 2. Then every step has its snapshot, of two parts. 3.
    Nothing is said, and storage is the session's."""
    job = Job(folder)
    job.until(lambda: job.held() > 0)
    for _ in range(5):
        job.train()
        job.keeping.settle()
        assert job.held() == job.step
    assert job.arena.parts == 2
    assert not job.keeping.stores
    assert job.said == []
    job.keeping.close()
    assert not job.optimizer._optimizer_step_pre_hooks


def test_every_third_step(folder: Path) -> None:
    job = Job(folder, snapshot=3)
    job.until(lambda: job.held() > 0)
    first = job.held()
    seen = set()
    for _ in range(7):
        job.train()
        job.keeping.settle()
        seen.add(job.held())
    assert seen <= {first, first + 3, first + 6, first + 9}
    job.keeping.close()


def test_the_next_snapshot_waits_for_the_copy_at_a_peer(folder: Path, vault: FakeVault) -> None:
    """1. A snapshot is announced once, as soon as it is whole. 2. Steps go on without another one, until the vault says
    that a peer has it, or that it gave up."""
    job = Job(folder, vault=True)
    job.train()
    assert job.keeping._vault is not None
    job.keeping._vault.has_peers = True
    job.until(lambda: job.held() > 0)
    job.keeping.settle()
    held = job.held()
    job.train(4)
    job.keeping.settle()
    assert job.held() == held
    announced = vault.announced()
    assert [(each.step, each.replicate, each.store) for each in announced] == [(held, True, False)]
    for word in ("replicated_sequence", "given_up_sequence"):
        job.arena.put_word(word, announced[-1].sequence)
        job.train()
        job.keeping.settle()
        assert job.held() == job.step
        announced = vault.announced()
        assert [each.step for each in announced] == [job.step]
    job.keeping.close()


def test_storage_is_written_from_a_snapshot(folder: Path, vault: FakeVault) -> None:
    """1. A step is to be stored: its snapshot is announced for that when all have it whole. 2. It is not written over
    until the vault has published it. 3. The next one fails, and the note says why."""
    job = Job(folder, vault=True)
    job.train()
    job.until(lambda: job.keeping.stores)
    vault.heard()
    job.train(store=True)
    stored = job.step
    job.train(5)
    (announce,) = vault.announced()
    assert (announce.step, announce.store, announce.replicate) == (stored, True, False)
    assert job.arena.find(announce.sequence) is not None
    assert job.keeping.storing_step == stored
    job.arena.put_word("stored_step", stored)
    job.train()
    assert (job.keeping.stored_step, job.keeping.storing_step, job.keeping.failed_stores) == (stored, -1, 0)
    job.train(store=True)
    job.train()
    assert job.keeping.storing_step == job.step - 1
    job.arena.put_note("the disk is full")
    job.arena.put_word("failed_stores", 1)
    job.train()
    assert (job.keeping.stored_step, job.keeping.storing_step, job.keeping.failed_stores) == (stored, -1, 1)
    assert job.keeping.note() == "the disk is full"
    job.keeping.close()


def test_a_vault_that_was_started_anew_is_told_again(folder: Path, vault: FakeVault) -> None:
    job = Job(folder, vault=True)
    job.train()
    job.until(lambda: job.keeping.stores)
    job.train(store=True)
    job.train(2)
    vault.heard()
    vault.be("two")
    job.train()
    peers, again = vault.heard()
    assert isinstance(peers, Peers)
    assert [place.token for place in peers.places] == ["two"]
    assert isinstance(again, Announce)
    assert (again.step, again.store) == (job.keeping.storing_step, True)
    job.keeping.close()


def test_a_host_without_a_vault_is_said_once(folder: Path) -> None:
    job = Job(folder, vault=True)
    job.until(lambda: job.held() > 2)
    assert len(job.said) == 1
    assert "no vault yet" in job.said[0]
    assert not job.keeping.stores
    job.keeping.close()


def test_exchanged_tensors_are_planned_anew(folder: Path) -> None:
    """1. A tensor is exchanged. 2. Snapshots go on with the new one, and nobody has to know."""
    job = Job(folder)
    job.until(lambda: job.held() > 0)
    job.model.weight.data = job.model.weight.data.clone()
    before = job.step
    job.until(lambda: job.held() > before)
    assert job.said == []
    job.keeping.close()


def test_a_state_that_changes_beside_the_copy_is_copied_before_the_next_step(folder: Path) -> None:
    """1. Each backward pass is followed by a write to a weight that nobody guards. 2. What was torn is not taken for a
    snapshot. 3. It is said once, and snapshots are whole from then on."""
    job = Job(folder)
    job.until(lambda: job.held() > 0)
    job.keeping.settle()
    held = job.held()
    job.keeping._note(2, "the state was written to while it was copied")
    job.train()
    assert job.held() <= held
    job.train(3)
    assert job.held() == job.step
    assert job.said == [
        "snapshots are taken before the next step begins, no longer beside it: rank 0: the state was written to while "
        "it was copied"
    ]
    job.keeping.close()


def test_no_memory_is_said_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. There is no room. 2. The job says so, once, and trains on; no file is left."""

    def full(needed_bytes: int) -> None:
        raise OSError(12, f"{needed_bytes} bytes are not free")

    monkeypatch.setattr("trainmaster.storage.arena.refuse_full", full)
    job = Job(folder)
    job.until(lambda: job.said)
    job.train(3)
    (sentence,) = job.said
    assert sentence.startswith("no snapshots in memory: rank 0: ")
    assert "bytes are not free" in sentence
    assert not list(folder.iterdir())
    job.keeping.close()


def test_memory_of_ranks_that_are_elsewhere_now_is_freed(folder: Path) -> None:
    """1. The host holds an arena of a rank that it has no more, and one that was moved aside. 2. They stay until there
    is a newer snapshot, and then go; a copy of another host's rank stays."""
    for name in ("arena-7", "arena-7.before", "replica-3"):
        (folder / name).write_bytes(b"")
    job = Job(folder)
    job.train()
    assert (folder / "arena-7").exists()
    job.until(lambda: not (folder / "arena-7").exists())
    assert sorted(path.name for path in folder.iterdir()) == ["arena-0", "replica-3"]
    job.keeping.close()
