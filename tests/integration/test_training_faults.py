"""Real ranks meet full disks, crafted files, other people's directories, defects of the script, and no agent at all."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.training_cluster import TINY, Membership, Warm, hexes

from trainmaster.core.agent import environment
from trainmaster.core.agent.board import Phase, Request
from trainmaster.core.base.ids import JobId
from trainmaster.core.checkpoint.listing import staging_name
from trainmaster.storage.survey import views
from trainmaster.storage.whole import Opened, verify

pytestmark = [pytest.mark.real, pytest.mark.torch]
SCRIPT = Path(__file__).parent / "training_failing.py"


@pytest.fixture
def small_volume(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A memory file system with the mount options of the test's parameter."""
    path = tmp_path / "volume"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", path], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted: {done.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", path], check=True)


def published(job: Membership) -> list[str]:
    return sorted(path.name for path in job.checkpoints.iterdir() if path.name.startswith("step-"))


@pytest.mark.parametrize(
    ("small_volume", "spare_bytes", "told"),
    [
        ("size=16m", 0, "bytes free, the save needs"),
        ("size=16m", 1_900_000, "No space left on device"),
        ("size=16m,nr_inodes=8", 16 << 20, "has no inodes left"),
    ],
    indirect=["small_volume"],
)
def test_a_full_disk_fails_saves_but_not_the_job(
    warm: Warm, tmp_path: Path, small_volume: Path, spare_bytes: int, told: str
) -> None:
    """1. A save finds no space: before it starts, in the middle, or because inodes are used up. 2. All ranks count a
    failed save and train on; the staging directory is gone. 3. A request to yield is not followed without a save, which
    is tried again for a second.
    4. Space comes back, the next save is published, the job ends well."""
    filler = small_volume / "filler"
    filler.write_bytes(bytes((16 << 20) - spare_bytes))
    flags = ("--steps=100000", *TINY, "--step-sleep=0.02")  # it is asked to leave long before
    there, patience = small_volume / "checkpoints", {environment.ROOM_WAIT_S: "1"}
    with Membership(warm, tmp_path, *flags, every=10, checkpoints=there, environ=patience) as job:
        job.wait_until(lambda: all(board.integer("failed_saves") >= 1 for board in job.boards), "a failed save")
        notes = [board.note() for board in job.boards]
        assert all(told in note for note in notes), notes
        assert not (job.checkpoints / staging_name(10, 1, JobId("job-1"))).exists()  # the next save may have begun
        failed = job.boards[0].integer("failed_saves")
        job.boards[1].ask(Request.YIELD)
        job.wait_until(lambda: job.boards[0].integer("failed_saves") > failed, "a failed yield")
        job.wait_step(job.boards[0].integer("step") + 2)
        assert {board.read().phase for board in job.boards} <= {Phase.TRAINING, Phase.SAVING}
        filler.unlink()
        if "inodes" in told:
            subprocess.run(["mount", "-o", "remount,nr_inodes=1000", small_volume], check=True)
        job.wait_until(lambda: all(board.integer("published_step") > 0 for board in job.boards), "a save")
        job.boards[2].ask(Request.YIELD)
        job.finish()
        assert {board.read().phase for board in job.boards} == {Phase.YIELDED}
        assert not list(job.checkpoints.glob(".staging-*"))


def test_other_directories_are_neither_used_nor_deleted(warm: Warm, tmp_path: Path) -> None:
    """1. The directory holds a checkpoint of another tool under our kind of name, notes, a leftover of ours, and a
    pointer file. 2. The save at the foreign step fails with a sentence; the others go on, and two are kept."""
    root = tmp_path / "checkpoints"
    (root / "step-00000004").mkdir(parents=True)
    (root / "step-00000004" / ".metadata").write_bytes(b"another tool's")
    (root / "step-2.backup").mkdir()
    (root / ".staging-step-00000001-e1").mkdir()
    (root / "latest").write_text("step-00000099")
    with Membership(warm, tmp_path, "--steps=10", *TINY, world=2, every=2, keep=2) as job:
        job.finish()
        assert job.boards[1].integer("failed_saves") == 1
        assert "is not this job's" in job.errors()
        assert published(job) == ["step-00000004", "step-00000008", "step-00000010", "step-2.backup"]
        assert not list(root.glob(".*"))
        assert (root / "latest").exists()


@pytest.mark.parametrize(("began", "restored"), [("", 8), ("0", 0), ("4", 4), ("6", 0)])
def test_what_another_job_published_is_no_past_of_a_job_that_has_begun(
    warm: Warm, tmp_path: Path, began: str, restored: int
) -> None:
    """1. Another job published steps 4 and 8 in the directory. 2. A job that never began goes on from the newest; one
    that has begun, and published nothing, goes on from what it began with, and from nothing else."""
    with Membership(warm, tmp_path, "--steps=8", *TINY, world=2, every=4) as job:
        job.finish()
    others = {environment.OWNER: "job-1@elsewhere", environment.BEGAN_STEP: began}
    with Membership(warm, tmp_path, "--steps=9", *TINY, world=2, epoch=2, environ=others) as job:
        job.finish()
        assert {board.read().restored_step for board in job.boards} == {restored}


def test_two_jobs_that_start_together_in_one_directory(warm: Warm, tmp_path: Path) -> None:
    """1. Two jobs of different seeds, which cannot know each other, begin at once in one directory, and save the same
    steps. 2. Both finish, each with its own losses. 3. A step is of one job or the other, whole; who came second was
    told whose it is. 4. Nothing else is left."""
    shared, roots = tmp_path / "checkpoints", {seed: tmp_path / str(seed) for seed in (1, 2)}
    for root in (*roots.values(), tmp_path / "alone-1", tmp_path / "alone-2"):
        root.mkdir()
    alone = {}
    for seed in roots:
        with Membership(
            warm, tmp_path / f"alone-{seed}", "--steps=8", *TINY, f"--seed={seed}", world=2, every=9
        ) as job:
            job.finish()
        alone[seed] = hexes(tmp_path / f"alone-{seed}")
    assert alone[1] != alone[2]
    with contextlib.ExitStack() as stack:
        jobs = {}
        for seed, root in roots.items():
            own = {environment.OWNER: f"job-1@{seed}", environment.BEGAN_STEP: "0"}
            flags = ("--steps=8", *TINY, f"--seed={seed}")
            job = Membership(warm, root, *flags, world=2, every=2, keep=9, checkpoints=shared, environ=own)
            jobs[seed] = stack.enter_context(job)
        codes = {seed: set(job.codes()) for seed, job in jobs.items()}
        told = {seed: job.errors() for seed, job in jobs.items()}
    assert {seed: hexes(root) for seed, root in roots.items()} == alone
    found = views(shared)
    assert [(view.step, view.state) for view in found] == [(step, "published") for step in (8, 6, 4, 2)]
    assert all(verify(Opened(shared / view.name)) == () for view in found)
    [first] = [seed for seed in roots if found[0].job == f"job-1@{seed}"]
    [second] = set(roots) - {first}
    assert (codes[first], 0 in codes[second]) == ({0}, False)  # who could not keep its result says so
    assert "step-00000008 in" in told[second]
    assert "is not this job's" in told[second]


def test_a_defect_of_the_script_ends_all_ranks(warm: Warm, tmp_path: Path) -> None:
    """1. Rank 1 raises in step 4. 2. No rank hangs in a clean-up; all end with an error, rank 1 with its own."""
    environ = {"FAIL_RANK": "1"}
    with Membership(warm, tmp_path, world=3, every=2, module="training_failing", environ=environ) as job:
        assert all(code != 0 for code in job.codes())
        assert "ValueError: a defect of the script" in job.errors()
        assert job.boards[1].note() == "ValueError: a defect of the script"
        assert published(job) == ["step-00000002"]


def run(*command: str, **environ: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRAINMASTER_")}
    done = subprocess.run(command, env={**clean, **environ}, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_runs_alone() -> None:
    """No launcher, no agent, no directory: one rank trains and ends with 0."""
    assert run(sys.executable, str(SCRIPT)) == "rank 0 of 1 from 0 to 6\n"


@pytest.mark.slow
def test_the_script_runs_under_torchrun(tmp_path: Path) -> None:
    """Two ranks under torchrun train, save where the environment says, and end well."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(SCRIPT))
    told = run(*launcher, OMP_NUM_THREADS="1", TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "checkpoints"))
    # two processes write to one pipe, so a line may end in the other one's
    said = sorted(re.findall(r"rank \d of \d from \d to \d", told))
    assert said == ["rank 0 of 2 from 0 to 6", "rank 1 of 2 from 0 to 6"]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000006"]
