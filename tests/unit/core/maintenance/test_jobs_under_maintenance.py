"""Jobs on hosts that are maintained: they move at the right moment, agree on their versions, and leave as a whole."""

import pytest
from tests.unit.core.maintenance.planner_world import CATALOGUE, ME, PlannerWorld, component

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import ComponentName, HostId, JobId, SessionId, TrainName
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, MINUTE, SECOND, Duration, Instant
from trainmaster.core.effects import AnyEffect, AskWorkers, LaunchWorkers, ReserveStore
from trainmaster.core.events import (
    AgentDisconnected,
    CatalogueDeclared,
    CheckpointPublished,
    DrainRequested,
    EffectsEnded,
    EpochPhase,
    GangUpgradeRequested,
    JobSubmitted,
    LeaseTaken,
    ResumeRequested,
    TrainDeclared,
    VersionTargeted,
    WorkersExited,
)
from trainmaster.core.maintenance.catalogue import Pin, Rule
from trainmaster.core.maintenance.train import TrainSpec
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.core.scheduling.request import JobSpec, MaintenanceContract

SHARED = (component("image", job_consistent=True), component("old-image-tool"))


class JobWorld(PlannerWorld):
    """Ranks start, save and leave as they are asked, at once."""

    def __init__(self, hosts: int = 6, maintenance: int = 6) -> None:
        super().__init__(hosts=hosts, maintenance=maintenance)
        rule = Rule(
            when=Pin(component=ComponentName("image"), versions=">=2"),
            needs=Pin(component=ComponentName("driver"), versions=">=2"),
        )
        catalogue = CATALOGUE.but(components=(*CATALOGUE.components, *SHARED), rules=(rule,))
        self.submit(CatalogueDeclared(at=self.now, catalogue=catalogue, by=ME))
        self.names_of_components = {one.name for one in catalogue.components}
        self.yields: list[tuple[HostId, ...]] = []

    def as_sent(self, effect: AnyEffect) -> list[AnyEffect]:
        """Whole gangs answer at once."""
        return [effect]

    def carry_out(self, effect: AnyEffect, outcome: str = "", detail: str = "") -> None:
        if len(effect.hosts) == 1 and not isinstance(effect, ReserveStore | LaunchWorkers | AskWorkers):
            super().carry_out(effect, outcome, detail)
            return
        self.now = Instant(self.now + SECOND)
        numbers: dict[str, int | float | str] = {"port": 5} if isinstance(effect, ReserveStore) else {}
        self.submit(
            EffectsEnded(at=self.now, effect=effect.id, hosts=effect.hosts, outcome="done", detail="", numbers=numbers)
        )
        if isinstance(effect, LaunchWorkers):
            for phase in (Phase.ATTACHED, Phase.GROUPED, Phase.RESTORED, Phase.TRAINING):
                self.submit(
                    EpochPhase(
                        at=self.now,
                        host=effect.hosts[0],
                        attempt=effect.attempt,
                        epoch=effect.epoch,
                        phase=phase,
                        step=1,
                    )
                )
        elif isinstance(effect, AskWorkers):
            self.yields.append(effect.hosts)
            self.submit(
                WorkersExited(
                    at=self.now,
                    attempt=effect.attempt,
                    epoch=effect.epoch,
                    hosts=effect.hosts,
                    how="yielded",
                    exit_code=0,
                    signal=None,
                    attached=True,
                    phase=Phase.YIELDED,
                    step=5,
                    step_at=self.now,
                    save_s=0.0,
                )
            )

    def run(self, hosts: int = 4, spares: int = 1, name: str = "train", **more: object) -> JobId:
        spec = JobSpec(name=name, command=("x",), hosts=hosts, spares=spares, **more)  # type: ignore[arg-type]
        self.submit(JobSubmitted(at=self.now, spec=spec, by=ME))
        return JobId(f"job-{len(self.engine.state.jobs)}")

    def attempt(self, job: JobId) -> Attempt:
        return self.engine.state.attempts[self.engine.state.jobs[job].attempts[-1]]

    def train(self, size: int, **more: object) -> None:
        domains = tuple(tuple(self.names[start : start + size]) for start in range(0, len(self.names), size))
        spec = TrainSpec(name=TrainName("main"), domains=domains, cycle=Duration(6 * HOUR), **more)  # type: ignore[arg-type]
        self.submit(TrainDeclared(at=self.now, spec=spec, by=ME))
        self.pass_time(1)

    def target(self, name: str, version: str = "2") -> None:
        self.submit(VersionTargeted(at=self.now, component=ComponentName(name), version=version, by=ME))


def test_a_missed_host_does_not_spoil_the_stops_that_follow() -> None:
    """1. The only spare is drained by a person, so the first host is not let go and is carried over. 2. The spare is
    back. 3. The stops that follow have their hosts, whether or not there is a second place for the one that was missed.
    """
    world = JobWorld(hosts=4, maintenance=4)
    job = world.run(hosts=3, spares=1)
    (spare,) = world.attempt(job).spares
    world.submit(DrainRequested(at=world.now, hosts=(spare,), by=ME, reason="a look inside"))
    world.target("nic")
    world.train(1)
    train = world.engine.state.maintenance.trains[TrainName("main")]
    assert [reason.token for reason in train.carried.values()] == [Token.NO_REPLACEMENT]
    world.submit(ResumeRequested(at=world.now, hosts=(spare,), by=ME, reason="all is well"))
    world.pass_time(6 * HOUR - 2 * MINUTE)
    assert set(train.visited_at) >= set(world.names[1:])


def test_a_job_rides_through_a_whole_train() -> None:
    """1. A job of four hosts with a spare on six. 2. A sliding update boards the train, one host a stop. 3. All hosts
    have it; the job was never without its four, and it moved only when one of its own was due."""
    world = JobWorld(hosts=6, maintenance=1)
    job = world.run()
    world.target("nic")
    world.train(1)
    world.pass_time(7 * HOUR)
    assert {host.versions.get(ComponentName("nic")) for host in world.engine.state.hosts.values()} == {"2"}
    attempt = world.attempt(job)
    assert attempt.state.value == "running"
    assert world.engine.state.jobs[job].attempts == (attempt.id,)
    assert {epoch.ended_by for epoch in attempt.epochs[:-1]} == {"yielded"}
    assert 4 <= len(world.yields) <= 6


def test_one_spare_replaces_one_host_at_a_time() -> None:
    """1. A job saves before it moves, and has one spare. 2. Two of its hosts are wanted, one after the other: the first
    is told, the second waits, for the spare is promised. 3. Another job without spares does not get it either."""
    world = JobWorld(hosts=6, maintenance=6)
    contract = MaintenanceContract(checkpoint_wait=Duration(10 * MINUTE))
    job = world.run(hosts=3, spares=0, contract=contract)
    other = world.run(hosts=2, spares=0, contract=contract, name="other")
    members = world.attempt(job).members
    first, second = (world.request("nic", f"host/{name}") for name in members[:2])
    third = world.request("nic", f"host/{world.attempt(other).members[0]}")
    waits = {name: world.operation(name).reason for name in (first, second, third)}
    assert waits[first].token is Token.NOTICE_GIVEN
    for name in (second, third):
        assert waits[name].token is Token.REPLACEMENT_PROMISED
        assert waits[name].numbers["going"] + waits[name].numbers["promised"] == waits[name].numbers["free"] == 1
    world.pass_time(2 * HOUR)
    assert [world.outcome(name) for name in (first, second, third)] == ["done"] * 3
    assert world.attempt(job).state.value == "running"


def test_a_stop_waits_for_a_spare_that_is_promised() -> None:
    """1. The only spare is promised to a host that leaves. 2. The stop that would take another host of the job does not
    begin without it, but waits and says so. 3. It goes on by itself; the cycle misses nobody."""
    world = JobWorld(hosts=4, maintenance=4)
    job = world.run(hosts=3, spares=1, contract=MaintenanceContract(checkpoint_wait=Duration(10 * MINUTE)))
    first, last = world.attempt(job).members[0], world.attempt(job).members[2]
    world.request("fan", f"host/{first}")
    world.target("nic")
    domains = ((last,), *((name,) for name in world.names if name != last))
    spec = TrainSpec(name=TrainName("main"), domains=domains, cycle=Duration(6 * HOUR))
    world.submit(TrainDeclared(at=world.now, spec=spec, by=ME))
    world.pass_time(1)
    train = world.engine.state.maintenance.trains[TrainName("main")]
    assert (train.state.value, train.carried) == ("waiting", {})
    assert train.reason is not None
    assert train.reason.token is Token.REPLACEMENT_PROMISED
    world.pass_time(6 * HOUR)
    assert train.proofs[0].missed == ()


def test_all_hosts_of_a_job_in_a_domain_move_at_once() -> None:
    """1. Two hosts of a job are in the domain of a stop. 2. The job is asked to leave once, not twice."""
    world = JobWorld(hosts=8, maintenance=2)
    world.run(hosts=4, spares=2)
    world.target("nic")
    world.train(2)
    assert len(world.yields) == 1
    assert [world.state(name) for name in ("h0", "h1")] == ["ready", "ready"]


def test_no_replacement_carries_over_and_a_told_train_evicts() -> None:
    """1. All hosts are in the job, so nobody can replace one. 2. The train leaves its hosts out and says why. 3. A
    train that may evict takes them: the job stops after a checkpoint and starts again on what is back."""
    world = JobWorld(hosts=4, maintenance=2)
    job = world.run(hosts=4, spares=0)
    world.target("nic")
    world.train(2)
    train = world.engine.state.maintenance.trains[TrainName("main")]
    assert {reason.token for reason in train.carried.values()} == {Token.NO_REPLACEMENT}
    assert world.yields == []
    world.train(2, evict_after=Duration(MINUTE))
    world.pass_time(3 * HOUR + MINUTE + 1)  # from its next stop on
    assert len(world.yields) == 1
    world.pass_time(9 * HOUR)
    assert {host.versions.get(ComponentName("nic")) for host in world.engine.state.hosts.values()} == {"2"}
    assert world.attempt(job).state.value == "running"


def test_the_moment_after_a_checkpoint() -> None:
    """1. A job asks for notice and for its next checkpoint to be waited for. 2. It is told; nothing drains. 3. It
    publishes before the notice is over: still nothing. 4. After the notice, the next checkpoint lets it move."""
    world = JobWorld()
    contract = MaintenanceContract(notice=Duration(5 * MINUTE), checkpoint_wait=Duration(HOUR))
    job = world.run(contract=contract)
    name = world.request("nic", "host/h0")
    assert world.operation(name).reason.token is Token.NOTICE_GIVEN  # type: ignore[union-attr]
    attempt = world.attempt(job)

    def publish(step: int) -> None:
        world.submit(CheckpointPublished(at=world.now, host=attempt.members[0], attempt=attempt.id, epoch=1, step=step))

    publish(10)
    assert world.state("h0") == "ready"
    world.pass_time(6 * MINUTE)
    assert world.state("h0") == "ready"
    publish(20)
    assert world.outcome(name) == "done"
    assert len(world.yields) == 1


def test_contracts_of_jobs() -> None:
    """1. A job is protected for an hour: work on its hosts waits and says so. 2. Another one ends soon and is let to
    its end. 3. Others are not held up by that."""
    world = JobWorld(hosts=8, maintenance=8)
    world.run(hosts=2, name="safe", contract=MaintenanceContract(protected_until=Instant(world.now + HOUR)))
    soon = MaintenanceContract(expected_duration=Duration(30 * MINUTE), wait_for_end=Duration(HOUR))
    world.run(hosts=2, name="soon", contract=soon)
    jobs = [world.attempt(JobId(f"job-{number}")).members for number in (1, 2)]
    first = world.request("nic", f"host/{jobs[0][0]}")
    second = world.request("nic", f"host/{jobs[1][0]}")
    idle = next(name for name in world.names if world.engine.state.hosts[name].allocation is None)
    third = world.request("nic", f"host/{idle}")
    assert world.operation(first).reason.token is Token.JOB_PROTECTED  # type: ignore[union-attr]
    assert world.operation(second).reason.token is Token.JOB_ENDS_SOON  # type: ignore[union-attr]
    assert world.outcome(third) == "done"
    world.pass_time(2 * HOUR)
    assert (world.outcome(first), world.outcome(second)) == ("done", "done")


def test_a_gang_upgrade() -> None:
    """1. The image must agree over the hosts of a job. 2. A gang upgrade stops the job as a whole after a checkpoint,
    upgrades its hosts together, and it starts again on hosts that agree."""
    world = JobWorld(hosts=6, maintenance=6)
    world.target("driver")
    world.train(6)
    job = world.run()
    before = world.attempt(job)
    world.submit(
        GangUpgradeRequested(
            at=world.now, job=job, component=ComponentName("image"), version="2", by=ME, reason="new CUDA"
        )
    )
    after = world.attempt(job)
    assert (before.state.value, after.state.value) == ("preempted", "running")
    assert len(world.yields) == 1
    assert (before.stack, after.stack) == ("", "image=2")
    upgraded = set(before.members) | set(before.spares)
    assert set(after.members) <= upgraded
    assert world.engine.state.maintenance.gangs == {}


def test_a_job_is_not_placed_on_a_mix() -> None:
    """1. Three hosts have the new image, three the old one. 2. A job of four waits, and the numbers say why. 3. When a
    fourth has it, the job starts on hosts that agree."""
    world = JobWorld(hosts=6, maintenance=6)
    world.target("driver")
    world.train(6)
    for number in range(3):
        world.request("image", f"host/h{number}")
    job = world.run(hosts=4, spares=0)
    reason = world.engine.state.jobs[job].reason
    assert reason is not None
    assert (reason.token, reason.numbers["agree"], reason.numbers["short"]) == (Token.MIXED_VERSIONS, 3, 1)
    world.request("image", "host/h3")
    assert set(world.attempt(job).members) == {"h0", "h1", "h2", "h3"}


def test_versions_that_do_not_go_together() -> None:
    """1. The new image needs a newer driver, which the host has not. 2. A train does not bring it, and says why.
    3. Brought by hand, the host does not go back to production; once the driver is there, it does."""
    world = JobWorld(hosts=2, maintenance=2)
    world.request("driver", "host/h0", version="1")
    world.target("image")
    world.train(2)
    train = world.engine.state.maintenance.trains[TrainName("main")]
    assert train.held_back[ComponentName("image")].token is Token.VERSIONS_CLASH
    world.request("image", "host/h0")
    assert world.state("h0") == "out-planned"
    assert [hold.owner for hold in world.engine.state.hosts[HostId("h0")].holds] == ["policy:versions"]
    world.request("driver", "host/h0", version="2")
    assert world.state("h0") == "ready"


def lose(world: JobWorld, host: HostId) -> None:
    world.submit(AgentDisconnected(at=world.now, host=host, session=SessionId("s1")))
    world.pass_time(MINUTE)


@pytest.mark.parametrize("upgraded", [3, 2])
def test_a_job_does_not_wait_for_versions_that_nobody_has(upgraded: int) -> None:
    """1. A job of three hosts on five or six; the free ones get another image, on which hosts of a job must agree. 2.
    It loses a host. 3. Where three free hosts agree it starts anew on them at once. 4. Where there are two, it waits,
    and says that those which are free have other versions; its host gets the image as well, and it starts anew."""
    world = JobWorld(hosts=3 + upgraded, maintenance=6)
    job = world.run(hosts=3, spares=0)
    members = world.attempt(job).members
    for name in set(world.names) - set(members):
        world.request("image", f"host/{name}", version="1.5")
    world.pass_time(HOUR)
    assert len({world.engine.state.hosts[name].stack for name in world.names}) == 2
    lose(world, members[0])
    told = world.engine.state.jobs[job]
    if upgraded == 3:
        assert len(told.attempts) == 2
        assert world.attempt(job).state.value == "running"
        assert set(world.attempt(job).members).isdisjoint(members)
        return
    waiting = world.attempt(job).waiting
    assert waiting is not None
    assert waiting.sentence == (
        "1 of 3 places are vacant, and none of the 2 free hosts of c has its versions (none known)"
    )
    world.boots[members[0]] = 2
    world.submit(DrainRequested(at=world.now, hosts=members[:1], by=ME, reason="a new image"))
    world.request("image", f"host/{members[0]}", version="1.5")
    world.register(members[0])
    world.pass_time(HOUR)
    world.submit(ResumeRequested(at=world.now, hosts=members[:1], by=ME, reason="it is there"))
    world.pass_time(HOUR)
    assert world.attempt(job).state.value == "running"
    assert len(world.engine.state.jobs[job].attempts) == 2


def test_a_promise_that_runs_out_while_no_server_runs() -> None:
    """1. A job is not to be touched for a minute, and an operation waits for that. 2. The server is away when the
    minute is over; the next one takes over. 3. It calls the operation at once, though agents have a grace to come
    back."""
    world = JobWorld(hosts=4)
    job = world.run(hosts=3, spares=1, contract=MaintenanceContract(protected_until=Instant(world.now + MINUTE)))
    name = world.request("nic", f"host/{world.attempt(job).members[0]}")
    reason = world.operation(name).reason
    assert reason is not None
    assert reason.token is Token.JOB_PROTECTED
    world.now = Instant(world.now + MINUTE + SECOND)
    world.submit(LeaseTaken(at=world.now, lease=2, by=ME))
    wake = world.engine.next_wake()
    assert wake is not None
    assert wake <= world.now
    for host in world.names:
        world.register(host)
    world.pass_time(HOUR)
    assert world.outcome(name) == "done"
