"""Four real ranks that read tokens from shards, ahead of the step: the losses are those of the corpus in memory."""

import os
import random
from array import array
from itertools import islice
from pathlib import Path

import pytest
from tests.integration.training_cluster import TINY, Membership, Warm

from trainmaster.core.checkpoint.position import audit_epoch
from trainmaster.storage.contents import locate
from trainmaster.training import losses, shards

pytestmark = [pytest.mark.real, pytest.mark.torch]
STEPS = "--steps=12"
LIVES = int(os.environ.get("TRAINMASTER_DATA_LIVES", "3"))
SAMPLES, BATCH = 64, 6


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


def consumed(root: Path) -> list[int]:
    """Sample ids in the order of the job's last history: of a step that ran more than once, the last time counts."""
    by_step: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for file in root.glob("consumed-*"):
        epoch = int(file.name.split("-")[1])
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                step, *numbers = map(int, line.split())
                pairs = zip(numbers[::2], numbers[1::2], strict=True)
                by_step.setdefault(step, {}).setdefault(epoch, []).extend(pairs)
    found = [pair for step in sorted(by_step) for pair in sorted(by_step[step][max(by_step[step])])]
    assert [place for place, _ in found] == list(range(len(found)))
    return [sample for _, sample in found]


def test_every_sample_once_through_kills_and_other_worlds(warm: Warm, tmp_path: Path) -> None:
    """1. Lives of a job with 1 to 4 ranks each, killed some steps after they came, with batches in flight; saves every
    three steps. 2. The last life ends. 3. Each epoch of 64 samples has every sample once, by their ids."""
    chance = random.Random(LIVES)
    (tmp_path / "shards").mkdir()
    tokens = array("H", [number for number in range(SAMPLES) for _ in range(4)])
    shards.write(*locate(tmp_path / "shards"), tokens, 50)
    steps = 32 * -(-LIVES // 4)
    flags = (str(tmp_path), str(SAMPLES), str(steps), str(BATCH))
    reached = 0
    for life in range(1, LIVES + 1):
        world = chance.randint(1, 4)
        with Membership(warm, tmp_path, *flags, module="counted_ranks", world=world, epoch=life, every=3) as job:
            reached = min(reached + chance.randint(1, 7), steps - 1)
            job.wait_step(reached)
            job.kill()
            reached = max(board.read().published_step for board in job.boards)
    with Membership(warm, tmp_path, *flags, module="counted_ranks", world=3, epoch=LIVES + 1, every=3) as job:
        job.finish()
    ids = iter(consumed(tmp_path))
    for _ in range(steps * BATCH // SAMPLES):
        audit = audit_epoch(islice(ids, SAMPLES), SAMPLES)
        assert audit.problems == (), audit
    assert len(list(ids)) == steps * BATCH % SAMPLES


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
