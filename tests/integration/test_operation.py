"""Rows of steps with real processes: outcomes, deadlines, what is left behind, and a crash at each marker."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.agent_host import eventually, is_gone

from trainmaster.core.agent import steps
from trainmaster.core.base.ids import BootId, ComponentName, EffectId, HostId, OperationId
from trainmaster.core.base.time import seconds
from trainmaster.core.effects import Observation, RebootHost, RunSteps, StepCommand
from trainmaster.live.agent.attempt import EffectFailed, NotRun
from trainmaster.live.agent.command import OUTPUT_LIMIT
from trainmaster.live.agent.operation import KEPT, Operations
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.reboot import Rebooter
from trainmaster.live.agent.row_file import MARKERS, RowFile
from trainmaster.live.agent.sink import TAIL_BYTES

pytestmark = pytest.mark.real

BOOT = BootId("b1")


@pytest.fixture
def paths(tmp_path: Path) -> HostPaths:
    (tmp_path / "host").mkdir()
    return HostPaths(host_dir=str(tmp_path / "host"), memory_dir=str(tmp_path / "memory"), jobs_dir=str(tmp_path))


def shell(*commands: str, show: str = "", wanted: str = "2.0", deadline_s: float = 20.0, number: int = 1) -> RunSteps:
    """A row of shell commands, named s0, s1, ...; `show` is the observation."""
    made = [
        StepCommand(name=f"s{index}", command=("sh", "-c", text), deadline=seconds(deadline_s))
        for index, text in enumerate(commands)
    ]
    look = Observation(
        component=ComponentName("tool"), command=("sh", "-c", show), deadline=seconds(deadline_s), wanted=wanted
    )
    return RunSteps(
        id=EffectId(f"e{number}.1"),
        host=HostId("h1"),
        operation=OperationId("op-1"),
        leg="apply",
        steps=tuple(made),
        observe=look if show else None,
    )


def run(paths: HostPaths, effect: RunSteps) -> tuple[str, str, steps.Numbers]:
    """(outcome, detail, numbers)."""
    try:
        return "done", *asyncio.run(Operations(paths, BOOT).run(effect))
    except EffectFailed as error:
        return "failed", str(error), error.numbers


def row_of(paths: HostPaths, effect: RunSteps) -> Path:
    return paths.row(effect.operation, effect.leg, effect.id)


def test_steps_run_in_order_with_their_environment(paths: HostPaths) -> None:
    """1. Two steps and an observation. 2. They ran in the host's directory, knew who they are, had no input and a
    group of their own. 3. Output is kept; warnings of the observation are not taken for a version."""
    own_group = 'test "$$" = "$(ps -o pgid= -p $$ | tr -d " ")"'
    text = own_group + ' && cat && echo "$TRAINMASTER_OPERATION $TRAINMASTER_STEP" >> who'
    effect = shell(text, text + "; echo $TRAINMASTER_HOST_DIR; echo late >&2", show="echo old >&2; echo 2.0")
    assert run(paths, effect) == ("done", "", {"step": 2, "component": "tool", "version": "2.0"})
    assert Path(paths.host_dir, "who").read_text() == "op-1 s0\nop-1 s1\n"
    assert (row_of(paths, effect) / "1-s1.log").read_text() == f"{paths.host_dir}\nlate\n"
    assert (row_of(paths, effect) / "observe.err").read_text() == "old\n"


@pytest.mark.parametrize(
    ("effect", "outcome", "detail"),
    [
        (shell("true", show="echo 1.0"), "failed", "observed 1.0, wanted 2.0"),
        (
            shell("echo no vault; exit 3", show="echo 2.0"),
            "done",
            "observed 2.0 as wanted, although step s0 ended with exit code 3: no vault",
        ),
        (
            shell("echo first; echo the last line >&2; exit 3"),
            "failed",
            "step s0 ended with exit code 3: the last line",
        ),
        (shell("kill -9 $$", "touch never"), "failed", "step s0 was ended by signal 9"),
        (
            shell("true", show="echo 2.0; echo broken >&2; exit 1"),
            "failed",
            "the version can't be seen: the observation ended with exit code 1: broken",
        ),
    ],
)
def test_what_is_observed_decides(paths: HostPaths, effect: RunSteps, outcome: str, detail: str) -> None:
    assert run(paths, effect)[:2] == (outcome, detail)
    assert not Path(paths.host_dir, "never").exists()


def test_command_that_is_not_there(paths: HostPaths) -> None:
    effect = shell("true")
    absent = effect.but(steps=(effect.steps[0].but(command=("no-such-installer",)),))
    detail = "step s0 could not be started (no-such-installer: No such file or directory)"
    assert run(paths, absent) == ("failed", detail, {"step": 0})


FORKS = "sleep 1000 & echo $! >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 1000' & sleep 0.1; echo $$ >> pids; "


@pytest.mark.parametrize("obeys", [True, False])
def test_deadline_ends_everything_that_a_step_started(paths: HostPaths, obeys: bool) -> None:
    """1. A step forks a child, and another that leaves its group, and hangs, with SIGTERM ignored or not. 2. All of it
    is gone, and the row has failed although the version is the wanted one."""
    trap = "" if obeys else "trap '' TERM; "
    effect = shell(f"{trap}{FORKS} echo waiting; sleep 1000", "touch never", show="echo 2.0", deadline_s=0.6)
    outcome, detail, numbers = run(paths, effect)
    assert outcome == "failed"
    assert detail.startswith("step s0 was past its deadline of 0.6 s")
    assert (numbers["step"], numbers["version"], numbers["deadline_s"]) == (0, "2.0", 0.6)
    pids = [int(pid) for pid in Path(paths.host_dir, "pids").read_text().split()]
    assert len(pids) == 3
    assert all(is_gone(pid) for pid in pids)
    assert not Path(paths.host_dir, "never").exists()


def test_nothing_outlives_a_step_that_ends_well(paths: HostPaths) -> None:
    assert run(paths, shell(FORKS))[0] == "done"
    assert all(is_gone(int(pid)) for pid in Path(paths.host_dir, "pids").read_text().split())


def test_observation_that_hangs(paths: HostPaths) -> None:
    """It is past its own deadline; what it started is gone; the version is not known, so the row has failed."""
    outcome, detail, numbers = run(paths, shell(show=f"echo 2.0; {FORKS} sleep 1000", deadline_s=0.5))
    assert (outcome, numbers) == ("failed", {"step": 0})
    assert detail.startswith("the version can't be seen: the observation was past its deadline of 0.5 s")
    assert all(is_gone(int(pid)) for pid in Path(paths.host_dir, "pids").read_text().split())


def test_output_is_bounded(paths: HostPaths) -> None:
    """1. A step prints two megabytes. 2. The log has the start, the end, and a word on what is missing."""
    effect = shell("yes 0123456789 | head -c 2000000; echo; echo the end; exit 1")
    assert run(paths, effect)[1] == "step s0 ended with exit code 1: the end"
    log = (row_of(paths, effect) / "0-s0.log").read_bytes()
    assert OUTPUT_LIMIT + TAIL_BYTES < len(log) < OUTPUT_LIMIT + TAIL_BYTES + 100
    assert b"bytes of output left out]" in log
    assert log.endswith(b"the end\n")


def test_crash_at_each_marker(paths: HostPaths) -> None:
    """1. A row of two steps is carried out; each step leaves a line each time it runs. 2. For each prefix of the row's
    markers, torn ones too, the row is offered again as after a crash there. 3. It is done each time; a step with an
    end did not run again, one that was begun did, unless the wanted version is seen."""
    counted = ("echo s0 >> ran", "echo s1 >> ran; echo 2.0 > version")
    effect = shell(*counted, show="cat version")
    markers, ran, version = (
        row_of(paths, effect) / MARKERS,
        Path(paths.host_dir, "ran"),
        Path(paths.host_dir, "version"),
    )
    assert run(paths, effect)[0] == "done"
    lines = markers.read_bytes().splitlines(keepends=True)
    assert len(lines) == 6  # begun, process, end of each
    expected = ["s0 s1", "s0 s1", "s0 s1", "s1", "s1", "s1", ""]
    for kept, again in enumerate(expected):
        for torn in (b"", lines[kept][:7] if kept < 6 else b""):
            markers.write_bytes(b"".join(lines[:kept]) + torn)
            version.unlink()
            version.write_text("1.0\n" if kept < 6 else "2.0\n")
            ran.write_text("")
            assert run(paths, effect)[0] == "done", kept
            assert ran.read_text().split() == again.split(), kept
    markers.write_bytes(b"".join(lines[:4]))
    ran.write_text("")
    detail = "step s1 was interrupted, but 2.0 is there"
    assert run(paths, effect) == ("done", detail, {"step": 1, "component": "tool", "version": "2.0"})
    assert ran.read_text() == ""


def test_failed_step_is_not_run_again_and_another_request_is(paths: HostPaths) -> None:
    """1. A step fails. 2. The same effect, whose journal is lost: the same answer, nothing ran. 3. A new effect of the
    operation starts from the first step."""
    effect = shell("echo s0 >> ran; exit 4")
    first = run(paths, effect)
    assert run(paths, effect) == first
    assert Path(paths.host_dir, "ran").read_text() == "s0\n"
    run(paths, effect.but(id=EffectId("e2.1")))
    assert Path(paths.host_dir, "ran").read_text() == "s0\ns0\n"


def test_damaged_markers_are_not_believed(paths: HostPaths) -> None:
    effect = shell("touch never")
    row_of(paths, effect).mkdir(parents=True)
    (row_of(paths, effect) / MARKERS).write_bytes(b"garbage\n")
    outcome, detail, _ = run(paths, effect)
    assert (outcome, "is damaged" in detail) == ("failed", True)
    assert not Path(paths.host_dir, "never").exists()


def test_leftovers_of_a_crash_are_ended(paths: HostPaths) -> None:
    """1. The loop that runs a step is gone at once (here: its task is left alone and the markers stay), with children
    in and out of the group. 2. The next agent ends them before it asks for anything."""
    effect = shell(FORKS + "sleep 1000")
    environment = steps.environment(os.environ, paths.host_dir, effect.operation, "s0", os.getcwd())
    process = subprocess.Popen(
        ["sh", "-c", FORKS + "sleep 1000"], env=environment, cwd=paths.host_dir, start_new_session=True
    )
    pids = Path(paths.host_dir, "pids")
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    Operations(paths, BOOT).adopt()
    process.wait(20)
    assert all(is_gone(int(pid)) for pid in pids.read_text().split())


def test_shutdown_leaves_no_process_and_the_row_goes_on(paths: HostPaths) -> None:
    """1. The agent ends while a step runs: the step is gone at once. 2. The next one runs it again."""
    effect = shell("echo $$ >> pids; test -e go || sleep 1000")
    pids = Path(paths.host_dir, "pids")

    async def cut_short() -> None:
        running = asyncio.create_task(Operations(paths, BOOT).run(effect))
        while not (pids.exists() and pids.read_text()):
            await asyncio.sleep(0.005)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cut_short())
    assert is_gone(int(pids.read_text()))
    Path(paths.host_dir, "go").touch()
    assert run(paths, effect)[0] == "done"
    assert len(pids.read_text().split()) == 2


def test_old_operations_are_forgotten(paths: HostPaths) -> None:
    """More than what is kept: the oldest goes when a new one comes."""
    for number in range(KEPT + 2):
        directory = paths.operations / f"old-{number}"
        directory.mkdir(parents=True)
        os.utime(directory, ns=(number, number))
    assert run(paths, shell("true"))[0] == "done"
    kept = {path.name for path in paths.operations.iterdir()}
    assert len(kept) == KEPT + 1
    assert kept.isdisjoint({"old-0", "old-1"})


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(directory)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system can't be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> None:
    with (directory / "fill").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def test_full_disk_before_and_in_a_step(paths: HostPaths, small: Path) -> None:
    """1. No room for a marker: the step is not started, and it says so. 2. The disk fills while the step runs: it
    may have run, which is said; nothing is taken for an end. 3. With room again the row goes on there."""
    full = paths.but(host_dir=str(small))
    fill(small)
    outcome, detail, _ = run(full, shell("touch started", show="echo 2.0"))
    assert (outcome, detail.startswith("step s0 was not started: its marker can't be written")) == ("failed", True)
    assert not (small / "started").exists()
    (small / "fill").unlink()
    effect = shell("echo x >> ran; head -c 100000 /dev/zero > fill; cat ran > /dev/full; true", number=2)
    long = effect.but(steps=(effect.steps[0].but(name="s" * 4000),))
    row = row_of(full, long)
    outcome, detail, _ = run(full, long)
    assert (outcome, "may have run, but what became of it can't be written" in detail) == ("failed", True), detail
    assert RowFile(row).ends() == {}
    (small / "fill").unlink()
    again = long.but(steps=(long.steps[0].but(command=("sh", "-c", "echo x >> ran")),))
    assert run(full, again)[0] == "done"
    assert (small / "ran").read_text() == "x\nx\n"


def reboot(paths: HostPaths, *command: str, busy: str = "", going_down_s: float = 0.2) -> steps.Numbers:
    asked = RebootHost(id=EffectId("e1.1"), host=HostId("h1"), operation=OperationId("op-1"), why="new kernel")
    rebooter = Rebooter(paths, BOOT, command, seconds(going_down_s))
    return asyncio.run(rebooter.reboot(asked, lambda: busy))[1]


def test_reboot_that_never_happens(paths: HostPaths) -> None:
    """1. The command ends well and nothing follows, twice: failed. 2. It is written down who wanted it and why."""
    with pytest.raises(EffectFailed, match="after 2 tries: it was not rebooted; sh ended with 0, and nothing followed"):
        reboot(paths, "sh", "-c", "echo try >> $0/tries", paths.host_dir)
    assert Path(paths.host_dir, "tries").read_text() == "try\ntry\n"
    assert '"why":"new kernel"' in paths.reboot.read_text()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("sh", "-c", "exit 3"), "sh ended with 3"),
        (("no-such-command",), "no-such-command can't be started"),
        (("sleep", "1000"), "sleep did not end within 0.2 s"),
    ],
)
def test_reboot_command_that_fails(paths: HostPaths, command: tuple[str, ...], says: str) -> None:
    with pytest.raises(EffectFailed, match=says):
        reboot(paths, *command)


def test_reboot_is_refused_where_something_runs_or_no_command_is_known(paths: HostPaths) -> None:
    """Nothing is written, nothing runs."""
    with pytest.raises(NotRun, match="workers of job-1"):
        reboot(paths, "touch", "never", busy="workers of job-1.a1 epoch 1 run on h1")
    with pytest.raises(NotRun, match="--reboot-command"):
        reboot(paths)
    assert not paths.reboot.exists()
