"""The tasks of verification at the edge: what an agent, a command and a process that misbehaves make of them."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.cli.main import main
from trainmaster.core.health.verification.outcome import Outcome, Result, TaskReport, report
from trainmaster.live import jobfile
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.probes import PROBES, deadline_of, split
from trainmaster.live.agent.verify import verify
from trainmaster.live.verification import child, cores, quick, tries

ROOT = Path(__file__).parents[3]


@pytest.fixture
def paths(tmp_path: Path) -> HostPaths:
    return HostPaths(host_dir=str(tmp_path), memory_dir=str(tmp_path), jobs_dir=str(tmp_path))


def reported(outcome: Outcome, task: str = "deep") -> TaskReport:
    return report(task, [Result(task=task, part="p", unit="gpu 0", outcome=outcome, sentence="words")], 0.1)


@pytest.mark.parametrize(
    ("task", "known"),
    [
        ("memory", ("memory", None)),
        ("quick", ("quick", None)),
        ("deep", ("deep", None)),
        ("deep:600", ("deep", 600.0)),
        ("group:5", ("group", 5.0)),
        ("deep:", None),
        ("deep:1.5", None),
        ("deep:-1", None),
        ("deep:1000000", None),
        ("quick:5", None),
        ("memory:5", None),
        ("burn", None),
    ],
)
def test_names_of_tasks(task: str, known: tuple[str, float | None] | None) -> None:
    assert split(task) == known


def test_deadlines_of_tasks() -> None:
    """1. The small probes have one for all. 2. Those of the large ones grow with devices and budget."""
    assert {deadline_of(task, 8) for task in ("memory", "disk", "loopback")} == {20.0}
    assert deadline_of("deep", 8) > deadline_of("deep", 1) > 3 * 120
    assert deadline_of("deep:600", 1) - deadline_of("deep:60", 1) == 3 * 540
    assert all(deadline_of(task, 1) >= 20.0 for task in PROBES)


@pytest.mark.parametrize(
    ("outcomes", "ends", "pauses"),
    [
        ([Outcome.PASS], Outcome.PASS, 0),
        ([Outcome.FAIL], Outcome.FAIL, 0),
        ([Outcome.NOT_RUN, Outcome.PASS], Outcome.PASS, 1),
        ([Outcome.NOT_RUN, Outcome.NOT_RUN, Outcome.NOT_RUN], Outcome.NOT_RUN, 2),
        ([Outcome.INVALID, Outcome.INVALID], Outcome.INVALID, 1),
        ([Outcome.NOT_RUN, Outcome.FAIL], Outcome.FAIL, 1),
    ],
)
def test_tries_have_an_end(outcomes: list[Outcome], ends: Outcome, pauses: int) -> None:
    """1. What was not run is tried three times, what says nothing twice. 2. A failure stands at once."""
    left, slept = [reported(outcome) for outcome in outcomes], list[float]()
    assert tries.settled(lambda: left.pop(0), slept.append).outcome is ends
    assert (left, len(slept)) == ([], pauses)


def test_what_could_not_be_run_is_no_pass_for_the_agent(monkeypatch: pytest.MonkeyPatch, paths: HostPaths) -> None:
    """1. The device stays busy. 2. The agent's sentence is not empty, and says that it is no failure of the host."""
    from trainmaster.live.agent.probes import deep as probe
    from trainmaster.live.verification import deep

    monkeypatch.setattr(tries, "PAUSE_S", 0.0)
    monkeypatch.setattr(deep, "run", lambda budget_s: reported(Outcome.NOT_RUN))
    assert probe.probe(paths) == "could not be run: gpu 0: words (3 tries)"
    monkeypatch.setattr(deep, "run", lambda budget_s: reported(Outcome.FAIL))
    assert probe.probe(paths) == "gpu 0: words"
    monkeypatch.setattr(deep, "run", lambda budget_s: reported(Outcome.PASS))
    assert probe.probe(paths) == ""


def test_quick_names_all_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: HostPaths) -> None:
    """1. Parts that pass, fail, raise, and can't tell. 2. Each has its outcome, the worst is the task's."""
    bodies = {
        "part_well": "return ''",
        "part_bad": "return 'two of eight'",
        "part_raises": "raise OSError('gone')",
        "part_blind": "return 'could not be judged: unreadable'",
    }
    for name, body in bodies.items():
        (tmp_path / f"{name}.py").write_text(f"def probe(paths):\n    {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = quick.run(paths, {name: name for name in bodies})
    assert [result.outcome.value for result in found.results] == ["pass", "fail", "fail", "invalid"]
    assert (found.outcome, found.sentence) == (Outcome.FAIL, "part_bad: two of eight; 1 more")
    blind = quick.run(paths, {"part_blind": "part_blind"})
    assert (blind.outcome, blind.sentence) == (Outcome.INVALID, "part_blind: could not be judged: unreadable")


@pytest.mark.parametrize(
    ("present", "online", "words"),
    [("0-7\n", "0-7\n", ""), ("0\n", "0\n", ""), ("0-7\n", "0-3,5,7\n", "2 of 8 cores are offline, the first is 4")],
)
def test_cores(tmp_path: Path, paths: HostPaths, present: str, online: str, words: str) -> None:
    (tmp_path / "present").write_text(present)
    (tmp_path / "online").write_text(online)
    assert cores.probe(paths, tmp_path) == words


PROGRAMS = {
    "hangs": ("import time; time.sleep(60)", Outcome.FAIL, "no answer within 1 s"),
    "faults": ("import os; os.kill(os.getpid(), 11)", Outcome.FAIL, "ended by SIGSEGV"),
    "bus": ("import os; os.kill(os.getpid(), 7)", Outcome.FAIL, "ended by SIGBUS"),
    "killed": ("import os; os.kill(os.getpid(), 9)", Outcome.NOT_RUN, "ended by SIGKILL"),
    "memory": ("raise MemoryError", Outcome.NOT_RUN, "MemoryError"),
    "defect": ("raise KeyError('x')", Outcome.INVALID, "KeyError"),
    "silent": ("pass", Outcome.INVALID, "it said nothing"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_that_does_not_answer(name: str) -> None:
    """1. A task's process hangs, is ended, or ends by itself without a report. 2. What that says of the host."""
    text, outcome, words = PROGRAMS[name]
    found = child.run("deep", child.Ask(), 1.0 if name == "hangs" else 30.0, None, (sys.executable, "-c", text))
    assert (found.outcome, words in found.sentence) == (outcome, True), found


def test_progress_and_report_of_a_process() -> None:
    lines = [{"share": 0.5, "words": "half"}, {"report": json.loads(encoded(reported(Outcome.PASS)))}]
    text = f"import json\nfor line in {lines!r}: print(json.dumps(line), flush=True)"
    told: list[tuple[float, str]] = []
    found = child.run("deep", child.Ask(), 30.0, lambda *each: told.append(each), (sys.executable, "-c", text))
    assert (found, told) == (reported(Outcome.PASS), [(0.5, "half")])


def encoded(value: TaskReport) -> bytes:
    from trainmaster.core.base.value import encode

    return encode(value)


def test_the_example_is_a_job() -> None:
    spec = jobfile.load(ROOT / "examples" / "group-check.toml")
    assert spec.command[:3] == ("python", "-m", "trainmaster.live.verification.group")
    assert spec.restart.max_restarts == 0


def test_wrong_usage_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "verify", "thorough"]) == 3
    assert "quick" in capsys.readouterr().err


@pytest.mark.real
@pytest.mark.torch
@pytest.mark.parametrize("arguments", [["quick"], ["deep", "--budget-s", "0.2", "--share", "0.001"]], ids=" ".join)
def test_the_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """1. A real task in a process of its own. 2. Its report; the exit code is that of a pass."""
    code = main(["health", "verify", *arguments, "-o", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["schema"]) == (arguments[0], "trainmaster.verification-result/v1")
    assert (code, found["outcome"]) == (0, "pass"), found


@pytest.mark.real
@pytest.mark.torch
def test_the_agent_runs_the_tasks(paths: HostPaths) -> None:
    """1. As a catalogue may demand them. 2. They pass; a name that is none is a failure."""
    assert asyncio.run(verify(("memory", "deep:1"), paths)) == ""
    assert asyncio.run(verify(("deep:x",), paths)) == "deep:x: there is no such verification task here"
    hung: Callable[[], str] = lambda: asyncio.run(verify(("deep:30",), paths, deadline_s=0.2))  # noqa: E731
    assert hung() == "deep:30: no answer within 0 s"


@pytest.mark.real
@pytest.mark.torch
def test_the_group_of_one_host(paths: HostPaths) -> None:
    """1. Two ranks of this host, started with torchrun's variables. 2. They meet, and their sum is right."""
    pytest.importorskip("torch")
    from trainmaster.live.verification import ranks

    told: list[str] = []
    found = ranks.run(20.0, 3, lambda share, words: told.append(words))
    assert found.outcome is Outcome.PASS, found
    assert any("round 1 of 3" in words for words in told)


@pytest.mark.torch
def test_ranks_that_do_not_come_are_named() -> None:
    """1. Of three ranks two never come. 2. Not run, and which ranks are missing; nobody has failed."""
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    from trainmaster.live.verification.group import Settings, check

    found = check(torch, dist.HashStore(), 0, 3, "h1", Settings(join_s=0.05, pair_s=0.05, leave_s=0.05))
    assert found is not None
    assert (found.outcome, found.hosts) == (Outcome.NOT_RUN, {"h1": Outcome.NOT_RUN})
    assert found.sentence == "group: 2 of 3 ranks did not come: 1, 2; 2 more"
