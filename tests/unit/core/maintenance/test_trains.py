"""Trains: stops, carried-over units, proofs, autostop; rollouts on trains; gang upgrades."""

from tests.unit.core.maintenance.planner_world import ME, PlannerWorld

from trainmaster.core.base.ids import ComponentName, HostId, RolloutId, TrainName
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, MINUTE, Duration
from trainmaster.core.effects import RebootHost, RunSteps
from trainmaster.core.events import (
    RolloutDeclared,
    TrainAborted,
    TrainDeclared,
    TrainPaused,
    TrainResumed,
    VersionTargeted,
)
from trainmaster.core.maintenance.stages import Fixed, RolloutSpec
from trainmaster.core.maintenance.train import Train, TrainSpec

NAME = TrainName("main")


def declare(world: PlannerWorld, size: int = 2, cycle: int = 8 * HOUR, **more: object) -> Train:
    names = world.names
    domains = tuple(tuple(names[start : start + size]) for start in range(0, len(names), size))
    spec = TrainSpec(name=NAME, domains=domains, cycle=Duration(cycle), **more)  # type: ignore[arg-type]
    world.submit(TrainDeclared(at=world.now, spec=spec, by=ME))
    world.pass_time(1)
    return world.engine.state.maintenance.trains[NAME]


def target(world: PlannerWorld, component: str, version: str = "2") -> None:
    world.submit(VersionTargeted(at=world.now, component=ComponentName(component), version=version, by=ME))


def versions(world: PlannerWorld, component: str) -> list[str]:
    return [world.engine.state.hosts[name].versions.get(ComponentName(component), "") for name in world.names]


def test_a_cycle_visits_everything_and_proves_it() -> None:
    """1. Two updates are due everywhere. 2. A train of two domains goes round. 3. Each host was drained once, and the
    proof of the cycle names nobody as missed."""
    world = PlannerWorld(hosts=4, maintenance=2)
    target(world, "nic")
    target(world, "kernel")
    train = declare(world)
    assert versions(world, "kernel") == ["2", "2", "", ""]
    world.pass_time(9 * HOUR)
    assert versions(world, "kernel") == ["2"] * 4
    assert versions(world, "nic") == ["2"] * 4
    assert [line for line in world.done if "reboot" in line] == ["h0:reboot", "h1:reboot", "h2:reboot", "h3:reboot"]
    (proof,) = train.proofs
    assert (proof.units, proof.visited, proof.worked_on, proof.missed) == (4, 4, 4, ())
    assert world.engine.state.maintenance.visited == dict.fromkeys(world.names, 1)


def test_a_train_stops_by_itself_and_goes_on() -> None:
    """1. More hosts have failed than the failure buffer holds. 2. The stop does not begin, and says why. 3. One is
    repaired; the train goes on by itself."""
    world = PlannerWorld(hosts=6, maintenance=2, failure=1)
    world.hold = lambda effect: isinstance(effect, RebootHost)
    for host in ("h4", "h5"):
        world.request("reboot", f"host/{host}")
    world.pass_time(2 * HOUR)
    assert [world.state(host) for host in ("h4", "h5")] == ["out-failed", "out-failed"]
    world.hold = lambda effect: False
    target(world, "nic")
    train = declare(world)
    assert train.state.value == "waiting"
    assert train.reason is not None
    assert (train.reason.token, train.reason.numbers["out_failed"]) == (Token.FAILURE_BUFFER_SPENT, 2)
    assert versions(world, "nic") == [""] * 6
    world.request("repair", "host/h5")
    assert versions(world, "nic")[:2] == ["2", "2"]


def test_a_failed_host_is_carried_over_and_alarmed_on() -> None:
    """1. A host of the domain has failed. 2. The others are visited, it is carried over. 3. The cycle ends without it:
    the proof says who was missed and why."""
    world = PlannerWorld(hosts=4, maintenance=2, failure=2)
    world.hold = lambda effect: isinstance(effect, RebootHost)
    world.request("reboot", "host/h1")
    world.pass_time(2 * HOUR)
    world.hold = lambda effect: False
    target(world, "nic")
    train = declare(world)
    assert dict(train.carried)[HostId("h1")].token is Token.UNIT_FAILED
    world.pass_time(9 * HOUR)
    (proof,) = train.proofs
    assert [missed.unit for missed in proof.missed] == ["h1"]
    world.request("repair", "host/h1")
    world.pass_time(8 * HOUR)
    assert train.proofs[-1].missed == ()
    assert versions(world, "nic") == ["2"] * 4


def test_pause_resume_abort() -> None:
    """1. A paused train begins no stop. 2. Resumed, it does. 3. Aborted in the middle, what has not begun is cancelled,
    and the hosts come back."""
    world = PlannerWorld(hosts=4, maintenance=2)
    target(world, "nic")
    train = declare(world)
    world.submit(TrainPaused(at=world.now, train=NAME, by=ME, reason="freeze"))
    world.pass_time(6 * HOUR)
    assert versions(world, "nic") == ["2", "2", "", ""]
    assert train.reason is not None
    assert train.reason.token is Token.TRAIN_PAUSED
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.submit(TrainResumed(at=world.now, train=NAME, by=ME, reason="over"))
    assert world.state("h2") == "out-planned"
    world.submit(TrainPaused(at=world.now, train=NAME, by=ME, reason="wait"))
    world.submit(TrainAborted(at=world.now, train=NAME, by=ME, reason="enough"))
    assert train.state.value == "ended"
    assert world.engine.state.maintenance.paused == {}
    world.hold = lambda effect: False
    world.let()
    assert [world.state(name) for name in world.names] == ["ready"] * 4
    assert world.engine.state.maintenance.operations == {}


def test_observe_writes_advice_and_does_nothing() -> None:
    """1. A train in observe. 2. It says what it would do; no host leaves."""
    world = PlannerWorld(hosts=4)
    target(world, "nic")
    train = declare(world, mode="observe")
    assert train.advice == ("h0: nic 2", "h1: nic 2")
    assert world.done == []


def test_a_bad_version_is_off_boarded_within_its_stage() -> None:
    """1. A version boards by stages of two. 2. Its hosts do not come back from it. 3. It is off-boarded: no host beyond
    the stage gets it, and the train goes on with what is proven."""
    world = PlannerWorld(hosts=12, maintenance=4, failure=12)
    target(world, "kernel", "1")
    target(world, "nic")
    world.answer = lambda effect: (
        ("failed", "observed 1, wanted 9")
        if effect.observe is not None and effect.observe.wanted == "9"
        else ("done", "")
    )
    rollout = RolloutId("kernel-9")
    spec = RolloutSpec(component=ComponentName("kernel"), version="9", pool=tuple(world.names), stages=Fixed(hosts=4))
    world.submit(RolloutDeclared(at=world.now, rollout=rollout, spec=spec, seed=1, by=ME))
    declare(world, size=4)
    world.pass_time(20 * HOUR)
    found = world.engine.state.maintenance.rollouts[rollout]
    assert found.state.value == "off-boarded"
    assert found.reason is not None
    assert found.reason.token is Token.VERSION_REJECTED
    tried = {line.partition(":")[0] for line in world.done if line.endswith(":apply:kernel 9")}
    assert len(tried) <= 4
    assert versions(world, "nic") == ["2"] * 12
    assert set(versions(world, "kernel")) == {"1"}


def test_one_version_on_trial_a_host_and_stop() -> None:
    """1. Two components are rolled out at once on the same hosts. 2. A stop brings each host one of them, not both."""
    world = PlannerWorld(hosts=4, maintenance=4)
    for name in ("nic", "fan"):
        spec = RolloutSpec(component=ComponentName(name), version="9", pool=tuple(world.names), stages=Fixed(hosts=4))
        world.submit(RolloutDeclared(at=world.now, rollout=RolloutId(f"{name}-9"), spec=spec, seed=1, by=ME))
    declare(world, size=4)
    by_host = {name: [line for line in world.done if line.startswith(f"{name}:apply")] for name in world.names}
    assert {len(lines) for lines in by_host.values()} == {1}
    world.pass_time(9 * HOUR)
    assert versions(world, "nic") == ["9"] * 4
    assert versions(world, "fan") == ["9"] * 4


def test_stop_limit() -> None:
    """1. A stop takes longer than it may. 2. What has not begun is taken back and carried over; what runs ends."""
    world = PlannerWorld(hosts=4, maintenance=2)
    target(world, "nic")
    target(world, "fan")
    world.hold = lambda effect: isinstance(effect, RunSteps)
    train = declare(world, stop_limit=Duration(30 * SECONDS))
    world.pass_time(MINUTE)
    world.hold = lambda effect: False
    world.let()
    assert world.engine.state.maintenance.operations == {}
    assert set(train.carried) == {"h0", "h1"}
    assert train.carried[HostId("h0")].token is Token.STOP_OVER


SECONDS = 1_000_000


def test_the_first_stop_waits_for_new_hosts() -> None:
    """1. A train is declared before any agent has registered. 2. It waits and says for whom; nobody is carried over.
    3. When they are there, the stop begins by itself."""
    world = PlannerWorld(hosts=2, maintenance=2, registered=False)
    target(world, "nic")
    train = declare(world)
    assert train.reason is not None
    assert (train.reason.token, train.reason.numbers["expected"]) == (Token.HOSTS_EXPECTED, 2)
    assert train.carried == {}
    for name in world.names:
        world.register(name)
    assert versions(world, "nic") == ["2", "2"]


def test_two_trains_bring_one_trial_to_a_visit() -> None:
    """1. A train brings a version on trial to a host. 2. Meanwhile another train stops there, and another
    component is on trial too. 3. It is not brought in the same visit."""
    world = PlannerWorld(hosts=4, maintenance=4)
    for name in ("nic", "fan"):
        spec = RolloutSpec(component=ComponentName(name), version="9", pool=tuple(world.names), stages=Fixed(hosts=4))
        world.submit(RolloutDeclared(at=world.now, rollout=RolloutId(f"{name}-9"), spec=spec, seed=1, by=ME))
    world.hold = lambda effect: isinstance(effect, RunSteps)
    for train, component in (("main", "nic"), ("other", "fan")):
        spec = TrainSpec(
            name=TrainName(train),
            domains=(tuple(world.names),),
            cycle=Duration(8 * HOUR),
            components=(ComponentName(component),),
        )  # type: ignore[assignment]
        world.submit(TrainDeclared(at=world.now, spec=spec, by=ME))  # type: ignore[arg-type]
        world.pass_time(1)
    on_trial = {one.rollout for one in world.engine.state.maintenance.operations.values()}
    assert on_trial == {"nic-9"}


def test_a_train_that_is_declared_again_goes_on_in_its_cycle() -> None:
    """1. A train of four domains is at its third. 2. It is declared again with another limit: cycle and place stay.
    3. With another way, cycle time or mode it begins a new cycle."""
    world = PlannerWorld(hosts=4, maintenance=4)
    before = declare(world, size=1, cycle=4 * HOUR)
    world.pass_time(2 * HOUR + MINUTE)
    assert (before.cycle, before.next_domain) == (1, 3)
    again = declare(world, size=1, cycle=4 * HOUR, stop_limit=Duration(HOUR))
    assert (again.cycle, again.cycle_began, again.next_domain) == (1, before.cycle_began, 3)
    world.pass_time(2 * HOUR)
    assert again.proofs[-1].visited == 4
    other = declare(world, size=2, cycle=4 * HOUR)
    assert (other.cycle, other.next_domain) == (3, 1)
