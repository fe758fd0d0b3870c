"""Checkpoints that vaults write from snapshots: equal to those that ranks write, whole or not there, whoever dies."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from tests.integration.vault_hosts import JOB, SHORT, Fleet, eventually, plain_shards  # noqa: E402
from tests.integration.vault_states import assert_same, loaded, shards_of, state_of  # noqa: E402

from trainmaster.core.base.ids import JobId  # noqa: E402
from trainmaster.core.checkpoint.listing import parts_name, published_steps, step_name  # noqa: E402
from trainmaster.storage import directory, whole  # noqa: E402
from trainmaster.storage.directory import OwnerMark  # noqa: E402
from trainmaster.storage.survey import views  # noqa: E402
from trainmaster.training.distcp import CheckpointReader, CheckpointWriter  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.torch]
MIB = 1 << 20
KILLS = int(os.environ.get("TRAINMASTER_VAULT_KILLS", "4"))
SMALL = {".metadata", "index.json", "manifest.json", "owner.json"}


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def fleets(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(hosts: int, limits: object = SHORT) -> Fleet:
        made.append(Fleet(tmp_path, [""] * hosts, limits))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def words(fleet: Fleet, name: str) -> list[int]:
    return [host.own(rank).word(name) for rank, host in enumerate(fleet.hosts)]


def stored(fleet: Fleet, step: int) -> bool:
    return all(each >= step for each in words(fleet, "stored_step"))


def published(fleet: Fleet) -> tuple[int, ...]:
    return published_steps(directory.look(fleet.checkpoints))


def assert_whole(fleet: Fleet) -> None:
    """Every byte of the newest checkpoints is what it should be, and nothing else looks like one."""
    for step in published(fleet)[:3]:
        opened = whole.Opened(fleet.checkpoints / step_name(step))
        assert whole.verify(opened) == ()
        assert opened.contents.manifest is not None
        assert opened.contents.manifest.step == step
    assert {view.state for view in views(fleet.checkpoints)} <= {"published", "unfinished", "torn"}


def test_what_vaults_publish_is_what_ranks_publish(fleets: Callable[..., Fleet], tmp_path: Path) -> None:
    """1. Four ranks' snapshots are stored three times, two are kept. 2. Plain PyTorch and our reader load them bit for
    bit. 3. Every byte verifies, and no other file lies there than after a synchronous save."""
    fleet = fleets(4)
    fleet.meet(keep=2)
    for step in (1, 2, 3):
        fleet.take(shards_of(state_of(step), 4), step)
        fleet.announce(step, store=True)
        eventually(lambda step=step: stored(fleet, step), fleet.words())
    assert published(fleet) == (3, 2)
    for step in (2, 3):
        path = fleet.checkpoints / step_name(step)
        assert_same(loaded(path), state_of(step))
        assert_same(loaded(path, CheckpointReader), state_of(step))
        assert {each.name for each in path.iterdir()} == SMALL | {f"__{rank}_0.distcp" for rank in range(4)}
    assert_whole(fleet)
    writer = CheckpointWriter(tmp_path / "ours", step=3)
    dcp.save(state_of(3), storage_writer=writer)
    assert {each.name for each in writer.path.iterdir()} == SMALL | {"__0_0.distcp"}
    assert list(whole.compare(whole.Opened(path), whole.Opened(writer.path))) == []
    assert words(fleet, "busy_sequence") == [0] * 4
    assert sorted(os.listdir(fleet.checkpoints)) == ["step-00000002", "step-00000003"]


def test_a_snapshot_that_is_gone_is_named_and_the_next_one_stored(fleets: Callable[..., Fleet]) -> None:
    """1. Rank 2 has written over its snapshot before it could be stored. 2. Nothing is published, all learn why, no
    directory stays. 3. The next step is stored."""
    fleet = fleets(3)
    fleet.meet()
    shards = shards_of(state_of(1), 3)
    fleet.take(shards, 1)
    for step in (2, 3, 4):
        fleet.take_one(2, shards[2], step)
    fleet.announce(1, store=True)
    eventually(lambda: words(fleet, "failed_stores") == [1, 1, 1], fleet.words())
    notes = [host.own(rank).note() for rank, host in enumerate(fleet.hosts)]
    assert all("step 1 was not stored from memory: rank 2 on h2: its snapshot was taken over" in note for note in notes)
    assert os.listdir(fleet.checkpoints) == []
    sequences = [fleet.take_one(rank, shard, 5) for rank, shard in enumerate(shards)]
    for rank, fleet.sequence in enumerate(sequences):
        fleet.announce(5, store=True, rank=rank)
    eventually(lambda: stored(fleet, 5), fleet.words())
    assert_same(loaded(fleet.checkpoints / step_name(5)), state_of(1))


def test_a_writer_that_does_not_come_is_named(fleets: Callable[..., Fleet]) -> None:
    """1. The vault of rank 1 is never told to store. 2. After the bound all who wait learn who did not write."""
    fleet = fleets(3, SHORT.but(store_s=1.0))
    fleet.meet()
    fleet.take(shards_of(state_of(1), 3), 1)
    for rank in (0, 2):
        fleet.announce(1, store=True, rank=rank)
    eventually(lambda: words(fleet, "failed_stores") == [1, 0, 1], fleet.words())
    assert "nothing came from rank 1 on h1" in fleet.hosts[2].own(2).note()
    assert published(fleet) == ()


def test_a_full_disk_is_explained(fleets: Callable[..., Fleet]) -> None:
    """1. The checkpoint directory has room for one checkpoint and a half. 2. The second store fails with what is needed
    and what is free, leaves nothing, and the first one is whole."""
    fleet = fleets(2)
    fleet.checkpoints.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(fleet.checkpoints)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount")
    try:
        fleet.meet()
        fleet.take(shards_of(state_of(1), 2), 1)
        fleet.announce(1, store=True)
        eventually(lambda: stored(fleet, 1), fleet.words())
        fleet.take(shards_of(state_of(2), 2), 2)
        fleet.announce(2, store=True)
        eventually(lambda: words(fleet, "failed_stores") == [1, 1], fleet.words())
        assert "bytes free" in fleet.hosts[1].own(1).note()
        assert os.listdir(fleet.checkpoints) == ["step-00000001"]
        assert_whole(fleet)
    finally:
        subprocess.run(["umount", "-l", str(fleet.checkpoints)], check=True)


def test_another_jobs_checkpoint_is_left_alone(fleets: Callable[..., Fleet]) -> None:
    """1. Another job has published step 4 in the same directory. 2. Step 4 is not stored, and why is told. 3. The other
    one is as it was; other steps are stored."""
    fleet = fleets(2)
    theirs = fleet.checkpoints / step_name(4)
    directory.open_staging(theirs, OwnerMark(job=JobId("job-2"), attempt=1, epoch=1))
    fleet.meet()
    for step in (4, 5):
        fleet.take(shards_of(state_of(step), 2), step)
        fleet.announce(step, store=True)
        eventually(lambda step=step: stored(fleet, step) or words(fleet, "failed_stores") == [1, 1], fleet.words())
    eventually(lambda: stored(fleet, 5), fleet.words())
    assert "not this job's; move it away" in fleet.words()
    assert os.listdir(theirs) == ["owner.json"]
    assert published(fleet) == (5,)


def test_a_newer_membership_is_not_written_over(fleets: Callable[..., Fleet]) -> None:
    """1. In epoch 1 rank 1 is slow to store step 7, so rank 0's vault waits. 2. Epoch 2 begins, and is the one that
    stores step 7. 3. What is there is epoch 2's, also after epoch 1 would have published."""
    fleet = fleets(2)
    fleet.meet()
    fleet.take(shards_of(state_of(1), 2), 7)
    fleet.announce(7, store=True, rank=0)
    eventually(lambda: (fleet.checkpoints / parts_name(7, 1, JOB) / "part-0.json").exists())
    fleet.meet()
    fleet.take(shards_of(state_of(2), 2), 7)
    fleet.announce(7, store=True)
    eventually(lambda: stored(fleet, 7), fleet.words())
    assert_same(loaded(fleet.checkpoints / step_name(7)), state_of(2))
    manifest = directory.read_manifest(fleet.checkpoints / step_name(7))
    assert manifest.epoch == 2
    assert os.listdir(fleet.checkpoints) == [step_name(7)]


def test_deaths_of_vaults_at_every_moment_of_a_store(fleets: Callable[..., Fleet]) -> None:
    """1. While a step is stored, one vault after the other is killed, each time a little later; also that of rank 0,
    and all at once. 2. The keepers start them again, and the ranks tell them again. 3. What is published is whole at
    every moment, and each step is published or its failure counted; the last one is published."""
    fleet = fleets(3)
    fleet.meet(keep=1000)  # so that nothing is retired while it is looked at
    shards = plain_shards(3, 12 * MIB, seed=1)
    fleet.take(shards, 1)
    started = time.monotonic()
    fleet.announce(1, store=True)
    eventually(lambda: stored(fleet, 1), fleet.words())
    takes_s = time.monotonic() - started
    for number in range(KILLS):
        step = number + 2
        fleet.take(shards, step)
        stamps = [host.told() for host in fleet.hosts]
        failed = words(fleet, "failed_stores")[0]
        started = time.monotonic()
        fleet.announce(step, store=True)
        dying = ([0], [1], [0, 1, 2], [2])[number % 4]
        eventually(lambda at=started + takes_s * number / KILLS: time.monotonic() >= at)
        for rank in dying:
            fleet.hosts[rank].kill_vault()
        assert_whole(fleet)
        for rank in dying:
            eventually(lambda rank=rank, stamps=stamps: fleet.hosts[rank].told() != stamps[rank], fleet.words())
            fleet.tell_peers(rank)
            fleet.announce(step, store=True, rank=rank)
        eventually(
            lambda step=step, failed=failed: stored(fleet, step) or words(fleet, "failed_stores")[0] > failed,
            fleet.words(),
        )
        assert_whole(fleet)
        assert (step in published(fleet)) == (words(fleet, "stored_step")[0] == step)
    last = KILLS + 2
    fleet.take(shards, last)
    fleet.announce(last, store=True)
    eventually(lambda: stored(fleet, last), fleet.words())
    assert published(fleet)[0] == last
    assert_whole(fleet)


def test_a_dead_host_leaves_nothing_published_and_the_next_membership_cleans_up(fleets: Callable[..., Fleet]) -> None:
    """1. Rank 0's host dies while a step is stored. 2. A staging directory stays, which nobody takes for a checkpoint.
    3. The host is back and a new membership stores: the leftover goes."""
    fleet = fleets(2)
    fleet.meet()
    shards = plain_shards(2, 64 * MIB, seed=1)
    fleet.take(shards, 1)
    fleet.announce(1, store=True, rank=0)
    staging = fleet.checkpoints / parts_name(1, 1, JOB)
    eventually(staging.exists)
    fleet.hosts[0].kill()
    assert published(fleet) == ()
    assert [view.state for view in views(fleet.checkpoints)] == ["unfinished"]
    fleet.hosts[0].start()
    fleet.meet()
    fleet.take(shards, 2)
    fleet.announce(2, store=True)
    eventually(lambda: stored(fleet, 2), fleet.words())
    eventually(lambda: os.listdir(fleet.checkpoints) == [step_name(2)], "cleaning up")
    assert_whole(fleet)
