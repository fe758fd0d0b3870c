"""The README's commands work as printed, in their order.

Changed for the test: the model of the example job is small and paced, `job watch` is interrupted once it has shown a
step, files are written elsewhere, and what asks on a terminal is answered by `--yes`.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.live import jobfile

ROOT = Path(__file__).resolve().parents[2]
SMALL = '"--steps", "4000", "--dim", "32", "--layers", "1", "--heads", "2", "--key-heads", "1", "--hidden", "64", '
SMALL += '"--seq-len", "16", "--global-batch", "4", "--step-sleep", "0.05"'

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]


ASKS = (["host", "drain"], ["maint", "apply"], ["maint", "promote"])
HEALTHY = (0, 1, 2, 3)
"""Whatever this machine's health is, its verdict is an exit code."""


def commands(section: str, place: int = 0) -> list[str]:
    """The lines of a block of a section of the README that call trainmaster."""
    text = (ROOT / "README.md").read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    block = re.findall(r"```console\n(.*?)```", text, re.DOTALL)[place]
    lines = [line.removeprefix("$ ").split("  #")[0].strip() for line in block.splitlines()]
    lines = [line.removeprefix("dmesg | ") for line in lines]
    assert all(line.startswith("trainmaster ") for line in lines), lines
    return lines


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    state = tmp_path / "state"
    environment = {**os.environ, "TRAINMASTER_RUN_DIR": str(state), "PYTHONPATH": str(ROOT / "src")}
    yield environment
    run(["down"], environment)


def run(arguments: list[str], environment: dict[str, str], text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainmaster", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False, input=text
    )


def watch(arguments: list[str], environment: dict[str, str]) -> None:
    """Watches until a step is shown, then presses ctrl-c."""
    command = [sys.executable, "-m", "trainmaster", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what runs in the background ignores it
    ) as shown:
        assert shown.stdout is not None
        deadline = time.monotonic() + 90
        for line in iter(shown.stdout.readline, b""):
            if re.search(rb"step \d+", line):
                break
            assert time.monotonic() < deadline
        shown.send_signal(signal.SIGINT)
        assert shown.wait(10) == 130


def small_example(tmp_path: Path) -> str:
    text = (ROOT / "examples" / "llama.toml").read_text()
    small, count = re.subn(r'"--steps", "\d+"', SMALL, text)
    assert count == 1
    path = tmp_path / "llama.toml"
    path.write_text(small)
    return str(path)


def test_the_commands_work_as_printed(environment: dict[str, str], tmp_path: Path) -> None:
    """1. Up. 2. Submit, watch. 3. Drain, first as a dry run. 4. Look. 5. Down."""
    seen = carried_out(commands("A fleet on this machine"), environment, tmp_path)
    assert seen[0].startswith("up ")
    assert seen[-1] == "down"
    assert "host drain" in seen


def test_the_commands_of_maintenance_work_as_printed(environment: dict[str, str], tmp_path: Path) -> None:
    """1. Up. 2. Plan, apply just that, wait for it. 3. Look at operations and at a train. 4. Promote it. 5. What is
    said of the health of a fleet. 6. Down."""
    *maintenance, last = commands("Maintenance")
    seen = carried_out([*maintenance, *commands("Health", 1), last], environment, tmp_path)
    assert [seen[0], seen[-1]] == ["up scenarios/local.toml", "down"]
    assert {"health report", "health ls", "health promote", "host history", "rma ls"} <= set(seen)
    assert {"maint plan", "maint apply", "maint ls", "maint show", "maint promote"} <= set(seen)


def test_the_commands_of_health_need_no_server(environment: dict[str, str]) -> None:
    """1. A log that has just come. 2. Probes of this machine. 3. Verification. Each ends with a verdict."""
    for line in commands("Health"):
        done = run(shlex.split(line)[1:], environment, "[1.0] usb 1-1: new high-speed USB device\n")
        assert done.returncode in HEALTHY, (line, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, line


def test_the_command_of_the_interval_needs_no_server(environment: dict[str, str]) -> None:
    """It tells the choice, and why, from numbers alone."""
    (line,) = commands("Your own script")
    done = run(shlex.split(line)[1:], environment)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^chosen +1[0-9]\.[0-9] min", done.stdout, re.MULTILINE)
    assert "a failure comes every 3.09 h" in done.stderr


def carried_out(lines: list[str], environment: dict[str, str], tmp_path: Path) -> list[str]:
    """Runs commands on a local fleet; noun and verb of each."""
    seen = []
    moved = {"examples/llama.toml": small_example(tmp_path), "plan.json": str(tmp_path / "plan.json")}
    for line in lines:
        arguments = [moved.get(word, word) for word in shlex.split(line)[1:]]
        if arguments[:2] == ["job", "watch"]:
            watch(arguments, environment)
        else:
            asks = arguments[:2] in ASKS and "--dry-run" not in arguments
            done = run([*arguments, *(["--yes"] if asks else [])], environment)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
        seen.append(" ".join(arguments[:2]))
    return seen


def test_the_files_that_it_names_are_right(tmp_path: Path) -> None:
    """The example job and the job file printed in the README are accepted."""
    assert jobfile.load(ROOT / "examples" / "llama.toml").hosts == 4
    printed = re.search(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert printed is not None
    path = tmp_path / "job.toml"
    path.write_text(printed[1])
    assert jobfile.load(path).ranks_per_host == 8
