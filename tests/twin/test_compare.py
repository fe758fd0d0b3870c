"""Two scenarios under the same seeds."""

from pathlib import Path

import pytest

from tests.twin.logs import hours
from trainmaster.cli.main import main
from trainmaster.cli.scenariofile import load
from trainmaster.core.base.value import decode, encode
from trainmaster.live.tomlfile import FileError
from trainmaster.twin.compare import Comparison, compare_scenarios
from trainmaster.twin.run import Options

SMALL = Path(__file__).with_name("small.toml")
UNWATCHED = Options(whole_every=0)


def test_a_scenario_and_itself() -> None:
    """1. The same scenario on both sides. 2. Every figure is equal in every seed."""
    scenario = load(SMALL).but(duration=hours(1))
    found = compare_scenarios(scenario, scenario, (1, 2), UNWATCHED)
    assert {row.verdict for row in found.figures} == {"equal"}
    assert found.simulated_s == 4 * 3600


def test_a_change_is_found_and_nothing_else() -> None:
    """1. B asks for twice as many operations as A, and is the same else. 2. More are done, in all seeds; the failures
    of hosts are the very same."""
    scenario = load(SMALL).but(duration=hours(1))
    twice = load(SMALL, ["twin.operations.per_day=12000"]).but(duration=hours(1))
    heard: list[tuple[int, int]] = []
    found = compare_scenarios(scenario, twice, range(1, 7), UNWATCHED, told=lambda *row: heard.append(row))
    rows = {row.figure: row for row in found.figures}
    assert rows["operations done"].verdict == "more"
    assert rows["operations done"].low > 100
    assert rows["failures"].verdict == "equal"
    assert (
        rows["stops of jobs: host-lost"].verdict in ("equal", "noise") if "stops of jobs: host-lost" in rows else True
    )
    assert heard == [(number, 12) for number in range(1, 13)]
    assert not found.invariants_broken


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """1. A file and a change of it, as a table: it says that it is simulated, what A and B are, and by which test.
    2. As JSON: the whole comparison. 3. Nothing to compare is refused."""
    change = ["--set", "twin.operations.disruptive_per_day=0", "--duration", "1h", "--seeds", "2"]
    assert main(["twin", "compare", str(SMALL), *change]) == 0
    told = capsys.readouterr()
    assert "simulated, not measured: 1 h under 2 seeds from 1 on" in told.err
    assert "twin.operations.disruptive_per_day=0" in told.err
    assert "paired t test, 5% over all figures together (Holm)" in told.err
    assert told.out.splitlines()[0].split()[:5] == ["FIGURE", "A", "B", "DIFFERENCE", "SPREAD"]
    assert any(line.startswith("visits") for line in told.out.splitlines())
    assert main(["twin", "compare", str(SMALL), str(SMALL), "--duration", "0.2h", "--seeds", "1", "-o", "json"]) == 0
    tree = decode(capsys.readouterr().out, dict[str, object])
    assert tree.pop("schema") == "trainmaster.twin-comparison/v1"
    report = decode(encode(tree), Comparison)
    assert report.simulated
    assert {row.verdict for row in report.figures} == {"equal"}
    assert main(["twin", "compare", str(SMALL)]) == 2
    assert "nothing to compare" in capsys.readouterr().err


def test_broken_invariants_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """1. An invariant that never holds, in watched runs. 2. The comparison is shown, and ends with 1."""
    monkeypatch.setattr("trainmaster.twin.watch.broken", lambda state, derived: ["8: nothing is ever right"])
    words = ["--set", "twin.seed=1", "--seeds", "1", "--duration", "0.1h", "--watch-every", "1000"]
    assert main(["twin", "compare", str(SMALL), *words]) == 1
    assert "an invariant was broken" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("twin.operations.stop_hots=8", "did you mean stop_hosts"),
        ("twin.job[9].hosts=8", "there is no such table"),
        ("twin.job[1]=8", "not all items are tables"),
        ("twin.job.hosts=8", "there is no such key"),
        ("twin.seed.deep=8", "there is no such key"),
        ("twin.seed=soon", "this is a string"),
        ("twin.seed", "is no KEY=VALUE"),
        ("=8", "is no KEY=VALUE"),
        ("twin.job[0].hosts=8", "is no KEY=VALUE"),
        ("twin..seed=8", "is no KEY=VALUE"),
    ],
)
def test_changes_that_make_no_sense(change: str, reason: str) -> None:
    """1. A change of a key that is not there, or of another kind. 2. It is refused like a mistake in the file."""
    with pytest.raises(FileError, match=reason):
        load(SMALL, [change])


def test_changes_that_do() -> None:
    """1. A number, a word without quotes, a key that the file leaves out, one in the second of several tables. 2. Each
    stands in the scenario."""
    changes = ["twin.seed=9", "name=other", "twin.job[2].hosts = 3", "twin.failures.reboot_share=0.25"]
    scenario = load(SMALL, changes)
    assert (scenario.seed, scenario.name) == (9, "other")
    assert scenario.jobs[1].hosts == 3
    assert scenario.failures.reboot_share == 0.25
