"""Hosts fall ill in a simulated fleet, and the whole engine answers, watched after every event."""

import os

import pytest

from trainmaster.core.base.ids import HostId, PoolName
from trainmaster.core.base.time import HOUR, MINUTE, Duration
from trainmaster.core.engine import Engine
from trainmaster.core.fleet.inventory import ClusterBlock, HostBlock, lay_out
from trainmaster.core.health.book import CaseState
from trainmaster.core.health.conduct import HealthConduct, PoolConduct
from trainmaster.core.health.policy import Index
from trainmaster.core.maintenance.capacity import Book, Buffers, CapacityPolicy, Share
from trainmaster.core.maintenance.catalogue import Catalogue, Kind, Spread
from trainmaster.live.health.policyfile import shipped
from trainmaster.twin.lemon_world import LemonFleet
from trainmaster.twin.report import RunReport
from trainmaster.twin.run import Options, Run
from trainmaster.twin.scenario import DAY, Failures, JobClass, Scenario
from trainmaster.twin.sick import Sickness, SickReport
from trainmaster.twin.world import World

SEEDS = int(os.environ.get("TRAINMASTER_SICK_SEEDS", "1"))
INDEX = Index(shipped())
HOSTS = tuple(HostId(f"n{number:02}") for number in range(1, 65))
QUICK = Spread(median=Duration(5 * MINUTE), p90=Duration(10 * MINUTE), limit=Duration(HOUR))
SICK = LemonFleet(per_thousand_host_days=4.0, lemon_share=3 / 64, lemon_low=60.0, lemon_high=150.0)


def scenario(days: int) -> Scenario:
    block = HostBlock(hosts=HOSTS, platform="grand-teton", hosts_per_rack=2, racks_per_pod=8)
    kinds = (
        Kind(name="gpu-reset", disturbs="drain", duration=QUICK),  # type: ignore[arg-type]
        Kind(name="reboot", disturbs="reboot", duration=QUICK),  # type: ignore[arg-type]
    )
    buffers = Buffers(maintenance=Share(hosts=2), failure=Share(hosts=4))
    return Scenario(
        name="sick",
        fleet=lay_out("sick", (ClusterBlock(name="c", fabric="roce", blocks=(block,)),)),
        catalogue=Catalogue(name="sick", components=(), kinds=kinds),
        capacity=CapacityPolicy(books=(Book(name="c", cluster="c", buffers=buffers),)),
        duration=Duration(days * DAY),
        jobs=(JobClass(name="wide", count=3, hosts=12, spares=1), JobClass(name="small", count=8, hosts=1)),
        failures=Failures(per_thousand_host_days=0.0),
    )


def live(act: bool, days: int = 45, seed: int = 3) -> tuple[RunReport, SickReport, World]:
    chosen = scenario(days).but(seed=seed)
    world = World(chosen)
    run = Run(chosen, Options(whole_every=200), world=world)
    pool = PoolConduct(name=PoolName("all"), cluster="c", act=act, level_hosts=8, rate_hosts=4)
    sickness = Sickness(world, SICK, HealthConduct(pools=(pool,)), INDEX, seed)
    report = run.run()
    return report, sickness.report(), world


def test_a_fleet_that_is_acted_on() -> None:
    """1. Six weeks of 64 hosts, three of them lemons; faults come as lines, agents report, health acts. 2. No invariant
    is ever broken, cases end, hosts return, parts go back. 3. The lemons are condemned, and nobody else. 4. The state
    survives a restart to the byte."""
    report, sick, world = live(act=True)
    assert report.broken == ()
    assert sick.faults > 15
    assert sick.cases == sum(sick.closed.values()) + sick.open_cases
    assert sick.closed.get("fixed", 0) > 5
    assert sick.closed.get("released", 0) > 3
    assert sick.open_cases <= 8
    assert len(sick.lemons) == 3
    assert set(sick.condemned) == set(sick.lemons)
    assert report.operations_by_kind.get("gpu-reset", {}) or report.operations_by_kind.get("reboot", {})
    assert sick.jobs_killed > 0
    assert Engine.restore(world.engine.snapshot()).snapshot() == world.engine.snapshot()


def test_a_fleet_that_is_observed() -> None:
    """1. The same faults; the pool is not promoted. 2. Everything is told, nothing is done: no operation, no hold of
    health, and each open case says what it would do."""
    report, sick, world = live(act=False, days=15)
    assert report.broken == ()
    assert sick.cases > 5
    assert report.operations_requested == 0
    state = world.engine.state
    assert all(hold.owner != "policy:health" for host in state.hosts.values() for hold in host.holds)
    assert all(case.state is CaseState.OBSERVED for case in state.health.cases.values())
    assert all("would" in case.reason.sentence for case in state.health.cases.values())


@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_no_invariant_breaks(seed: int) -> None:
    """Other fleets, other faults: nothing breaks, every case that is open has a reason, and no job's fault took a
    host."""
    report, sick, world = live(act=True, days=30, seed=seed)
    assert report.broken == ()
    assert sick.cases == sum(sick.closed.values()) + sick.open_cases
    assert all(case.reason.sentence for case in world.engine.state.health.cases.values())
    assert len(set(sick.condemned) - set(sick.lemons)) <= 2


def test_the_same_seed_is_the_same_history() -> None:
    one, other = (live(act=True, days=6)[2].engine.snapshot() for _ in range(2))
    assert one == other
