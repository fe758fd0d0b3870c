"""Rows of steps and reboots: what comes next, and what the outcome is."""

import pytest

from trainmaster.core.agent import steps
from trainmaster.core.agent.reboot import RebootRecord, next_reboot
from trainmaster.core.agent.steps import End, Look, Row, Run, Seen, StepEnd, known_row, next_action
from trainmaster.core.base.ids import BootId, ComponentName, EffectId, HostId, OperationId
from trainmaster.core.base.time import Duration, Instant, seconds
from trainmaster.core.effects import Observation, RebootHost, RunSteps, StepCommand

TOOK = seconds(1)
WELL = StepEnd(took=TOOK, exit_code=0)
FAILS = StepEnd(took=TOOK, exit_code=3, last_line="no space in the vault")
OVERDUE = StepEnd(took=seconds(5.25), signal=15, overdue=True, last_line="still copying")
CRASHES = StepEnd(took=TOOK, signal=11)
ABSENT = StepEnd(took=Duration(0), trouble="installer: No such file or directory")
OLD, NEW, BLIND = (
    Seen(version="1.0"),
    Seen(version="2.0"),
    Seen(version=None, trouble="the observation printed nothing"),
)


def effect(*names: str, wanted: str | None = "2.0", command: tuple[str, ...] = ("do",)) -> RunSteps:
    observe = None
    if wanted is not None:
        observe = Observation(component=ComponentName("tool"), command=("show",), deadline=seconds(1), wanted=wanted)
    return RunSteps(
        id=EffectId("e1.1"),
        host=HostId("h1"),
        operation=OperationId("op-1"),
        leg="apply",
        steps=tuple(StepCommand(name=name, command=command, deadline=seconds(5)) for name in names),
        observe=observe,
    )


@pytest.mark.parametrize(
    ("wanted", "row", "action"),
    [
        ("2.0", Row(), Run(step=0)),
        ("2.0", Row(ends=(WELL,)), Run(step=1)),
        ("2.0", Row(ends=(FAILS,)), Look()),
        ("2.0", Row(ends=(OVERDUE,)), Look()),
        ("2.0", Row(ends=(WELL, WELL)), Look()),
        ("2.0", Row(interrupted=True), Look()),
        ("2.0", Row(ends=(WELL,), interrupted=True), Look()),
        ("2.0", Row(ends=(WELL,), interrupted=True, seen=OLD), Run(step=1)),
        ("2.0", Row(ends=(WELL,), interrupted=True, seen=BLIND), Run(step=1)),
        ("", Row(ends=(WELL,), interrupted=True), Run(step=1)),
        (None, Row(ends=(WELL,), interrupted=True), Run(step=1)),
    ],
)
def test_what_comes_next(wanted: str | None, row: Row, action: Run | Look) -> None:
    """A step, or a look: after the row, after a failure, and first of all after an interruption."""
    assert next_action(effect("fetch", "install", wanted=wanted), row) == action


@pytest.mark.parametrize(
    ("wanted", "row", "outcome", "detail", "numbers"),
    [
        ("2.0", Row(ends=(WELL, WELL), seen=NEW), "done", "", {"step": 2, "version": "2.0"}),
        ("", Row(ends=(WELL, WELL), seen=OLD), "done", "", {"step": 2, "version": "1.0"}),
        (None, Row(ends=(WELL, WELL)), "done", "", {"step": 2}),
        ("2.0", Row(ends=(WELL, WELL), seen=OLD), "failed", "observed 1.0, wanted 2.0", {"step": 2, "version": "1.0"}),
        (
            "2.0",
            Row(ends=(WELL, FAILS), seen=NEW),
            "done",
            "observed 2.0 as wanted, although step install ended with exit code 3: no space in the vault",
            {"step": 1, "version": "2.0", "exit_code": 3},
        ),
        (
            "2.0",
            Row(ends=(FAILS,), seen=OLD),
            "failed",
            "step fetch ended with exit code 3: no space in the vault; observed 1.0, wanted 2.0",
            {"step": 0, "version": "1.0", "exit_code": 3},
        ),
        (
            "",
            Row(ends=(FAILS,), seen=OLD),
            "failed",
            "step fetch ended with exit code 3: no space in the vault",
            {"step": 0, "version": "1.0", "exit_code": 3},
        ),
        (None, Row(ends=(CRASHES,)), "failed", "step fetch was ended by signal 11", {"step": 0, "signal": 11}),
        (
            None,
            Row(ends=(ABSENT,)),
            "failed",
            "step fetch could not be started (installer: No such file or directory)",
            {"step": 0},
        ),
        (
            "2.0",
            Row(ends=(WELL, OVERDUE), seen=NEW),
            "failed",
            "step install was past its deadline of 5 s and was killed after 5.2 s: still copying",
            {"step": 1, "version": "2.0", "signal": 15, "deadline_s": 5.0, "took_s": 5.25},
        ),
        (
            "2.0",
            Row(ends=(WELL, WELL), seen=BLIND),
            "failed",
            "the version can't be seen: the observation printed nothing",
            {"step": 2},
        ),
        (
            "2.0",
            Row(ends=(WELL,), interrupted=True, seen=NEW),
            "done",
            "step install was interrupted, but 2.0 is there",
            {"step": 1, "version": "2.0"},
        ),
    ],
)
def test_outcome(wanted: str | None, row: Row, outcome: str, detail: str, numbers: steps.Numbers) -> None:
    """What is observed decides; a killed step and a version that can't be seen are failures whatever else."""
    end = next_action(effect("fetch", "install", wanted=wanted), row)
    assert isinstance(end, End)
    seen = {"component": "tool"} if "version" in numbers else {}
    assert (end.outcome, end.detail, end.numbers) == (outcome, detail, {**numbers, **seen})


@pytest.mark.parametrize(
    ("begun", "ends", "row"),
    [
        ((), {}, Row()),
        ((0,), {}, Row(interrupted=True)),
        ((0,), {0: WELL}, Row(ends=(WELL,))),
        ((0, 1), {0: WELL}, Row(ends=(WELL,), interrupted=True)),
        ((0, 1), {0: WELL, 1: FAILS}, Row(ends=(WELL, FAILS))),
    ],
)
def test_markers_make_the_row(begun: tuple[int, ...], ends: dict[int, StepEnd], row: Row) -> None:
    assert known_row(effect("fetch", "install"), frozenset(begun), ends) == row


def test_steps_that_do_nothing_need_no_markers() -> None:
    """1. A row of them is over at once. 2. Before a real step they are skipped, and the markers of that one count."""
    nothing = effect("a", "b", wanted=None, command=steps.NOTHING)
    assert steps.does_nothing(nothing)
    end = next_action(nothing, known_row(nothing, frozenset(), {}))
    assert isinstance(end, End)
    assert (end.outcome, end.numbers) == ("done", {"step": 2})
    mixed = nothing.but(steps=(*nothing.steps, *effect("real").steps, nothing.steps[0]))
    assert not steps.does_nothing(mixed)
    assert next_action(mixed, known_row(mixed, frozenset(), {})) == Run(step=2)
    assert known_row(mixed, frozenset({2}), {}).interrupted
    assert len(known_row(mixed, frozenset({2}), {2: WELL}).ends) == 4
    assert len(known_row(mixed, frozenset({2}), {2: FAILS}).ends) == 3


def test_first_line_of_a_good_observation_is_the_version() -> None:
    """1. The first line, trimmed. 2. A failed, late or silent observation shows no version, whatever it printed."""
    observe = effect().observe
    assert observe is not None
    assert steps.seen(observe, WELL, " 2.0 \nand more\n") == NEW
    for end, output, trouble in (
        (FAILS, "2.0\n", "the observation ended with exit code 3: no space in the vault"),
        (OVERDUE, "2.0\n", "the observation was past its deadline of 1 s and was killed after 5.2 s: still copying"),
        (WELL, "\n2.0\n", "the observation printed nothing"),
    ):
        assert steps.seen(observe, end, output) == Seen(version=None, trouble=trouble)


def test_environment_of_a_step() -> None:
    """1. Our own variables stay behind, the package directory does not. 2. Module paths become absolute."""
    own = {"PATH": "/bin", "TRAINMASTER_TOKEN_FILE": "secret", "TRAINMASTER_PACKAGES": "/p", "PYTHONPATH": "src:/lib"}
    made = steps.environment(own, "/host", OperationId("op-1"), "install", "/here")
    assert made == {
        "PATH": "/bin",
        "TRAINMASTER_PACKAGES": "/p",
        "PYTHONPATH": "/here/src:/lib",
        "TRAINMASTER_HOST_DIR": "/host",
        "TRAINMASTER_OPERATION": "op-1",
        "TRAINMASTER_STEP": "install",
    }
    assert steps.words_of(("{python}", "-m", "x"), "/bin/python3") == ("/bin/python3", "-m", "x")


def test_reboot_is_done_under_another_boot_id() -> None:
    """1. It is written down and tried; a crash of the agent leads to a second try. 2. Another boot id: done, with the
    seconds. 3. The same one after two tries: failed. 4. The record of another effect counts for nothing."""
    asked = RebootHost(id=EffectId("e1.1"), host=HostId("h1"), operation=OperationId("op-1"), why="new kernel")
    b1, b2 = BootId("b1"), BootId("b2")
    first = next_reboot(asked, None, b1, Instant(1_000_000))
    assert isinstance(first, RebootRecord)
    assert (first.boot, first.why, first.tries) == (b1, "new kernel", 1)
    second = next_reboot(asked, first, b1, Instant(2_000_000))
    assert second == first.but(tries=2)
    done = next_reboot(asked, first.but(tries=2), b2, Instant(4_500_000))
    assert isinstance(done, End)
    assert (done.outcome, done.numbers) == ("done", {"boot_before": "b1", "boot": "b2", "tries": 2, "reboot_s": 3.5})
    failed = next_reboot(asked, first.but(tries=2), b1, Instant(4_500_000))
    assert isinstance(failed, End)
    assert (failed.outcome, "still runs under boot id b1 after 2 tries" in failed.detail) == ("failed", True)
    other = next_reboot(asked.but(id=EffectId("e2.1")), first, b2, Instant(5_000_000))
    assert isinstance(other, RebootRecord)
    assert (other.boot, other.tries) == (b2, 1)
