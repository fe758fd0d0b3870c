"""Jobs on hosts that are found bad: they save and move, whatever their contract says of planned work."""

from tests.unit.core.health.health_world import KINDS, LADDER, POOL, finding
from tests.unit.core.maintenance.planner_world import CATALOGUE, ME
from tests.unit.core.maintenance.test_jobs_under_maintenance import JobWorld

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import HOUR, SECOND, Instant
from trainmaster.core.engine import Engine
from trainmaster.core.events import CatalogueDeclared, HealthConductDeclared, HealthReported
from trainmaster.core.health import stuck
from trainmaster.core.health.conduct import HealthConduct, PoolConduct
from trainmaster.core.scheduling.request import MaintenanceContract
from trainmaster.live.server import health_views


class SickJobs(JobWorld):
    def __init__(self, act: bool = True) -> None:
        super().__init__(hosts=6, maintenance=0)
        self.submit(CatalogueDeclared(at=self.now, catalogue=CATALOGUE.but(kinds=KINDS), by=ME))
        pool = PoolConduct(name=POOL, act=act, level_hosts=3)
        self.submit(HealthConductDeclared(at=self.now, conduct=HealthConduct(pools=(pool,), ladder=LADDER), by=ME))

    def fails(self, host: HostId) -> None:
        self.now = Instant(self.now + SECOND)
        boot = self.engine.state.hosts[host].boot
        self.submit(HealthReported(at=self.now, host=host, boot=boot, probe="kernel-log", findings=(finding(),)))


def test_a_job_leaves_a_bad_host_after_a_checkpoint() -> None:
    """1. A job that is protected from planned work trains on four hosts; none may be out by plan. 2. One of its hosts
    is bad. 3. The ranks save and leave together, a spare takes the place, the host is reset and returns."""
    world = SickJobs()
    contract = MaintenanceContract(protected_until=Instant(world.now + 10 * HOUR))
    job = world.run(hosts=4, spares=1, contract=contract)
    bad = world.attempt(job).members[0]
    world.fails(bad)
    attempt = world.attempt(job)
    assert len(world.yields) == 1
    assert bad not in attempt.members
    assert attempt.state.value == "running"
    assert world.state(bad) == "ready"
    assert f"{bad}:apply:gpu-reset" in world.done
    assert world.engine.state.health.closed[-1].closed_how == "fixed"


def test_without_a_spare_the_host_waits_for_its_job() -> None:
    """1. All hosts are in use. 2. One is bad: it drains, and its case says that it leaves production; nothing is done
    to it while the job runs there."""
    world = SickJobs()
    job = world.run(hosts=6, spares=0)
    bad = world.attempt(job).members[0]
    world.fails(bad)
    assert world.state(bad) == "draining"
    assert world.yields == []
    case = next(iter(world.engine.state.health.cases.values()))
    assert case.operation is not None
    assert world.operation(case.operation).state.value == "draining"
    assert f"{bad}:apply:gpu-reset" not in world.done
    step = world.engine.glance(world.now)
    told = health_views.shown_reason(step, case).sentence
    assert f"{case.operation} is draining: " in told
    assert f"({job}) is on {bad}" in told
    assert list(health_views.needs_attention(step)) == []
    late = world.engine.glance(Instant(world.now + stuck.ASK_AFTER))
    [(_, reason)] = list(health_views.needs_attention(late))
    assert reason.sentence.endswith(f"or end the job: `trainmaster job cancel {job}`")


def test_advice_names_the_job() -> None:
    """1. Observed. 2. The advice says which job would move, and whether a spare is there."""
    world = SickJobs(act=False)
    job = world.run(hosts=4, spares=1)
    attempt = world.attempt(job)
    world.fails(attempt.members[0])
    told = next(iter(world.engine.state.health.cases.values())).reason.sentence
    assert f"train ({job}) runs on it and moves to {attempt.spares[0]} after a checkpoint" in told


def test_new_jobs_get_bad_hosts_last() -> None:
    """1. A pool is observed, and the first host is bad: it stays in service. 2. A job and its spare go elsewhere, also
    after a restart of the server. 3. One that wants all hosts gets the bad one, too; nothing starves."""
    world = SickJobs(act=False)
    world.fails(HostId("h0"))
    assert world.state("h0") == "ready"
    restored = Engine.restore(world.engine.snapshot())
    assert restored.preview_placement(5, 0) == ("h1", "h2", "h3", "h4", "h5")
    job = world.run(hosts=4, spares=1)
    attempt = world.attempt(job)
    assert "h0" not in (*attempt.members, *attempt.spares)
    world = SickJobs(act=False)
    world.fails(HostId("h0"))
    assert len(world.attempt(world.run(hosts=6, spares=0)).members) == 6
