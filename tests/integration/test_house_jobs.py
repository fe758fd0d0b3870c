"""Jobs that fail, save on a full disk, are cut during a save, cancelled, requeued; scripts that know nothing of us."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.house import SCRIPTS, House, add_up, as_json, job, newest_step, training, wait

from trainmaster.core.base.reasons import Token
from trainmaster.core.scheduling.request import CheckpointPolicy
from trainmaster.live.agent.processes import send
from trainmaster.live.server.resources import JobDetail

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]

STEPS, HOLD = 60, 50


def script(name: str, *arguments: object) -> tuple[str, ...]:
    return ("python", str(SCRIPTS / name), *map(str, arguments))


# --- saves


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system can't be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Leaves no room for a checkpoint."""
    ballast = disk / "ballast"
    free_bytes = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(b"x" * (free_bytes - 40_000))
    return ballast


def test_full_disk(house: House, small_disk: Path) -> None:
    """1. The disk of the checkpoints is full. 2. The save fails, and job, events and status say so with path and
    numbers; training goes on, and the last good checkpoint stays. 3. Space is freed: the next save is published, and
    nothing is said any more."""
    spec = job("full", house.held(STEPS, HOLD))
    name = house.submit(spec.but(checkpoint=CheckpointPolicy(directory=str(small_disk / "c"), every_steps=10, keep=1)))
    before = house.index()
    house.until(name, "a first checkpoint", lambda detail: detail.job.published_step >= 10)
    ballast = fill(small_disk)
    told = house.until(name, "a save fails", lambda detail: detail.account.failed_saves > 0)
    good = told.job.published_step
    told = house.until(name, "two more steps", lambda detail, at=told.job.step: detail.job.step >= at + 2)
    assert (told.job.attempt_state, told.job.epoch) == ("running", 1)
    assert told.job.reason is not None
    assert told.job.reason.token is Token.SAVE_FAILED
    assert re.search(rf"{small_disk}/c has \d+ bytes free, the save needs \d+", told.job.reason.sentence)
    assert [text for text in house.sentences(before) if "save" in text and f"{small_disk}/c has" in text]
    for command in (("job", "show", name), ("job", "why", name), ("status",)):
        shown = house.cli(*command)
        assert str(small_disk) in " ".join(shown.stdout.split()), shown
    assert [entry.name for entry in (small_disk / "c").iterdir()] == [f"step-{good:08d}"]
    ballast.unlink()
    house.open_gate()
    told = house.finish(name)
    assert told.job.published_step == STEPS
    assert told.job.reason is not None
    assert told.job.reason.token is Token.FINISHED
    assert [entry.name for entry in (small_disk / "c").iterdir()] == [f"step-{STEPS:08d}"]


def full(house: House, disk: Path, **policy: int) -> tuple[str, Path]:
    """A job that has one checkpoint, and which waits for the gate before its end, on a disk without room."""
    asked = CheckpointPolicy(directory=str(disk / "c"), every_steps=STEPS - 20, keep=1, **policy)
    name = house.submit(job("full", house.held(STEPS, STEPS - 5)).but(checkpoint=asked))
    house.until(name, "a checkpoint", lambda detail: detail.job.published_step == STEPS - 20)
    return name, fill(disk)


def test_last_save_on_a_full_disk(house: House, small_disk: Path) -> None:
    """1. The disk is full when a job has done its last step. 2. The job says so, with the next try, and stays: same
    epoch, no restart. 3. Space is made: it is saved, and the job ends well."""
    name, ballast = full(house, small_disk)
    house.open_gate()
    told = house.until(name, "two tries", lambda detail: detail.account.failed_saves > 1)
    assert told.job.reason is not None
    assert told.job.reason.token is Token.SAVE_FAILED
    assert re.search(r"/c has \d+ bytes free, the save needs \d+; its state is kept in memory; tried again in \d+ s",
                     told.job.reason.sentence)  # fmt: skip
    shown = " ".join(house.cli("job", "show", name).stdout.split())
    assert "its state is kept in memory" in shown, shown
    ballast.unlink()
    told = house.finish(name)
    assert (told.job.published_step, told.job.epoch, told.job.restarts) == (STEPS, 1, 0)
    assert (told.account.steps_lost_unplanned, told.account.incidents) == (0, ())


def test_last_save_on_a_disk_that_stays_full(house: House, small_disk: Path) -> None:
    """1. Nobody makes room while the job waits. 2. It fails once, without a restart, and says what was missing. 3. All
    steps since its checkpoint count as lost."""
    name, _ = full(house, small_disk, room_wait_s=2)
    house.open_gate()
    told = wait("it fails", lambda: detail if (detail := house.detail(name)).job.state == "failed" else None)
    assert told.job.reason is not None
    assert told.job.reason.token is Token.RESULT_UNSAVED
    assert re.search(rf"{small_disk}/c has \d+ bytes free, the save needs \d+", told.job.reason.sentence)
    assert (told.job.epoch, told.job.published_step) == (1, STEPS - 20)
    assert told.account.failed_saves >= 3
    assert told.account.steps_lost_unplanned == 20
    assert [incident.cause.token for incident in told.account.incidents] == [Token.RESULT_UNSAVED]


def test_leaving_on_a_full_disk(house: House, small_disk: Path) -> None:
    """1. A job is asked to leave while its disk is full. 2. Its ranks wait with what they have. 3. Space is made: they
    save and leave, and no step is lost."""
    name, ballast = full(house, small_disk)
    shown = house.cli("job", "requeue", name, "--reason", "planned work", "--yes")
    assert shown.returncode == 0, shown
    house.open_gate()
    told = house.until(name, "a try", lambda detail: detail.account.failed_saves > 0)
    ballast.unlink()
    told = house.finish(name)
    assert (told.job.published_step, told.account.steps_lost_planned, told.account.steps_lost_unplanned) == (
        STEPS,
        0,
        0,
    )


def test_worker_dies_during_a_save(house: House) -> None:
    """1. A worker is killed while its checkpoint lies there half written. 2. The job resumes from the newest published
    one; what is half written is not taken for one. 3. After the next publish it is gone, and the losses are right."""
    expected = house.reference(STEPS)
    by_itself = CheckpointPolicy(every_steps=10, snapshot_every_steps=0)
    name = house.submit(job("torn", training(STEPS), checkpoint=by_itself))
    house.wait_step(name, 12)
    worker, checkpoints = house.worker(name, 0), house.checkpoints(name)

    def stopped_in_a_save() -> list[Path]:
        if not list(checkpoints.glob(".staging-*")):
            return []
        assert send(worker, signal.SIGSTOP)
        torn = list(checkpoints.glob(".staging-*"))
        if not torn:
            send(worker, signal.SIGCONT)
        return torn

    (torn,) = wait("a save is stopped half way", stopped_in_a_save, every_s=0.0)
    newest = house.published(name)
    assert send(worker, signal.SIGKILL)
    house.until(name, "it trains again", lambda detail: detail.account.unplanned_recoveries == 1)
    assert house.first_step(name, 2) == newest + 1
    told = house.finish(name)
    assert told.account.incidents[0].cause.token is Token.WORKER_KILLED
    assert "rank 0" in told.account.incidents[0].cause.sentence
    assert (told.job.epoch, told.account.planned_handovers, told.account.unplanned_recoveries) == (2, 0, 1)
    assert abs(told.account.steps_lost_unplanned - house.repeated(name)) <= 1
    assert not torn.exists()
    assert not list(checkpoints.glob(".*"))
    assert house.hexes(name) == expected


# --- jobs that can't work


def ended(house: House, name: str) -> JobDetail:
    told = house.until(name, "it fails", lambda detail: detail.job.state == "failed")
    assert told.job.reason is not None
    no_host_is_marked(house)
    return add_up(told)


def no_host_is_marked(house: House) -> None:
    wait("all hosts are free", lambda: all(view.attempt is None for view in house.hosts().values()))
    assert [(view.state, view.holds) for view in house.hosts().values()] == [("ready", ())] * 2


def test_script_with_a_fault(house: House, tmp_path: Path) -> None:
    """1. A script fails the same way at each start. 2. `job submit --wait` ends with 1. 3. The job names the first
    cause: rank, host, exception, line. 4. No host is held responsible."""
    command = json.dumps(script("fails.py"))
    (tmp_path / "job.toml").write_text(
        f'name = "fault"\ncommand = {command}\nhosts = 2\npreload = ["json"]\nworkdir = "{tmp_path}"\n'
    )
    done = house.cli("job", "submit", str(tmp_path / "job.toml"), "--wait")
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "banana" in done.stderr
    name = done.stdout.split()[0]
    told = ended(house, name)
    assert told.job.reason is not None
    assert told.job.reason.token is Token.SAME_FAILURE_REPEATED
    numbers = told.job.reason.numbers
    assert (numbers["rank"], numbers["host"], numbers["times"]) == (1, "h2", 3)
    for text in ("rank 1 on h2 failed", "ValueError: the learning rate is a banana", "fails.py:7"):
        assert text in told.job.reason.sentence
    shown = as_json(house.cli("job", "show", name, "-o", "json").stdout)
    assert "fails.py:7" in str(shown)
    why = house.cli("job", "why", name)
    assert why.returncode == 0
    assert "the learning rate is a banana" in " ".join(why.stdout.split())


def test_what_does_not_exist(house: House) -> None:
    """1. A command, and a working directory, that do not exist: the job ends, and says which. 2. A module to preload
    that does not exist, and that the script does not need: the events say so, and the job runs."""
    name = house.submit(job("command", ("no-such-program", "x"), preload=()))
    told = ended(house, name)
    assert "No such file or directory: 'no-such-program'" in str(told.job.reason)
    name = house.submit(job("workdir", ("python", "-c", "print(1)"), preload=(), workdir="/no/such/directory"))
    told = ended(house, name)
    assert "/no/such/directory" in str(told.job.reason)
    assert told.account.steps == 0
    before = house.index()
    name = house.submit(job("module", ("python", "-c", "print(1)"), preload=("no_such_module",)))
    house.finish(name)
    complaint = "preload of no_such_module: ModuleNotFoundError: No module named 'no_such_module'"
    assert [text for text in house.sentences(before) if complaint in text]
    no_host_is_marked(house)


# --- scripts that know nothing of us


def test_script_for_torchrun(house: House, tmp_path: Path) -> None:
    """1. A script that was written for torchrun runs as two ranks on each of two hosts. 2. A worker is killed: the job
    starts anew, within its budget. 3. It finishes."""
    gate = tmp_path / "gate"
    name = house.submit(job("plain", script("plain.py", gate), preload=("torch",), ranks_per_host=2))

    def runs() -> bool:
        return "round 3" in house.cli("job", "logs", name, "--rank", "3").stdout

    wait("it sums up", runs)
    assert send(house.worker(name, 3), signal.SIGKILL)
    told = house.until(name, "a second attempt", lambda detail: str(detail.job.attempt).endswith(".a2"))
    wait("it sums up again", runs)
    gate.touch()
    told = house.finish(name)
    assert (told.job.attempt, told.job.restarts) == (f"{told.job.id}.a2", 1)
    cause = told.account.incidents[0].cause
    assert cause.token is Token.WORKER_KILLED
    assert "rank 3" in cause.sentence
    assert "SIGKILL" in cause.sentence


# --- people


def test_cancel_asks_the_workers_first(house: House, tmp_path: Path) -> None:
    """1. A job is cancelled. 2. Each worker gets SIGTERM, and has the time to act on it. 3. The hosts are free."""
    name = house.submit(job("cancel", script("terminated.py", tmp_path), preload=("json",)))
    wait("both ranks are up", lambda: len(list(tmp_path.glob("up-*"))) == 2)
    done = house.cli("job", "cancel", name, "--reason", "wrong data", "--yes")
    assert done.returncode == 0, done.stderr
    no_host_is_marked(house)
    assert [(tmp_path / f"asked-{rank}").read_text() for rank in (0, 1)] == ["SIGTERM", "SIGTERM"]
    told = add_up(house.detail(name))
    assert told.job.state == "cancelled"
    assert "wrong data" in str(told.job.reason)
    assert told.account.incidents == ()


def test_requeued_job_keeps_its_checkpoint(house: House) -> None:
    """1. A job is requeued between two checkpoints. 2. It saves, leaves, and starts again from there: no step is
    lost."""
    expected = house.reference(STEPS)
    name = house.submit(job("requeue", training(STEPS)))
    house.wait_step(name, 23)
    done = house.cli("job", "requeue", name, "--reason", "another driver", "--yes")
    assert done.returncode == 0, done.stderr
    told = house.until(name, "a second attempt trains", lambda detail: newest_step(Path(detail.directory)) == STEPS)
    told = house.finish(name)
    assert str(told.job.attempt).endswith(".a2")
    assert house.repeated(name) == 0
    assert (told.account.planned_handovers, told.account.unplanned_recoveries) == (1, 0)
    assert told.account.steps_lost_planned == 0
    assert house.hexes(name) == expected
