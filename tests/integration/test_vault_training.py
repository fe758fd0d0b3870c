"""A job whose hosts have vaults: what they copied and stored is what it goes on from, to the bit."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.training_cluster import TINY, Membership, Warm, hexes
from tests.integration.vault_hosts import Fleet, eventually

from trainmaster.core.agent.board import Origin
from trainmaster.core.checkpoint.listing import published_steps, step_name
from trainmaster.storage import directory, whole

pytestmark = [pytest.mark.real, pytest.mark.torch]
STEPS = "--steps=16"
SLOW = "--step-sleep=0.1"


@pytest.fixture(scope="module")
def undisturbed(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    root = tmp_path_factory.mktemp("undisturbed")
    with Membership(warm, root, STEPS, *TINY) as job:
        job.finish()
    return hexes(root)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, ["rack-1", "rack-1", "rack-2", "rack-2"])
    yield made
    made.close()


def directories(fleet: Fleet) -> Callable[[int], Path]:
    return lambda rank: fleet.hosts[rank].directory


def lose(fleet: Fleet, rank: int) -> None:
    """A host is gone with its memory; another one takes its place."""
    fleet.hosts[rank].kill()
    shutil.rmtree(fleet.hosts[rank].directory)
    fleet.hosts[rank].start()


def stored(job: Membership) -> tuple[int, ...]:
    return published_steps(directory.look(job.checkpoints))


def test_hosts_are_lost_one_after_the_other(
    warm: Warm, tmp_path: Path, fleet: Fleet, undisturbed: dict[int, str]
) -> None:
    """1. A job snapshots every step, with copies, and stores every fourth. 2. After step 5 the host of rank 2 dies; in
    the next membership that of rank 0. 3. The others have their state, the new one gets it from its peer's memory. 4.
    Checkpoints were written by the vaults, and are whole. 5. The losses are those of an undisturbed run."""
    for epoch, (dies, after) in enumerate([(2, 5), (0, 10)], start=1):
        with Membership(warm, tmp_path, STEPS, *TINY, SLOW, epoch=epoch, every=4, memory=directories(fleet)) as job:
            job.wait_step(after)
            job.kill()
            job.codes()
            assert epoch == 1 or job.boards[2].read().origin is Origin.PEER_MEMORY, job.errors()
        lose(fleet, dies)
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=3, every=4, memory=directories(fleet)) as job:
        job.finish()
        assert {board.read().origin for board in job.boards} == {Origin.PEER_MEMORY}
        assert "own memory on 3 of 4 ranks, peer memory on 1" in job.errors()
        assert job.boards[0].read().restored_step >= 8
        assert 4 in stored(job) or 8 in stored(job), fleet.words()
        for step in stored(job):
            assert whole.verify(whole.Opened(job.checkpoints / step_name(step))) == ()
    assert hexes(tmp_path) == undisturbed


def test_vaults_die_while_a_job_trains(warm: Warm, tmp_path: Path, fleet: Fleet, undisturbed: dict[int, str]) -> None:
    """1. While a job trains, each vault is killed in turn. 2. The job does not notice; its snapshots go on being copied
    and stored. 3. The losses are those of an undisturbed run."""
    with Membership(warm, tmp_path, STEPS, *TINY, SLOW, every=4, memory=directories(fleet)) as job:
        for rank, step in ((0, 3), (1, 5), (2, 7), (3, 8)):
            job.wait_step(step)
            fleet.hosts[rank].kill_vault()
        eventually(lambda: max(stored(job), default=0) >= 8, f"a store: {fleet.words()}{job.errors()}")
        job.finish()
    assert stored(job)[0] == 16
    assert hexes(tmp_path) == undisturbed


def test_a_job_whose_memory_is_all_gone_goes_on_from_what_vaults_stored(
    warm: Warm, tmp_path: Path, fleet: Fleet, undisturbed: dict[int, str]
) -> None:
    """1. A vaults' checkpoint is published. 2. All hosts die with their memory. 3. The job goes on from storage."""
    with Membership(warm, tmp_path, STEPS, *TINY, SLOW, every=4, memory=directories(fleet)) as job:
        eventually(lambda: stored(job), f"a store: {fleet.words()}{job.errors()}")
        job.kill()
        job.codes()
    for rank in range(4):
        lose(fleet, rank)
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=2, every=4, memory=directories(fleet)) as job:
        job.finish()
        assert {board.read().origin for board in job.boards} == {Origin.STORAGE}
        assert job.boards[0].read().restored_step % 4 == 0
    assert hexes(tmp_path) == undisturbed
