"""The maintenance demo without processes: its files, its pace, and what it reads from a log."""

from pathlib import Path
from typing import Any

from tests.unit.core.maintenance.planner_world import ME, PlannerWorld

from trainmaster.core.base.ids import ComponentName, HostId, TrainName
from trainmaster.core.base.time import HOUR, Duration
from trainmaster.core.events import AnyEvent, TrainDeclared, VersionTargeted
from trainmaster.core.maintenance.train import TrainSpec
from trainmaster.demo import maint_log, maint_scene, paced
from trainmaster.live import cataloguefile, fleetfile
from trainmaster.live.agent.packages import Components
from trainmaster.live.server.resources import LoggedEvent

TRAIN = TrainName("weekly")


class Recorded(PlannerWorld):
    """Keeps its events as the log would."""

    def __init__(self, *arguments: int) -> None:
        self.events: list[LoggedEvent] = []
        super().__init__(*arguments)

    def submit(self, event: AnyEvent) -> None:
        self.events.append(LoggedEvent(index=len(self.events) + 1, event=event, sentence=""))
        super().submit(event)


def test_files_and_hosts(tmp_path: Path) -> None:
    """1. The fleet and its catalogue are read without a finding. 2. Every host has version 1 of everything."""
    fleet = fleetfile.load(maint_scene.write_fleet(tmp_path))
    assert cataloguefile.examine(tmp_path / "catalogue.toml") == ()
    hosts = [host.id for host in fleet.fleet.hosts]
    maint_scene.stock(tmp_path / "state", hosts)
    for host in hosts:
        found = Components(tmp_path / "state" / "hosts" / host).versions()
        assert found == {part.name: "1" for part in maint_scene.PARTS}


def test_pace_lasts_longer_than_the_story() -> None:
    """1. Sixty steps sleep for about five minutes in all, if nobody asks for anything. 2. The first ones are quick."""
    slept = [paced.sleep_s(step, 60) for step in range(1, 61)]
    assert 280 < sum(slept) < 350
    assert sum(slept[:30]) < 60
    assert slept == sorted(slept)


def train(world: PlannerWorld) -> None:
    spec = TrainSpec(name=TRAIN, domains=tuple((host,) for host in world.names), cycle=Duration(8 * HOUR))
    for name in ("bios", "nic", "fan"):
        world.submit(VersionTargeted(at=world.now, component=ComponentName(name), version="2", by=ME))
    world.submit(TrainDeclared(at=world.now, spec=spec, by=ME))


def test_visits_are_read_from_the_log() -> None:
    """1. A train brings three updates to four hosts; one fails on h1. 2. Each host has one visit, with a drain and a
    reboot, and what was done in order; nobody was in production in between."""
    world = Recorded(4, 2, 2)

    def answer(effect: Any) -> tuple[str, str]:
        component = world.engine.state.maintenance.operations[effect.operation].spec.component
        return ("failed", "no") if (effect.host, component) == ("h1", "nic") else ("done", "")

    world.answer = answer
    train(world)
    world.pass_time(7 * HOUR)
    found = maint_log.read(world.events, TRAIN)
    assert found.stops == 4
    first = found.visits[:4]
    assert [visit.host for visit in first] == world.names
    assert [(visit.drains, visit.reboots, visit.in_production_between) for visit in first] == [(1, 1, False)] * 4
    rows = [(done.component, done.state) for done in first[1].done]
    assert rows == [("bios", "done"), ("nic", "failed"), ("fan", "done")]
    assert first[1].host == HostId("h1")
    assert first[1].train == TRAIN
