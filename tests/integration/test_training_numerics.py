"""Real ranks in float8 and with 2:4 sparsity: killed between two drawings of masks and resumed, the same losses."""

from pathlib import Path

import pytest
from tests.integration.training_cluster import TINY, Membership, Warm

from trainmaster.storage.whole import Opened, compare, verify
from trainmaster.training import losses

pytestmark = [pytest.mark.real, pytest.mark.torch]
STEPS = "--steps=10"
FLOAT8 = ("--precision=float8",)
SPARSE = ("--precision=bf16", "--sparsity=2:4", "--mask-steps=4")


def hexes(root: Path) -> dict[int, str]:
    told = losses(root / "job")
    assert not any(loss.mismatches for loss in told.values()), told
    return {step: loss.hex for step, loss in told.items()}


@pytest.mark.parametrize("choice", [FLOAT8, SPARSE], ids=["float8", "2:4"])
def test_killed_and_resumed_to_the_bit(warm: Warm, tmp_path: Path, choice: tuple[str, ...]) -> None:
    """1. Two ranks, undisturbed. 2. The same, with a save at step 6 (masks are of step 5), all killed after step 7.
    3. Resumed: every loss is that of the undisturbed run, replayed ones included. 4. The last
    checkpoints of both are equal, masks included."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Membership(warm, tmp_path / "a", STEPS, *TINY, *choice, world=2) as job:
        job.finish()
    with Membership(warm, tmp_path / "b", STEPS, *TINY, *choice, "--step-sleep=0.05", world=2, every=6) as job:
        job.wait_step(7)
        job.kill()
    with Membership(warm, tmp_path / "b", STEPS, *TINY, *choice, world=2, epoch=2) as job:
        job.finish()
        assert job.boards[0].read().restored_step == 6
        assert "computed in" not in job.errors()
    assert hexes(tmp_path / "b") == hexes(tmp_path / "a")
    assert len(hexes(tmp_path / "b")) == 10
    ends = [Opened(tmp_path / run / "checkpoints" / "step-00000010") for run in ("a", "b")]
    assert verify(ends[1]) == ()
    assert list(compare(*ends)) == []
    masks = [name for name in ends[0].index.tensors if name.endswith("derived_mask")]
    assert len(masks) == (6 if choice == SPARSE else 0)


def test_a_resume_in_another_arithmetic(warm: Warm, tmp_path: Path) -> None:
    """1. Four steps in bf16, dense. 2. On with float8, at another world size, then with 2:4, which has no masks yet,
    then dense again. 3. Each takes the state over and says what happens."""
    checkpoints = tmp_path / "checkpoints"
    chain = (("--precision=bf16",), FLOAT8, SPARSE, ("--precision=bf16",))
    words = ("", "computed in bf16, and float8 goes on", "float8, and bf16 2:4 goes on", "bf16 2:4, and bf16 goes on")
    for turn, (choice, said) in enumerate(zip(chain, words, strict=True), 1):
        root = tmp_path / str(turn)
        root.mkdir()
        steps = f"--steps={4 * turn}"
        with Membership(
            warm, root, steps, *TINY, *choice, world=1 + turn % 2, epoch=turn, checkpoints=checkpoints
        ) as job:
            job.finish()
            assert job.boards[0].read().restored_step == 4 * (turn - 1)
            assert said in job.errors()
        assert list(losses(root / "job")) == list(range(4 * turn - 3, 4 * turn + 1))


def test_a_refused_choice_ends_the_job_with_a_sentence(warm: Warm, tmp_path: Path) -> None:
    """1. Two choices that exclude each other. 2. Exit code 2, one sentence, no traceback."""
    tmp_path.joinpath("job").mkdir()
    with Membership(warm, tmp_path, STEPS, *TINY, *FLOAT8, "--sparsity=2:4", world=1) as job:
        assert job.codes() == [2]
        assert "trainmaster: --precision float8 and --sparsity 2:4 do not go together" in job.errors()
        assert "Traceback" not in job.errors()
