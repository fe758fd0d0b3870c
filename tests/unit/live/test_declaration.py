"""Fleet files as whole declarations: what the server is told, what it is told again, and what it refuses."""

from pathlib import Path

import pytest
from tests.unit.fixtures import Stage

from trainmaster.core.base.ids import ComponentName, TrainName
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import HOUR, Instant
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
    CapacityDeclared,
    CatalogueDeclared,
    FleetDeclared,
    OperationRequested,
    TrainDeclared,
    VersionTargeted,
)
from trainmaster.core.maintenance.catalogue import Catalogue
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.plans import plan_gang
from trainmaster.core.rehearsal import Rehearsal
from trainmaster.live import jobfile, maintfile
from trainmaster.live.declaration import BY, Declaration, events, load
from trainmaster.live.tomlfile import FileError
from trainmaster.ports.errors import UserError

SCENARIOS = Path(__file__).parents[3] / "scenarios"
EXAMPLES = Path(__file__).parents[3] / "examples"
AT = Instant(1_000_000)

CATALOGUE = """
schema = "trainmaster.catalogue/v1"
name = "small"
[[component]]
name = "driver"
disturbs = "drain"
median_s = 60
p90_s = 90
limit_s = 600
observe = ["show", "{component}"]
[[component.steps]]
name = "install"
command = ["install", "{component}", "{version}"]
deadline_s = 60
"""

FLEET = """
schema = "trainmaster.fleet/v1"
name = "small"
catalogue = "catalogue.toml"

[[cluster]]
name = "c"
fabric = "loopback"
[[cluster.hosts]]
list = "h[0-3]"
platform = "laptop"

[versions]
driver = "1.0"

[[train]]
name = "weekly"
cluster = "c"
domain_size_hosts = 1
cycle_days = 7
components = ["driver"]
stop_limit_s = 600
evict_after_s = 0

[capacity]
[[capacity.book]]
name = "c"
cluster = "c"
maintenance_hosts = 1
failure_hosts = 1
"""


def declared(tmp_path: Path, fleet: str = FLEET, catalogue: str = CATALOGUE) -> Declaration:
    (tmp_path / "catalogue.toml").write_text(catalogue)
    (tmp_path / "fleet.toml").write_text(fleet)
    return load(tmp_path / "fleet.toml")[1]


def tell(engine: Engine, declaration: Declaration) -> list[type]:
    """The types of what the engine had to be told."""
    told = []
    for event in events(engine, declaration, AT):
        engine.handle(event)
        told.append(type(event))
    return told


def test_a_whole_declaration_and_a_restart(tmp_path: Path) -> None:
    """1. All of it is told, in an order that makes sense. 2. After a restart nothing is told. 3. The train observes,
    visits one host at a time, and has the times of the file."""
    engine, declaration = Engine(), declared(tmp_path)
    order = [FleetDeclared, CatalogueDeclared, CapacityDeclared, VersionTargeted, TrainDeclared]
    assert tell(engine, declaration) == order
    assert tell(Engine.restore(engine.snapshot()), declaration) == []
    spec = engine.state.maintenance.trains[TrainName("weekly")].spec
    assert (spec.mode, spec.domains) == ("observe", (("h0",), ("h1",), ("h2",), ("h3",)))
    assert (spec.cycle, spec.stop_limit, spec.evict_after) == (7 * 24 * HOUR, 600_000_000, 0)


def test_the_file_speaks_first_not_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """1. Another version is called proven, the train is promoted. 2. A restart with the same file changes neither, and
    says so of the version."""
    engine, declaration = Engine(), declared(tmp_path)
    tell(engine, declaration)
    engine.handle(VersionTargeted(at=AT, component=ComponentName("driver"), version="2.0", by=BY))
    acting = engine.state.maintenance.trains[TrainName("weekly")].spec.but(mode="act")
    engine.handle(TrainDeclared(at=AT, spec=acting, by=BY))
    assert tell(engine, declaration) == []
    assert "2.0 was called proven since" in caplog.text


def test_added_hosts_leave_domains_as_they_are(tmp_path: Path) -> None:
    """1. A train of pairs over four hosts. 2. Two more hosts join: told are the fleet and the train. 3. The old domains
    are what they were; the new hosts have one of their own. 4. The same again: nothing."""
    fleet = FLEET.replace("domain_size_hosts = 1", "domain_size_hosts = 2").replace(
        "hosts = 1\nfail", "hosts = 2\nfail"
    )
    engine = Engine()
    tell(engine, declared(tmp_path, fleet))
    before = engine.state.maintenance.trains[TrainName("weekly")].spec.domains
    larger = declared(tmp_path, fleet.replace("h[0-3]", "h[0-5]"))
    assert tell(engine, larger) == [FleetDeclared, TrainDeclared]
    domains = engine.state.maintenance.trains[TrainName("weekly")].spec.domains
    assert set(before) <= set(domains)
    assert {unit for domain in domains for unit in domain} == {f"h{number}" for number in range(6)}
    assert tell(engine, larger) == []


def test_what_is_refused(tmp_path: Path) -> None:
    """1. Stops that can never be had, unknown components and clusters, versions that are none: refused with why."""
    for old, new, why in (
        ("domain_size_hosts = 1", "domain_size_hosts = 4", "with every unit in service"),
        ('components = ["driver"]', 'components = ["diver"]', "the nearest name is 'driver'"),
        ('cluster = "c"\ndomain', 'cluster = "d"\ndomain', "cluster d has no units of kind compute"),
        ('driver = "1.0"', 'drive = "1.0"', "no component is named 'drive'"),
        ('driver = "1.0"', 'driver = "a b"', "which is no version"),
    ):
        assert old in FLEET
        with pytest.raises(UserError, match=why):
            declared(tmp_path, FLEET.replace(old, new))


def test_what_is_wrong_in_the_files(tmp_path: Path) -> None:
    """1. A catalogue that is not there, or that has errors; limits that contradict; unknown keys; two trains of a name:
    each named with its line."""
    for old, new, why in (
        ("catalogue.toml", "other.toml", "does not exist"),
        ("failure_hosts = 1", "failure_hosts = 9", "9 units of a book of 4"),
        ("cycle_days = 7", "cycle_years = 7", "cycle_years: this key is not known"),
        ("cycle_days = 7", "cycle_days = 7\ncycle_s = 5", "two lengths of a cycle"),
        (
            "[versions]",
            '[[train]]\nname = "weekly"\ncluster = "c"\ndomain_size = "1%"\ncycle_s = 9\n[versions]',
            "stands above",
        ),
        ("[versions]", "[version]", "did you mean versions"),
    ):
        assert old in FLEET
        with pytest.raises(FileError, match=why):
            declared(tmp_path, FLEET.replace(old, new))
    with pytest.raises(FileError, match="deadline"):
        declared(tmp_path, catalogue=CATALOGUE.replace("deadline_s = 60", "deadline_s = 0"))


def test_a_catalogue_keeps_what_is_worked_with(tmp_path: Path) -> None:
    """1. An operation on the driver waits. 2. A catalogue without it is refused, and nothing is told."""
    engine, declaration = Engine(), declared(tmp_path)
    tell(engine, declaration)
    spec = OperationSpec(scope=("host/h0",), component=ComponentName("driver"), version="2")
    engine.handle(OperationRequested(at=AT, spec=spec, by=BY))
    assert declaration.catalogue is not None
    (driver,) = declaration.catalogue.components
    other = declaration.but(
        catalogue=Catalogue(name="other", components=(driver.but(name=ComponentName("bios")),)), trains=(), versions={}
    )
    with pytest.raises(UserError, match="op-1 works with the component driver"):
        tell(engine, other)
    assert engine.state.maintenance.catalogue.name == "small"


@pytest.mark.parametrize("name", ["local.toml", "two-clusters.toml"])
def test_shipped_scenarios_can_be_declared(name: str) -> None:
    """1. Each is told to an empty server, and again: nothing."""
    engine, (_, declaration) = Engine(), load(SCENARIOS / name)
    assert tell(engine, declaration)[:3] == [FleetDeclared, CatalogueDeclared, CapacityDeclared]
    assert tell(engine, declaration) == []
    assert len(engine.state.hosts) == len(declaration.hosts) > 0


@pytest.mark.parametrize(("most", "token"), [(1, Token.CAPACITY_NEVER), (5, None)])
def test_the_gang_example_fits_the_local_fleet_as_it_says(most: int, token: Token | None, tmp_path: Path) -> None:
    """1. The job of the example runs on the local fleet. 2. As it is, the plan of the gang upgrade is refused, with the
    numbers. 3. With the number of hosts that the example says to write, it begins at once."""
    text = (SCENARIOS / "local.toml").read_text()
    (tmp_path / "local.toml").write_text(text.replace("maintenance_hosts = 1", f"maintenance_hosts = {most}"))
    (tmp_path / "local-catalogue.toml").write_text((SCENARIOS / "local-catalogue.toml").read_text())
    assert "write maintenance_hosts = 5 there" in (EXAMPLES / "maintenance-gang.toml").read_text()
    world = Stage(*load(tmp_path / "local.toml")[1].hosts)
    tell(world.engine, load(tmp_path / "local.toml")[1].but(trains=()))
    world.ready(*(f"h{number}" for number in range(5)))
    attempt = world.running(jobfile.load(EXAMPLES / "llama.toml"))
    assert len(attempt.members) + len(attempt.spares) == 5
    (gang,) = maintfile.load(EXAMPLES / "maintenance-gang.toml").gangs
    rehearsal = Rehearsal(world.engine.snapshot(), world.engine.state.now)
    plan = plan_gang(rehearsal, attempt.job, gang.component, gang.version)
    if isinstance(plan, Reason):
        assert (plan.token, plan.numbers["wanted"]) == (token, 5)
    else:
        assert (plan.waits, plan.units, token) == (None, 5, None)
