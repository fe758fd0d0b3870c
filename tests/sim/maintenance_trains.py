"""What people do with trains, rollouts and gangs in a seed of maintenance."""

from typing import TYPE_CHECKING

from trainmaster.core.base.ids import ComponentName, HostId, JobId, Owner, RolloutId, TrainName
from trainmaster.core.base.time import Duration, seconds
from trainmaster.core.events import (
    GangUpgradeRequested,
    OperationRequested,
    ResumeRequested,
    RolloutDeclared,
    RolloutPaused,
    RolloutResumed,
    RolloutStopped,
    TrainAborted,
    TrainDeclared,
    TrainPaused,
    TrainResumed,
    VersionTargeted,
)
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.rollout import RolloutState
from trainmaster.core.maintenance.stages import Exponential, Fixed, RolloutSpec
from trainmaster.core.maintenance.train import TrainSpec, TrainState
from trainmaster.core.scheduling.job import JobState

if TYPE_CHECKING:
    from tests.sim.maintenance_run import MaintenanceRun

OPS = Owner("person:ops")
NAMES = (TrainName("main"), TrainName("other"))
DRIVER, LAST = ComponentName("driver"), "20"
"""The component on which the hosts of a job must agree, and what all get in the end."""
COMPONENTS = tuple(map(ComponentName, ("driver", "nic", "fan", "kernel", "exporter")))


def act(run: "MaintenanceRun", hosts: tuple[HostId, ...]) -> None:
    """One wish of chance."""
    chance, now = run.chance, run.world.now
    what = chance.integer(12)
    name = chance.choice(NAMES)
    train = run.engine.state.maintenance.trains.get(name)
    if what <= 2 or train is None:
        declare(run, name, hosts)
    elif what <= 4:
        component = chance.choice(COMPONENTS)
        version = str(5 + chance.integer(3))
        run.submit(VersionTargeted(at=now, component=component, version=version, by=OPS))
    elif what <= 7:
        roll_out(run, hosts)
    elif what == 8:
        run.submit(TrainPaused(at=now, train=name, by=OPS, reason="freeze"))
    elif what == 9:
        run.submit(TrainResumed(at=now, train=name, by=OPS, reason="go on"))
    elif what == 10 and chance.integer(3) == 0:
        run.submit(TrainAborted(at=now, train=name, by=OPS, reason="enough"))
    else:
        upgrade_gang(run)


def declare(run: "MaintenanceRun", name: TrainName, hosts: tuple[HostId, ...]) -> None:
    chance = run.chance
    size = 1 + chance.integer(3)
    order = chance.shuffled(hosts)
    domains = tuple(order[start : start + size] for start in range(0, len(order), size))
    spec = TrainSpec(
        name=name,
        domains=domains,
        cycle=Duration(seconds(60 + 200 * chance.uniform())),
        stop_limit=Duration(seconds(20 + 60 * chance.uniform())),
        evict_after=Duration(seconds(15)) if chance.integer(2) else None,
        emergency=chance.integer(6) == 0,
        mode="observe" if chance.integer(8) == 0 else "act",
    )
    run.submit(TrainDeclared(at=run.world.now, spec=spec, by=OPS))


def roll_out(run: "MaintenanceRun", hosts: tuple[HostId, ...]) -> None:
    """A new rollout, or something about one that lives."""
    chance, now, rollouts = run.chance, run.world.now, run.engine.state.maintenance.rollouts
    live = [one for _, one in sorted(rollouts.items()) if one.is_live()]
    if len(live) >= 2 or (live and chance.integer(3) == 0):
        one = chance.choice(live)
        what = chance.integer(3)
        if what == 0:
            run.submit(RolloutStopped(at=now, rollout=one.id, by=OPS, reason="not wanted"))
        elif one.is_moving():
            run.submit(RolloutPaused(at=now, rollout=one.id, by=OPS, reason="wait"))
        elif one.state in (RolloutState.PAUSED, RolloutState.HELD):
            run.submit(RolloutResumed(at=now, rollout=one.id, by=OPS, reason="go on"))
        return
    component = chance.choice(COMPONENTS)
    if any(one.spec.component == component for one in live):
        return
    spec = RolloutSpec(
        component=component,
        version=f"1{len(rollouts)}",
        pool=hosts,
        stages=Fixed(hosts=3) if chance.integer(2) else Exponential(first=2),
        soak=Duration(seconds(1)),
        unproven_percent=100.0,
        on_failure="hold" if chance.integer(2) else "roll-back",
    )
    rollout = RolloutId(f"rollout-{len(rollouts)}")
    run.submit(RolloutDeclared(at=now, rollout=rollout, spec=spec, seed=chance.integer(1000), by=OPS))


def upgrade_gang(run: "MaintenanceRun") -> None:
    state = run.engine.state
    jobs = [
        job.id for job in state.jobs.values() if job.state is JobState.ACTIVE and job.id not in state.maintenance.gangs
    ]
    if jobs:
        job: JobId = run.chance.choice(sorted(jobs))
        component = run.chance.choice(COMPONENTS[:4])
        run.submit(
            GangUpgradeRequested(
                at=run.world.now, job=job, component=component, version="20", by=OPS, reason="breaking"
            )
        )


def agree_again(run: "MaintenanceRun") -> None:
    """What is left of upgrades that were cut short is ended: all hosts get one driver, or jobs wait for ever."""
    asked = {one.spec.scope for one in run.engine.state.maintenance.operations.values() if one.spec.version == LAST}
    for host in list(run.engine.state.hosts.values()):
        scope = (f"host/{host.id}",)
        if host.spec.kind == "compute" and host.versions.get(DRIVER) != LAST and scope not in asked:
            spec = OperationSpec(component=DRIVER, version=LAST, scope=scope)
            run.submit(OperationRequested(at=run.world.now, spec=spec, by=OPS))


def calm(run: "MaintenanceRun") -> None:
    """Trains and rollouts end, and what rollouts hold is released by whoever owns it."""
    now, maintenance = run.world.now, run.engine.state.maintenance
    for name, train in sorted(maintenance.trains.items()):
        if train.state is not TrainState.ENDED:
            run.submit(TrainAborted(at=now, train=name, by=OPS, reason="the end"))
    for name in sorted(maintenance.paused):
        run.submit(TrainResumed(at=now, train=name, by=OPS, reason="the end"))
    for name, rollout in sorted(maintenance.rollouts.items()):  # type: ignore[assignment]
        if rollout.is_live():
            run.submit(RolloutStopped(at=now, rollout=RolloutId(name), by=OPS, reason="the end"))
    agree_again(run)
    for host in list(run.engine.state.hosts.values()):
        for hold in host.holds:
            if hold.owner.startswith(("policy:rollout/", "policy:undo/")):
                run.submit(ResumeRequested(at=now, hosts=(host.id,), reason="looked at", by=hold.owner))
