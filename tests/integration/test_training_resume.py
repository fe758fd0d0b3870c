"""Four real ranks with gloo: whatever happens between the first step and the last, the losses are those of a run to
which nothing happened, to the bit."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.training_cluster import STEPS, TINY, Membership, Warm, hexes

from trainmaster.core.agent.board import Phase, Request
from trainmaster.core.checkpoint.listing import step_name
from trainmaster.storage.whole import Opened, export, verify
from trainmaster.training import losses

pytestmark = [pytest.mark.real, pytest.mark.torch]
SAVE_KILLS = int(os.environ.get("TRAINMASTER_SAVE_KILLS", "1"))


def published(job: Membership) -> list[str]:
    return sorted(path.name for path in job.checkpoints.iterdir() if path.name.startswith("step-"))


def test_the_warm_process_has_one_thread(warm: Warm) -> None:
    """Everything that is preloaded is imported, and forking is safe because no thread was started."""
    assert warm.threads == 1


def test_an_undisturbed_run_learns_and_ends_well(warm: Warm, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    """1. Twelve steps, a save every five. 2. All exit with 0, phases say finished, the last step is saved as well."""
    with Membership(warm, tmp_path, STEPS, *TINY, every=5) as job:
        job.finish()
        readings = [board.read() for board in job.boards]
        assert {reading.phase for reading in readings} == {Phase.FINISHED}
        assert {(reading.step, reading.published_step, reading.samples) for reading in readings} == {(12, 12, 96)}
        first = readings[0]
        stages = (first.spawned_at, first.attached_at, first.grouped_at, first.restored_at, first.first_step_at)
        assert sorted(stages) == list(stages)
        assert published(job) == ["step-00000005", "step-00000010", "step-00000012"]
    assert hexes(tmp_path) == undisturbed
    assert float.fromhex(undisturbed[12]) < float.fromhex(undisturbed[1])


def test_a_rank_is_killed_and_the_job_resumes(warm: Warm, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    """1. A save at step 4. 2. Rank 2 is killed after step 5. 3. The others fail, none hangs. 4. The next membership
    resumes at step 4 and its losses, replayed ones included, are those of the undisturbed run."""
    with Membership(warm, tmp_path, STEPS, *TINY, "--step-sleep=0.05", every=4) as job:
        job.wait_step(5)
        job.kill(2)
        assert all(code != 0 for code in job.codes())
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=2) as job:
        job.finish()
        assert job.boards[3].read().restored_step in (4, 8)
    assert hexes(tmp_path) == undisturbed


def test_two_resumes_equal_no_stop(warm: Warm, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    """Yields at two steps; each resume goes on with the next step, so no step runs twice."""
    for epoch, at in ((1, 3), (2, 7)):
        with Membership(warm, tmp_path, STEPS, *TINY, "--step-sleep=0.05", epoch=epoch) as job:
            job.wait_step(at)
            for board in job.boards:
                board.ask(Request.YIELD)
            job.finish()
            readings = [board.read() for board in job.boards]
            assert {reading.phase for reading in readings} == {Phase.YIELDED}
            assert len({reading.step for reading in readings}) == 1
            assert readings[0].step == readings[0].published_step < 12
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=3) as job:
        job.finish()
    told = losses(tmp_path / "job")
    assert {loss.runs for loss in told.values()} == {1}
    assert hexes(tmp_path) == undisturbed


def test_a_request_that_comes_during_the_start_is_answered_before_a_step(warm: Warm, tmp_path: Path) -> None:
    """1. A job has saved step 4. 2. Its next membership is asked to yield while it starts. 3. It leaves there."""
    with Membership(warm, tmp_path, "--steps=4", *TINY, world=2) as job:
        job.finish()
    with Membership(warm, tmp_path, "--steps=9", *TINY, world=2, epoch=2) as job:
        job.boards[1].ask(Request.YIELD)
        job.finish()
        readings = [board.read() for board in job.boards]
        assert {(each.phase, each.step, each.save_s) for each in readings} == {(Phase.YIELDED, 4, 0.0)}


def test_one_board_is_enough_to_ask_for_a_checkpoint(warm: Warm, tmp_path: Path) -> None:
    """1. Only rank 3's board carries the request. 2. All ranks save once, at the same step, and go on."""
    with Membership(warm, tmp_path, "--steps=10", *TINY, "--step-sleep=0.05") as job:
        job.wait_step(2)
        job.boards[3].ask(Request.CHECKPOINT)
        job.finish()
        steps = published(job)
        assert len(steps) == 2
        assert steps[1] == "step-00000010"
        assert {board.read().phase for board in job.boards} == {Phase.FINISHED}


def staging(job: Membership) -> list[Path]:
    return list(job.checkpoints.glob(".staging-*"))


@pytest.mark.parametrize("later", range(SAVE_KILLS))
@pytest.mark.parametrize(
    ("moment", "condition"),
    [
        ("the staging directory appears", lambda job: bool(staging(job))),
        ("a shard appears", lambda job: any(path.glob("*.distcp") for path in staging(job))),
        ("the metadata appears", lambda job: any((path / ".metadata").exists() for path in staging(job))),
        ("the manifest appears", lambda job: any((path / "manifest.json").exists() for path in staging(job))),
    ],
)
def test_all_ranks_are_killed_in_a_save(
    warm: Warm,
    tmp_path: Path,
    undisturbed: dict[int, str],
    moment: str,
    condition: Callable[[Membership], bool],
    later: int,
) -> None:
    """1. All ranks are killed while a save is at the given moment, or `later` milliseconds past it. 2. What has a final
    name is whole. 3. The next membership resumes from the newest such, and leaves no leftover."""
    with Membership(warm, tmp_path, STEPS, *TINY, every=3) as job:
        job.wait_until(lambda: published(job) == ["step-00000003"] if job.checkpoints.exists() else False, "first save")
        job.wait_until(lambda: condition(job) or "step-00000006" in published(job), moment)
        time.sleep(later / 1000)
        job.kill()
        job.codes()
        for name in published(job):
            assert (job.checkpoints / name / "manifest.json").exists()
        newest = int(published(job)[-1].removeprefix("step-"))
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=2) as job:
        job.finish()
        assert {board.read().restored_step for board in job.boards} == {newest}
        assert not staging(job)
    assert hexes(tmp_path) == undisturbed


def test_a_flipped_bit_makes_all_ranks_fall_back(warm: Warm, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    """1. Saves at 4 and 8. 2. One bit of one shard of 8 flips. 3. All ranks resume from 4 and say why."""
    with Membership(warm, tmp_path, "--steps=8", *TINY, every=4) as job:
        job.finish()
    shard = job.checkpoints / "step-00000008" / "__2_0.distcp"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0x10
    shard.write_bytes(data)
    # The schedule of eight steps differs from that of twelve, so only the resume is compared here.
    with Membership(warm, tmp_path, "--steps=8", *TINY, epoch=2) as job:
        job.finish()
        readings = [board.read() for board in job.boards]
        assert {reading.restored_step for reading in readings} == {4}
        assert re.match(
            r"resumed from step 4, not from the newest published step 8: __2_0.distcp has", readings[1].note
        )
    assert set(hexes(tmp_path)) == set(range(1, 9))


def test_nothing_verifies_and_the_job_refuses_to_start_over(warm: Warm, tmp_path: Path) -> None:
    """1. The only checkpoint loses a file. 2. Every rank exits with 2 and a sentence, and nothing is deleted."""
    with Membership(warm, tmp_path, "--steps=4", *TINY) as job:
        job.finish()
    (job.checkpoints / "step-00000004" / "__1_0.distcp").unlink()
    with Membership(warm, tmp_path, "--steps=6", *TINY, epoch=2) as job:
        assert job.codes() == [2] * 4
        assert "1 published checkpoints, none verifies" in job.errors()
        assert "Traceback" not in job.errors()
        assert published(job) == ["step-00000004"]


def test_the_world_shrinks_and_the_data_goes_on(warm: Warm, tmp_path: Path, undisturbed: dict[int, str]) -> None:
    """1. Four ranks yield. 2. Two ranks resume the sharded state. 3. Losses agree to rounding, samples exactly."""
    with Membership(warm, tmp_path, STEPS, *TINY, "--step-sleep=0.05") as job:
        job.wait_step(4)
        job.boards[0].ask(Request.YIELD)
        job.finish()
    with Membership(warm, tmp_path, STEPS, *TINY, epoch=2, world=2) as job:
        job.finish()
        assert job.boards[0].read().samples == 96
    told = {step: loss.loss for step, loss in losses(tmp_path / "job").items()}
    assert told == pytest.approx({step: float.fromhex(value) for step, value in undisturbed.items()}, rel=1e-5)


def test_a_state_moves_between_numbers_of_ranks(warm: Warm, tmp_path: Path) -> None:
    """1. Saved by 2, 4, 4 and 3 ranks, loaded by 4, 2, 3 and 1, through ours and through plain PyTorch: equal bit for
    bit; from the memory of four ranks to two and three as well. 2. What ranks hold alike is stored once, and by turns.
    3. Exported, it is the same for the library of the format, whoever wrote it."""
    import torch
    from safetensors.torch import load_file
    from tests.integration.reshard_ranks import MOVES, whole

    root = tmp_path / "moved"
    with Membership(warm, tmp_path, str(root), module="reshard_ranks") as job:
        job.finish()
    assert (root / "done").read_text() == str(len(MOVES))
    for seed, (before, _) in enumerate(MOVES, 1):
        opened = Opened(root / step_name(seed))
        assert verify(opened) == ()
        export(opened, tmp_path / "all.safetensors", {name: name for name in opened.index.tensors}, {})
        exported = load_file(tmp_path / "all.safetensors")
        assert all(torch.equal(exported[name], tensor) for name, tensor in whole(seed).items())
        alike = [opened.index.tensors[name].chunks for name in ("alike", "alike-too")]
        assert [len(chunks) for chunks in alike] == [1, 1]
        assert len({chunks[0].file for chunks in alike}) == min(before, 2)
