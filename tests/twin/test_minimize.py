"""Delta debugging, by itself and of simulated histories in which a policy is broken on purpose."""

import shlex
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from tests.twin.logs import hours
from trainmaster.cli.main import main
from trainmaster.cli.scenariofile import load
from trainmaster.cli.twin_minimize import command_of
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.value import decode, encode
from trainmaster.core.maintenance import running
from trainmaster.core.maintenance.index import PlannerIndex
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.state import ClusterState
from trainmaster.core.step import Step
from trainmaster.twin.inputs import Inputs
from trainmaster.twin.minimize import Minimal, NothingBreaks, ddmin, minimize, signature
from trainmaster.twin.run import Options, Run
from trainmaster.twin.world import World

SMALL = Path(__file__).with_name("small.toml")


# By itself


def test_what_is_needed_together_is_found_among_thousands() -> None:
    """1. It fails where three of 4,096 items are, far apart. 2. Just those are found, in a few hundred tests."""
    needed = {3, 1717, 4090}
    tests = 0

    def fails(some: tuple[int, ...]) -> bool:
        nonlocal tests
        tests += 1
        return needed <= set(some)

    assert ddmin(range(4096), fails) == (3, 1717, 4090)
    assert tests < 400


@pytest.mark.parametrize("seed", range(30))
def test_nothing_can_be_left_out_of_what_is_found(seed: int) -> None:
    """1. A rule of chance: it fails where any of some sets is complete, unless a spoiler is there without its cure.
    2. What is found fails, and does so no longer without any single one of its items."""
    chance = Stream.of(seed, "ddmin")
    sets = [{chance.integer(40) for _ in range(1 + chance.integer(4))} for _ in range(3)]
    spoiler, cure = chance.integer(40), chance.integer(40)

    def fails(some: tuple[int, ...]) -> bool:
        spoiled = spoiler in some and cure not in some
        return any(each <= set(some) for each in sets) and not spoiled

    found = ddmin(range(40), fails)
    assert fails(found)
    assert list(found) == sorted(found)
    for rest in combinations(found, len(found) - 1):
        assert not fails(rest), (found, rest)


def test_edges() -> None:
    """1. No items, one item, all items needed, none needed. 2. Each comes out as it must."""
    assert ddmin((), lambda some: True) == ()
    assert ddmin("a", lambda some: "a" in some) == ("a",)
    assert ddmin("a", lambda some: True) == ()
    assert ddmin("abcdefg", lambda some: len(some) == 7) == tuple("abcdefg")
    assert ddmin("abcdefg", lambda some: True) == ()


def test_the_same_rule_has_one_signature() -> None:
    """1. Sentences of one rule with other names and numbers. 2. One signature; another rule has another."""
    assert signature("1: op-2 and op-17 work on a-sw3 at once") == signature("1: op-3 and op-1 work on b05 at once")
    assert signature("3: a03 is ready without {'memory'}") == signature("3: b12 is ready without {'link', 'disk'}")
    assert signature("1: op-2 and op-17 work on a-sw3 at once") != signature("3: op-2 and op-17 work on a-sw3 at once")
    assert signature("6: op-1 waits").startswith("6:")


# Of histories


def a_lock_that_sees_no_racks(patch: pytest.MonkeyPatch) -> None:
    """Visits lock their host and mark nothing wider, so they meet no operation on the rack."""
    real = PlannerIndex.unit_scope
    patch.setattr(PlannerIndex, "unit_scope", lambda self, unit: real(self, unit).but(shared=()))


def an_end_is_counted_twice(patch: pytest.MonkeyPatch) -> None:
    real = running._remember

    def remember(step: Step, operation: Operation) -> None:
        real(step, operation)
        if operation.state is OperationState.FAILED:
            step.state.maintenance.counts["failed"] += 1

    patch.setattr(running, "_remember", remember)


def no_job_is_ever_to_stop(patch: pytest.MonkeyPatch) -> None:
    """No defect, but a rule that nothing can keep."""

    def broken(state: ClusterState, derived: object) -> list[str]:
        stopped = [attempt.id for attempt in state.attempts.values() if len(attempt.epochs) > 1]
        return [f"99: {name} was interrupted" for name in stopped[:1]]

    patch.setattr("trainmaster.twin.watch.broken", broken)


@pytest.mark.parametrize(
    ("breaks", "length_h", "letters", "rule"),
    [
        (a_lock_that_sees_no_racks, 2.0, [["r", "r"]], "1: "),
        (an_end_is_counted_twice, 2.0, [["r", "s"]], ""),
        (no_job_is_ever_to_stop, 12.0, [["small", "r"], ["wide", "r"], ["wide", "f"], ["small", "f"]], "99: "),
    ],
)
def test_a_broken_policy_comes_down_to_a_handful(
    breaks: Callable[[pytest.MonkeyPatch], None],
    length_h: float,
    letters: list[list[str]],
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1. A policy is broken on purpose: locks that meet nobody, failures counted twice, or a rule that nothing keeps.
    2. Of dozens of inputs two remain, those that it takes, and few of 74 hosts. 3. The command that is printed shows
    the same defect, and without either of the inputs nothing breaks."""
    breaks(monkeypatch)
    whole = load(SMALL).but(duration=hours(length_h))
    found = minimize(whole, every=100, most=400)
    assert found.complete
    assert found.inputs_before > 10
    assert sorted(one.name.rstrip("0123456789-") for one in found.inputs) in [sorted(row) for row in letters]
    assert len(found.hosts) <= 17
    assert found.broken.sentence.startswith(rule)
    assert len(found.story) >= 5
    words = shlex.split(command_of(found, SMALL, whole))
    assert main(words[1:]) == 1
    assert found.broken.sentence[:60] in capsys.readouterr().err
    for one in found.inputs:
        fewer = ",".join(other.name for other in found.inputs if other is not one)
        assert main([*words[1 : words.index("--only") + 1], fewer, *words[words.index("--only") + 2 :]]) == 0


def test_with_all_inputs_by_name_it_is_the_same_history() -> None:
    """1. A run whose inputs are written down, failing steps and boots among them. 2. Given them by name, the history is
    the same to the last event; and the same as that of a run without any names."""
    scenario = load(SMALL).but(duration=hours(5), seed=4)
    often = Options(whole_every=0, hashed=True)
    written = Inputs()
    first = Run(scenario, often, world=World(scenario, inputs=written)).run().log_hash
    names = frozenset(one.name for one in written.seen)
    assert {name.rstrip("0123456789-") for name in names} >= {"r", "f", "s", "wide", "small"}
    again = Run(scenario, often, world=World(scenario, inputs=Inputs(names))).run().log_hash
    plain = Run(scenario, often).run().log_hash
    assert first == again == plain


def test_where_nothing_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    """1. A run that breaks nothing. 2. That is said, with what else could be tried, and exit code 1."""
    with pytest.raises(NothingBreaks):
        minimize(load(SMALL).but(duration=hours(0.3)), every=100, most=10)
    assert main(["twin", "minimize", str(SMALL), "--duration", "0.3h"]) == 1
    assert "nothing to minimize" in capsys.readouterr().err


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A broken policy, by the command: inputs, hosts and events in words, and the command that shows it. 2. As JSON
    the whole value. 3. When all runs are spent, it says that less might do."""
    an_end_is_counted_twice(monkeypatch)
    words = ["twin", "minimize", str(SMALL), "--duration", "1h"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "fail" in told.out
    assert "hosts:   1 of 74" in told.out
    assert "requested by policy twin" in told.out
    assert f"try: trainmaster twin run {SMALL} --seed 1 --only r" in told.err
    assert main([*words, "--runs", "4", "-o", "json"]) == 0
    told = capsys.readouterr()
    tree = decode(told.out, dict[str, object])
    assert tree.pop("schema") == "trainmaster.twin-minimal/v1"
    assert not decode(encode(tree), Minimal).complete
    assert "less might do" in told.err


def test_parts_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """1. Hosts and inputs that are not there, and hosts of a scenario with trains. 2. All are refused with what to
    do."""
    assert main(["twin", "run", str(SMALL), "--hosts", "z[1-3]"]) == 3
    assert "no host z1, z2, z3" in capsys.readouterr().err
    trains = SMALL.with_name("trains.toml")
    assert main(["twin", "run", str(trains), "--hosts", "@all"]) == 2
    assert "leave out --hosts" in capsys.readouterr().err
    assert main(["twin", "run", str(SMALL), "--only", "", "--duration", "0.5h", "-o", "json"]) == 0
    assert '"operations_requested": 0' in capsys.readouterr().out
    assert main(["twin", "run", str(SMALL), "--duration", "0s"]) == 2
    assert main(["twin", "run", str(SMALL), "--only", "r1,x7,nobody-1"]) == 3
    assert "no input is named 'nobody-1', 'x7'" in capsys.readouterr().err
