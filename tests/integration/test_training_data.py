"""Four real ranks that read tokens from shards, ahead of the step: the losses are those of the corpus in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.training_cluster import TINY, Membership, Warm

from trainmaster.training import losses, shards

pytestmark = [pytest.mark.real, pytest.mark.torch]
STEPS = "--steps=12"


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    process = Warm()
    yield process
    process.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data") / "shards"
    assert shards.main([str(directory)]) == 0
    return directory


def hexes(root: Path) -> dict[int, str]:
    told = losses(root / "job")
    assert not any(loss.mismatches for loss in told.values()), told
    return {step: loss.hex for step, loss in told.items()}


def test_killed_with_batches_in_flight(warm: Warm, tmp_path: Path, data: Path) -> None:
    """1. A run from memory, with nothing fetched ahead. 2. The same from shards, four batches ahead, saved at step 6
    and killed after step 7; the shards of the host stay. 3. Resumed, it has the same losses to the bit. 4. The ranks
    consumed 96 samples, whatever was fetched."""
    plain, sharded = tmp_path / "plain", tmp_path / "sharded"
    plain.mkdir()
    sharded.mkdir()
    with Membership(warm, plain, STEPS, *TINY, "--fetch-ahead=0") as job:
        job.finish()
    ahead = (f"--data={data}", "--fetch-ahead=4")
    with Membership(warm, sharded, STEPS, *TINY, *ahead, "--step-sleep=0.05", every=6) as job:
        job.wait_step(7)
        job.kill()
    files = {
        path.name: path.stat().st_ino for path in sharded.glob("data-job-1.a1/*.tokens*") if path.suffix != ".lock"
    }
    assert files
    with Membership(warm, sharded, STEPS, *TINY, *ahead, epoch=2) as job:
        job.finish()
        assert job.boards[0].read().restored_step == 6
        assert {board.read().samples for board in job.boards} == {96}
    assert hexes(sharded) == hexes(plain)
    assert files.items() <= {path.name: path.stat().st_ino for path in sharded.glob("data-job-1.a1/*")}.items()


def test_data_that_is_damaged_ends_the_job_with_a_sentence(warm: Warm, tmp_path: Path, data: Path) -> None:
    """1. A bit of every shard is flipped. 2. No step is made; the shard and both sums are told, without a traceback."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in data.iterdir():
        content = bytearray(file.read_bytes())
        if file.suffix == ".tokens":
            content[99] ^= 1
        (broken / file.name).write_bytes(content)
    with Membership(warm, tmp_path, STEPS, *TINY, f"--data={broken}", world=1) as job:
        assert job.codes() == [2]
        assert job.boards[0].read().step == 0
        assert "has CRC-32" in job.errors()
        assert "copy the shard again" in job.errors()
        assert "Traceback" not in job.errors()
