"""`trainmaster maint` against a real server process: asked for, bound to what was read, steered, and waited for."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import server_process
from tests.fakes.command import CommandLine
from tests.fakes.server_process import FakeAgent, ServerProcess, eventually, server

pytestmark = pytest.mark.real

CATALOGUE = """\
schema = "trainmaster.catalogue/v1"
name = "small"

[[component]]
name = "client"
disturbs = "nothing"
median_s = 1
p90_s = 2
limit_s = 60
observe = ["show", "{component}"]
steps = [{ name = "install", command = ["true"], deadline_s = 30 }]

[[kind]]
name = "deep-check"
disturbs = "drain"
median_s = 1
p90_s = 2
limit_s = 60
steps = [{ name = "compute", command = ["true"], deadline_s = 30 }]
"""
TRAIN = """\
schema = "trainmaster.maintenance/v1"

[[target]]
component = "client"
version = "2.0"

[[train]]
name = "weekly"
hosts = "h[0-3]"
domain_size_hosts = 1
cycle_days = 7
"""
YES = ("--reason", "test", "--yes")


class Doer:
    """Says of everything that the agent is asked that it is done, until the test ends."""

    def __init__(self, agent: FakeAgent) -> None:
        self.agent, self._over = agent, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        answered = 0
        while not self._over.wait(0.02):
            self.agent.beat()
            for effect in self.agent.effects()[answered:]:
                self.agent.report(self.agent.done(effect.id))
                answered += 1

    def end(self) -> None:
        self._over.set()
        self._thread.join(server_process.DEADLINE_S)
        self.agent.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    monkeypatch.setattr(server_process, "FLEET", f'catalogue = "catalogue.toml"\n{server_process.FLEET}')
    (tmp_path / "catalogue.toml").write_text(CATALOGUE)
    with server(tmp_path / "state") as process:
        yield process


@pytest.fixture
def line(place: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    (tmp_path / "home").mkdir()
    line = CommandLine(tmp_path / "home", monkeypatch)
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(place.state))
    return line


@pytest.fixture
def doer(place: ServerProcess) -> Iterator[Doer]:
    """h0 is ready, and does what it is asked."""
    agent = FakeAgent(place, "h0")
    agent.register()
    agent.listen()
    doer = Doer(agent)
    try:
        eventually(lambda: place.host("h0")["state"] == "ready", "h0 is ready")
        yield doer
    finally:
        doer.end()


def test_from_a_plan_to_its_end(line: CommandLine, doer: Doer) -> None:
    """1. Planned and kept. 2. Applied, waited for: done, exit code 0. 3. It is there with its story. 4. Applied again
    it is not done twice."""
    assert line.run("maint", "plan", "--kind", "deep-check", "-w", "h0", "--out", "plan.json").code == 0
    ran = line.run("maint", "apply", "plan.json", *YES, "--wait", "--timeout", "20s")
    assert (ran.code, ran.out) == (0, "op-1\n"), ran.err
    assert "op-1, deep-check on host/h0, is done" in ran.err
    assert line.run("maint", "ls", "--state", "done", "-o", "name").out == "op-1\n"
    story = json.loads(line.run("maint", "show", "op-1", "-o", "json").out)["history"]
    assert story[-1]["end"] == "done"
    assert line.run("maint", "watch", "op-1").code == 0
    assert line.run("maint", "apply", "plan.json", *YES).out == "op-1\n"
    assert line.run("maint", "ls").err == "no operations\n"


def test_the_world_moves(place: ServerProcess, line: CommandLine, doer: Doer) -> None:
    """1. A plan for h0 is kept. 2. h0 is lost. 3. The plan is refused, and the reason is what changed."""
    assert line.run("maint", "plan", "--kind", "deep-check", "-w", "h0", "--out", "plan.json").code == 0
    doer.end()
    eventually(lambda: place.host("h0")["state"] == "out-failed", "h0 is lost")
    ran = line.run("maint", "apply", "plan.json", *YES)
    assert (ran.code, ran.out) == (4, "")
    assert "operations.items[host/h0].waits: none, now unit-failed" in ran.err
    assert line.run("maint", "ls", "--state", "ended").err == "no operations\n"


def test_what_waits_is_told_and_cancelled(line: CommandLine, place: ServerProcess) -> None:
    """1. h1 was never there, so work on it waits, and says so wherever one looks. 2. Cancelled; again: exit code 1."""
    ran = line.run("maint", "apply", "--kind", "deep-check", "-w", "h1", *YES)
    assert (ran.code, "1 operation waits; op-1: unit-failed" in ran.err) == (0, True)
    assert "unit-failed" in line.run("maint", "ls", "--waiting").out
    assert "waiting      unit-failed 1" in line.run("status").out
    ran = line.run("maint", "apply", "--kind", "deep-check", "-w", "h2", *YES, "--wait", "--timeout", "0s")
    assert (ran.code, ran.out) == (6, "op-2\n")
    ran = line.run("maint", "cancel", "op-1", "op-2", *YES)
    assert (ran.code, ran.out) == (0, "op-1 is cancelled\nop-2 is cancelled\n")
    assert line.run("maint", "cancel", "op-1", *YES).code == 1
    assert line.run("maint", "watch", "op-1").code == 1


def test_a_train_from_a_file_to_its_end(line: CommandLine) -> None:
    """1. Declared by a file, it only observes, and brings what the file calls proven. 2. The same file asks for nothing
    more. 3. Promoted once. 4. Paused, resumed, aborted: watching it is over."""
    (line.home / "train.toml").write_text(TRAIN)
    plan = line.run("maint", "plan", "train.toml")
    assert (plan.code, "weekly, observe: is new" in plan.out) == (0, True)
    ran = line.run("maint", "apply", "train.toml", *YES)
    assert ran.code == 0, ran.err
    assert "4 stops" in ran.err
    again = json.loads(line.run("maint", "plan", "train.toml", "-o", "json").out)
    assert ([each["changes"] for each in again["trains"]], [each["changed"] for each in again["versions"]]) == (
        [False],
        [False],
    )
    assert line.run("maint", "promote", "weekly", *YES).code == 0
    assert line.run("maint", "promote", "weekly", *YES).code == 1
    shown = json.loads(line.run("maint", "show", "weekly", "-o", "json").out)
    assert (shown["spec"]["mode"], shown["spec"]["domains"]) == ("act", [["h0"], ["h1"], ["h2"], ["h3"]])
    for verb, state in (("pause", "paused"), ("resume", ""), ("abort", "ended")):
        assert line.run("maint", verb, "weekly", *YES).code == 0
        assert state in line.run("maint", "ls", "trains").out
    assert line.run("maint", "watch", "weekly").code == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("show", "op-7"), 3, "no-such-operation"),
        (("show", "daily"), 3, "no train and no rollout"),
        (("plan", "none.toml"), 2, "the file does not exist"),
        (("apply", "--component", "clint", "--version", "2", "-w", "h0", *YES), 3, "the nearest name is 'client'"),
        (("apply", "--kind", "deep-check", "--scope", "rack/r77", *YES), 3, "no-such-resource"),
        (("plan", "gang.toml"), 3, "no-such-job"),
        (("plan", "--kind", "deep-check", "-w", "h[0"), 2, "cannot read the host list"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_bad_input(words: tuple[str, ...], code: int, said: str, line: CommandLine) -> None:
    text = '[[gang]]\njob = "llama"\ncomponent = "client"\nversion = "2"\n'
    (line.home / "gang.toml").write_text(f'schema = "trainmaster.maintenance/v1"\n{text}')
    ran = line.run("maint", *words)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert "Traceback" not in ran.err


def test_a_server_that_is_down(place: ServerProcess, line: CommandLine) -> None:
    assert line.run("maint", "plan", "--kind", "deep-check", "-w", "h0", "--out", "plan.json").code == 0
    assert place.stop() == 0
    assert line.run("maint", "apply", "plan.json", *YES).code == 6
    assert line.run("maint", "ls").code == 6
