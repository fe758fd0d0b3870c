"""Trains in a simulated fleet: what a scenario declares of them, and what a run tells."""

from pathlib import Path

import pytest

from trainmaster.cli.scenariofile import load
from trainmaster.core.base.ids import ComponentName
from trainmaster.core.base.time import HOUR, Duration
from trainmaster.live.tomlfile import FileError
from trainmaster.twin.run import Options, Run
from trainmaster.twin.scenario import Release

FILE = Path(__file__).with_name("trains.toml")


def test_trains_of_hosts_storage_and_switches() -> None:
    """1. Five days, three trains, four releases. 2. Each train goes round once a day and proves whom it visited; stops
    interrupt jobs, and are told apart from other hand-overs. 3. What came out is everywhere, but for what came out last
    night; the rollout went through its stages. 4. No invariant is broken."""
    run = Run(load(FILE), Options(whole_every=200))
    report = run.run()
    assert report.broken == ()
    assert set(report.trains) == {"hosts", "storage", "switches"}
    for train in report.trains.values():
        whole = [cycle for cycle in train.cycles if cycle.hours > 12]
        assert len(whole) in (4, 5)
        assert all(cycle.visited + cycle.missed == cycle.units for cycle in whole)
        assert train.stops >= len(whole) * (train.units // 8)
    assert report.trains["hosts"].cycles[0].worked_on > 55
    assert report.hosts_visited + report.hosts_missed == 80
    assert report.hosts_missed <= 3
    assert report.interruptions["train"] > 5
    assert "hand-over" not in report.interruptions
    assert set(report.interruptions_by_job) == {"wide-1", "wide-2"}
    (rollout,) = report.rollouts.values()
    assert (rollout.state, rollout.stage, rollout.pool) == ("complete", rollout.stages, 64)
    assert rollout.carriers > 60
    assert len(rollout.story) == rollout.stages
    assert report.versions["switch-os"].units == {"1000000.2": 8}
    assert report.versions["bios"].newest == "1000000.3"
    assert report.versions["bios"].units["1000000.2"] > 40
    assert 2 < report.versions["bios"].oldest_h < 120


def test_what_is_installed_and_what_is_known_may_differ() -> None:
    """1. A BIOS from which no unit comes back. 2. The units are lost; they carry it, and the engine has not seen it.
    3. Repaired, they tell. No policy reads the scenario: the rollout knows the failures alone."""
    scenario = load(FILE)
    bad = Release(
        component=ComponentName("bios"), version="1000000.2", after=Duration(HOUR), fails_return=1.0, canary=8
    )
    run = Run(scenario.but(releases=(bad,), duration=Duration(24 * HOUR)), Options(whole_every=200))
    report = run.run()
    assert report.broken == ()
    (rollout,) = report.rollouts.values()
    assert rollout.state == "off-boarded"
    assert report.failures["lost-in-reboot"] >= 2
    bios = ComponentName("bios")
    lost = [
        name for name in run.world.carried.by_unit if run.world.carried.version(name, "compute", bios) == "1000000.2"
    ]
    assert lost
    assert {run.world.engine.state.hosts[name].versions[bios] for name in lost} == {"1000000.0"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('cluster = "a"\ndomain_size_hosts = 8', 'cluster = "b"\ndomain_size_hosts = 8', "cluster b has no units"),
        ("domain_size_hosts = 8", "domain_size_hosts = 32", "domain 1 of 2 (32 units)"),
        ('component = "switch-os"', 'component = "switch-oz"', "no component 'switch-oz'"),
        ('via = "target"', 'via = "mail"', "via"),
        ("soak_h = 1.0", "soak_h = 1.0\nfails_return = 1.5", "fails_return"),
    ],
)
def test_what_a_file_may_not_say(old: str, new: str, told: str, tmp_path: Path) -> None:
    """A train that can't be built, and a release of nothing, are said with their place."""
    text = FILE.read_text("utf-8").replace("../../scenarios", str(FILE.parents[2] / "scenarios"))
    assert old in text
    file = tmp_path / "fleet.toml"
    file.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(FileError) as raised:
        load(file)
    assert told in str(raised.value)


def test_a_failing_share_of_a_release_is_of_units() -> None:
    """The same unit does not come back a second time either, and about the share of all does not."""
    scenario = load(FILE)
    release = Release(component=ComponentName("bios"), version="1000000.2", after=Duration(0), fails_return=0.25)
    carried = Run(scenario.but(releases=(release,))).world.carried
    fails = []
    for unit in scenario.fleet.hosts:
        carried.fresh[unit.id] = [release]
        first = carried.comes_back(_Named(unit.id))  # type: ignore[arg-type]
        carried.fresh[unit.id] = [release]
        assert carried.comes_back(_Named(unit.id)) is first  # type: ignore[arg-type]
        fails.append(not first)
    assert 10 <= sum(fails) <= 32


class _Named:
    def __init__(self, name: str) -> None:
        self.id = name
