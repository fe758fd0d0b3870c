"""Rollouts at work: what counts as evidence, who is compared with whom, and what becomes of hosts afterwards."""

import pytest
from tests.unit.core.maintenance.planner_world import ME, PlannerWorld

from trainmaster.core.base.ids import ComponentName, HostId, RolloutId, TrainName
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, MINUTE, Duration
from trainmaster.core.effects import RebootHost, RunSteps
from trainmaster.core.events import RolloutDeclared, RolloutPassed, RolloutStopped, TrainDeclared, VersionTargeted
from trainmaster.core.maintenance import trials
from trainmaster.core.maintenance.evidence import Criteria, load_term
from trainmaster.core.maintenance.rollout import Rollout, RolloutState
from trainmaster.core.maintenance.stages import Fixed, RolloutSpec
from trainmaster.core.maintenance.train import Train, TrainSpec
from trainmaster.core.step import Step

MAIN = TrainName("main")
TRIAL = RolloutId("trial")


def target(world: PlannerWorld, component: str, version: str) -> None:
    world.submit(VersionTargeted(at=world.now, component=ComponentName(component), version=version, by=ME))


def roll_out(world: PlannerWorld, component: str, stage: int, **more: object) -> Rollout:
    spec = RolloutSpec(
        component=ComponentName(component),
        version="9",
        pool=tuple(world.names),
        stages=Fixed(hosts=stage),
        soak=Duration(0),
        unproven_percent=100.0,
        **more,  # type: ignore[arg-type]
    )
    world.submit(RolloutDeclared(at=world.now, rollout=TRIAL, spec=spec, seed=1, by=ME))
    return world.engine.state.maintenance.rollouts[TRIAL]


def ride(world: PlannerWorld, size: int, cycle: int = 24 * HOUR) -> Train:
    domains = tuple(tuple(world.names[start : start + size]) for start in range(0, len(world.names), size))
    spec = TrainSpec(name=MAIN, domains=domains, cycle=Duration(cycle))
    world.submit(TrainDeclared(at=world.now, spec=spec, by=ME))
    world.pass_time(1)
    return world.engine.state.maintenance.trains[MAIN]


def versions(world: PlannerWorld, component: str) -> dict[str, str]:
    return {name: world.engine.state.hosts[name].versions.get(ComponentName(component), "") for name in world.names}


def kernel_9(effect: object) -> bool:
    return isinstance(effect, RunSteps) and effect.leg == "apply" and any("9" in step.command for step in effect.steps)


def test_hosts_that_did_not_come_back_are_rolled_back_when_they_do() -> None:
    """1. All hosts have kernel 1; kernel 9 boards a train, and no host comes back from it. 2. It is rejected; the hosts
    are out, and what they carry is unknown. 3. They are repaired. 4. Each got kernel 1 back at once, not at the next
    round of a train."""
    world = PlannerWorld(hosts=8, maintenance=4, failure=8)
    for name in world.names:
        world.request("kernel", f"host/{name}", "1")
    target(world, "kernel", "1")
    rollout = roll_out(world, "kernel", 4)
    world.hold = lambda effect: isinstance(effect, RebootHost)
    ride(world, 8, cycle=240 * HOUR)
    world.pass_time(3 * HOUR)
    assert rollout.state is RolloutState.OFF_BOARDED
    lost = [name for name in world.names if world.state(name) == "out-failed"]
    assert len(lost) == 4
    waiting = world.engine.state.maintenance.operations.values()
    assert sorted(operation.line for operation in waiting) == sorted(f"unit/{name}" for name in lost)
    world.hold, world.held = (lambda effect: False), []
    world.done.clear()
    for name in lost:
        world.request("repair", f"host/{name}")
    assert [line for line in world.done if ":apply:kernel" in line] == [f"{name}:apply:kernel 1" for name in lost]
    assert set(versions(world, "kernel").values()) == {"1"}
    assert [world.state(name) for name in world.names] == ["ready"] * 8


@pytest.mark.parametrize("then", ["roll-back", "hold"])
def test_what_was_under_way_is_cleared_up_when_it_ends(then: str) -> None:
    """1. A bad version is applied to four hosts at once; one of them is still at it when the others have rejected the
    version. 2. It ends well. 3. That host is rolled back too, or held."""
    world = PlannerWorld(hosts=8, maintenance=8, failure=8)
    target(world, "nic", "1")
    rollout = roll_out(world, "nic", 4, on_failure=then)
    slow = world.engine._derived.planner.plan_of(rollout).order[0]
    world.hold = lambda effect: kernel_9(effect) and effect.host == slow  # type: ignore[attr-defined]
    world.answer = lambda effect: ("failed", "no link") if kernel_9(effect) else ("done", "")
    ride(world, 8, cycle=240 * HOUR)
    assert rollout.state is RolloutState.OFF_BOARDED
    assert slow not in rollout.evidence.operated
    world.hold = lambda effect: False
    for effect in world.held:
        world.carry_out(effect, "done")
    assert len(rollout.evidence.operated) < 4
    if then == "roll-back":
        assert versions(world, "nic")[slow] == "1"
        assert [world.state(name) for name in world.names] == ["ready"] * 8
    else:
        assert versions(world, "nic")[slow] == "9"
        held = [name for name in world.names if world.engine.state.hosts[name].holds]
        assert set(held) >= {slow, *rollout.evidence.operated}
        assert {world.state(name) for name in held} == {"out-planned"}


def test_a_way_back_that_fails() -> None:
    """1. A version is rejected, and its hosts are rolled back. 2. On one of them the steps fail: it is held, out of
    production. 3. Another is lost on the way: its way back waits for the repair, and is tried again then."""
    world = PlannerWorld(hosts=8, maintenance=8, failure=8)
    for name in world.names:
        world.request("nic", f"host/{name}", "1")
    target(world, "nic", "1")
    rollout = roll_out(world, "nic", 4)
    stuck, lost = world.engine._derived.planner.plan_of(rollout).order[:2]

    def answer(effect: RunSteps) -> tuple[str, str]:
        return ("failed", "no link") if kernel_9(effect) or effect.host == stuck else ("done", "")

    def hangs(effect: object) -> bool:
        return isinstance(effect, RunSteps) and effect.host == lost and any("1" in one.command for one in effect.steps)

    world.answer, world.hold = answer, hangs
    ride(world, 8, cycle=240 * HOUR)
    world.pass_time(HOUR)
    assert rollout.state is RolloutState.OFF_BOARDED
    assert world.state(stuck) == "out-planned"
    assert [str(hold.owner) for hold in world.engine.state.hosts[stuck].holds] == ["policy:rollout/trial"]
    assert world.state(lost) == "out-failed"
    world.hold, world.held = (lambda effect: False), []
    world.done.clear()
    world.request("repair", f"host/{lost}")
    assert f"{lost}:apply:nic 1" in world.done
    assert world.state(lost) == "ready"
    assert world.engine.state.maintenance.operations == {}


def test_stopped_by_a_person_nothing_is_undone() -> None:
    """1. A version is on its first hosts. 2. A person stops it. 3. They keep it."""
    world = PlannerWorld(hosts=8, maintenance=4)
    target(world, "nic", "1")
    rollout = roll_out(world, "nic", 4)
    ride(world, 4, cycle=240 * HOUR)
    carriers = {name for name, version in versions(world, "nic").items() if version == "9"}
    assert carriers
    world.submit(RolloutStopped(at=world.now, rollout=TRIAL, by=ME, reason="enough"))
    world.pass_time(HOUR)
    assert rollout.state is RolloutState.STOPPED
    assert {name for name, version in versions(world, "nic").items() if version == "9"} == carriers


def test_what_never_began_says_nothing_about_the_version() -> None:
    """1. A driver is on trial, behind a BIOS that fails everywhere. 2. No driver was tried, so none has failed. 3. Once
    the BIOS goes in, the hosts get their driver, and that counts."""
    world = PlannerWorld(hosts=4, maintenance=4, failure=4)
    target(world, "bios", "2")
    rollout = roll_out(world, "driver", 4)
    world.answer = lambda effect: ("failed", "no") if "bios" in effect.steps[0].command else ("done", "")
    ride(world, 4)
    assert versions(world, "driver") == dict.fromkeys(world.names, "")
    assert not rollout.evidence.operated
    assert rollout.state is RolloutState.CANARY
    world.answer = lambda effect: ("done", "")
    world.pass_time(25 * HOUR)
    assert set(versions(world, "driver").values()) == {"9"}
    assert rollout.evidence.operations_failed == 0
    assert len(rollout.evidence.operated) == 4


def test_a_failure_is_compared_within_its_pod_and_without_who_was_counted() -> None:
    """1. Two pods of eight hosts, all under load; three hosts of the first pod and one of the second carry a version on
    trial. 2. A host of the first pod fails: it is compared with the eight of its pod. 3. Another one: with the seven
    that were not counted yet. 4. A host of the second pod: with its own eight. 5. One that failed before counts no
    second time."""
    world = PlannerWorld(hosts=16)
    pods = ("p1",) * 8 + ("p2",) * 8
    rollout = roll_out(world, "nic", 4, strata=pods)
    step = Step(world.engine.state, world.engine._derived, world.now)
    hosts = world.engine.state.hosts
    carriers = {"h0", "h1", "h2", "h8"}
    for name in world.names:
        hosts[name].role = "member"
        hosts[name].versions = {ComponentName("nic"): "9" if name in carriers else "1"}
    criteria, load = Criteria(), rollout.evidence.load

    def fail(name: str) -> int:
        before = load.now
        hosts[HostId(name)].role = ""
        trials.host_failed(step, HostId(name), True)
        hosts[HostId(name)].role = "member"
        return load.now - before

    assert fail("h0") == load_term(criteria, True, 3, 5)
    assert fail("h5") == load_term(criteria, False, 2, 5)
    assert fail("h8") == load_term(criteria, True, 1, 7)
    assert fail("h6") == load_term(criteria, False, 2, 4)
    assert fail("h0") == 0
    assert (rollout.evidence.failures_upgraded, rollout.evidence.failures_others) == (2, 2)
    assert rollout.evidence.failures_repeated == 1


def test_a_stage_passes_without_who_is_in_repair_and_he_gets_it_later() -> None:
    """1. A stage of ten hosts; one of them is in repair. 2. Nine have their update, and the stage passes. 3. The tenth
    is repaired, and the next round of the train brings it the version."""
    world = PlannerWorld(hosts=20, maintenance=20, failure=4)
    rollout = roll_out(world, "nic", 10)
    away = world.engine._derived.planner.plan_of(rollout).order[3]
    world.hold = lambda effect: isinstance(effect, RebootHost)
    world.request("reboot", f"host/{away}")
    world.pass_time(2 * HOUR)
    assert world.state(away) == "out-failed"
    world.hold = lambda effect: False
    ride(world, 20, cycle=6 * HOUR)
    world.pass_time(2 * HOUR)
    assert rollout.stage == 1
    assert versions(world, "nic")[away] == ""
    world.request("repair", f"host/{away}")
    world.pass_time(12 * HOUR)
    assert versions(world, "nic")[away] == "9"


def test_who_waited_for_what_is_off_boarded_has_had_his_visit() -> None:
    """1. A stop brings a version on trial, and nothing else, to four hosts; one is slow to begin. 2. The others reject
    it. 3. The slow one is due for nothing any more: it was visited, and is not named as missed."""
    world = PlannerWorld(hosts=4, maintenance=4, failure=4)
    target(world, "nic", "1")
    for name in world.names:
        world.request("nic", f"host/{name}", "1")
    roll_out(world, "nic", 4)
    world.request("deep-check", "host/h3")
    world.answer = lambda effect: ("failed", "no link") if kernel_9(effect) else ("done", "")
    world.hold = lambda effect: kernel_9(effect) and effect.host == "h3"  # type: ignore[attr-defined]
    train = ride(world, 4, cycle=12 * HOUR)
    world.hold = lambda effect: False
    world.let()
    world.pass_time(13 * HOUR + MINUTE)
    assert [proof.missed for proof in train.proofs] == [()] * len(train.proofs)
    assert train.proofs
    assert set(versions(world, "nic").values()) == {"1"}


def test_a_stage_of_which_everything_failed_is_passed_by_a_person() -> None:
    """1. The only host of the canary fails its update: too little to reject, and held. 2. A person lets the stage pass:
    the reason and the story say who, and why. 3. The next host gets the version, and the rollout goes on."""
    world = PlannerWorld(hosts=4, maintenance=4)
    rollout = roll_out(world, "nic", 1)
    first, second, *_ = world.engine._derived.planner.plan_of(rollout).order
    world.answer = lambda effect: ("failed", "no") if effect.host == first else ("done", "")
    ride(world, 1, cycle=4 * HOUR)
    world.pass_time(4 * HOUR)
    assert rollout.state is RolloutState.HELD
    assert rollout.reason is not None
    assert (rollout.reason.token, rollout.reason.numbers["operations_failed"]) == (Token.STAGE_FAILED, 1)
    world.submit(RolloutPassed(at=world.now, rollout=TRIAL, by=ME, reason="a loose cable"))
    assert (rollout.state, rollout.stage) == (RolloutState.STAGE, 1)
    assert rollout.story[-1].cause == f"passed by {ME}: a loose cable"
    world.pass_time(8 * HOUR)
    assert versions(world, "nic")[second] == "9"


def test_the_last_stage_that_a_person_passes_completes_the_rollout() -> None:
    """The version counts as proven then, as after any other end."""
    world = PlannerWorld(hosts=1, maintenance=1)
    rollout = roll_out(world, "nic", 1)
    world.answer = lambda effect: ("failed", "no")
    ride(world, 1)
    assert rollout.state is RolloutState.HELD
    world.submit(RolloutPassed(at=world.now, rollout=TRIAL, by=ME, reason="known"))
    assert rollout.state is RolloutState.COMPLETE
    assert world.engine.state.maintenance.targets[ComponentName("nic")] == "9"
