"""Trains, versions, rollouts and gang upgrades by the API: planned, declared, steered, shown."""

from pathlib import Path

import pytest
from tests.unit.server.maintenance_house import MaintenanceHouse, during

from trainmaster.core.base.ids import ComponentName, JobId, KindName, Owner, TrainName
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, Duration
from trainmaster.core.base.value import Value
from trainmaster.core.events import JobSubmitted
from trainmaster.core.maintenance.capacity import Share
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.stages import Percentages
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.core.scheduling.request import JobSpec
from trainmaster.live.server.maintenance_resources import (
    GangReport,
    GangRequest,
    MaintenanceChange,
    MaintenanceReport,
    MaintenanceView,
    OperationAsk,
    PlanReport,
    PlanRequest,
    RolloutDetail,
    RolloutReport,
    RolloutRequest,
    Rollouts,
    TrainDetail,
    TrainReport,
    TrainRequest,
    Trains,
    VersionRequest,
)
from trainmaster.live.server.resources import StatusView

NIC = ComponentName("nic")
WHY = MaintenanceChange(reason="test")
WISH = TrainWish(
    name=TrainName("weekly"), cluster="c", domain_size=Share(hosts=2), cycle=Duration(6 * HOUR), mode="act"
)


def ask(wish: TrainWish, **more: object) -> TrainRequest:
    return TrainRequest(train=wish, reason="test", **more)  # type: ignore[arg-type]


async def start_job(house: MaintenanceHouse, hosts: int = 2, spares: int = 0) -> None:
    spec = JobSpec(name="llama", command=("true",), hosts=hosts, spares=spares)
    await house.submit(JobSubmitted(at=house.runtime.now(), spec=spec, by=Owner("person:test")))
    assert house.runtime.engine.state.jobs[JobId("job-1")].attempts


def test_the_parts_of_a_file_are_planned_together(tmp_path: Path) -> None:
    """1. A file takes two hosts, calls a version proven, asks for a rollout, and declares a train. 2. Planned together:
    the train brings the version that the file calls proven and the one on trial, and its first stop waits, since the
    operations of the file have spent the buffer. 3. Nothing has changed. 4. A part that can't be: the whole is
    refused."""

    async def act(house: MaintenanceHouse) -> None:
        reboots = tuple(
            OperationAsk(spec=OperationSpec(kind=KindName("reboot"), scope=(f"host/{host}",)), key=host)
            for host in ("h4", "h5")
        )
        request = PlanRequest(
            operations=reboots,
            versions=(VersionRequest(component=NIC, version="2"),),
            rollouts=(RolloutRequest(component=ComponentName("bios"), version="3", canary=6, seed=1),),
            trains=(TrainRequest(train=WISH),),
        )
        before = house.runtime.engine.snapshot()
        plan = await house.post("/v1/plans", request, PlanReport)
        assert plan.operations is not None
        assert (plan.operations.waiting, plan.operations.at_once) == (0, "h[4-5]")
        assert [each.sentence for each in plan.versions] == ["nic 2 is the proven version"]
        (train,) = plan.trains
        assert [(row.component, row.units) for row in train.domains[0].due] == [("bios", 2), ("nic", 2)]
        assert train.waits is not None
        assert train.waits.token is Token.MAINTENANCE_BUFFER_SPENT
        assert {plan.operations.index, plan.rollouts[0].index, train.index} == {plan.index}
        alone = (await house.post("/v1/trains", ask(WISH, dry_run=True), TrainReport)).plan
        assert (alone.domains[0].due, alone.waits) == ((), None)
        assert house.runtime.engine.snapshot() == before
        strange = request.but(versions=(VersionRequest(component=ComponentName("nope"), version="2"),))
        status, problem = await house.refused("/v1/plans", strange)
        assert (status, problem.reason.token) == (404, Token.NO_SUCH_COMPONENT)

    during(tmp_path, act)


def test_a_train_from_plan_to_proof(tmp_path: Path) -> None:
    """1. A version is proven. 2. The plan of a train: three stops of two, two units to be upgraded at the first. 3. It
    is applied with the plan's index. 4. Its first stop begins at once; agents answer, and its proof counts two. 5. The
    same again: nothing changes. 6. Paused, paused again, resumed, aborted."""

    async def act(house: MaintenanceHouse) -> None:
        version = VersionRequest(component=NIC, version="2", reason="test")
        assert (await house.post("/v1/versions", version, MaintenanceReport)).changed
        assert not (await house.post("/v1/versions", version, MaintenanceReport)).changed
        plan = (await house.post("/v1/trains", ask(WISH, dry_run=True), TrainReport)).plan
        assert [(stop.hosts, stop.leaving) for stop in plan.domains] == [("h[0-1]", 2), ("h[2-3]", 2), ("h[4-5]", 2)]
        assert [(row.component, row.units) for row in plan.domains[0].due] == [("nic", 2)]
        assert (plan.waits, plan.every_s, plan.domains[0].expected_s) == (None, 7200.0, 60.0)
        assert plan.gpu_hours == round(6 * 8 / 60, 3)
        assert not house.runtime.engine.state.maintenance.trains
        checked = ask(WISH, check_index=plan.index, check_plan=plan.fingerprint)
        assert (await house.post("/v1/trains", checked, TrainReport)).changed
        while house.runtime.engine.state.maintenance.trains[WISH.name].stop is None:
            await house.service.news.wait()
        await house.let()
        detail = await house.get("/v1/trains/weekly", TrainDetail)
        assert (detail.train.state, detail.train.visited, detail.train.next_domain) == ("resting", 2, 2)
        assert (detail.proof.visited, detail.proof.units, len(detail.proof.missed)) == (2, 6, 4)
        assert [(domain.visited, domain.due) for domain in detail.domains] == [(2, 0), (0, 2), (0, 2)]
        again = await house.post("/v1/trains", ask(WISH.but(mode=None)), TrainReport)
        assert (again.changed, again.plan.spec.mode) == (False, "act")
        path = "/v1/trains/weekly"
        assert (await house.post(f"{path}/pause", WHY, MaintenanceReport)).changed
        assert not (await house.post(f"{path}/pause", WHY, MaintenanceReport)).changed
        (view,) = (await house.get("/v1/trains", Trains)).items
        assert view.paused is not None
        assert view.paused.token is Token.TRAIN_PAUSED
        assert (await house.post(f"{path}/resume", WHY, MaintenanceReport)).changed
        assert (await house.post(f"{path}/abort", WHY, MaintenanceReport)).changed
        assert not (await house.post(f"{path}/abort", WHY, MaintenanceReport)).changed
        assert (await house.refused(f"{path}/pause", WHY))[1].reason.token is Token.MAINTENANCE_ENDED

    during(tmp_path, act)


def test_a_train_nobody_said_more_of_only_observes(tmp_path: Path) -> None:
    """1. No mode: observe. 2. At its stop it writes what it would do. 3. Promoted, it acts."""

    async def act(house: MaintenanceHouse) -> None:
        await house.post("/v1/versions", VersionRequest(component=NIC, version="2", reason="t"), MaintenanceReport)
        await house.post("/v1/trains", ask(WISH.but(mode=None)), TrainReport)
        while not house.runtime.engine.state.maintenance.trains[WISH.name].advice:
            await house.service.news.wait()
        detail = await house.get("/v1/trains/weekly", TrainDetail)
        assert (detail.train.mode, detail.advice) == ("observe", ("h0: nic 2", "h1: nic 2"))
        assert house.runtime.engine.state.maintenance.requested == 0
        await house.post("/v1/trains", ask(WISH), TrainReport)
        while not house.runtime.engine.state.maintenance.requested:
            await house.service.news.wait()

    during(tmp_path, act)


BAD_TRAINS = [
    (WISH.but(name=TrainName("No Name")), 400, Token.BAD_REQUEST),
    (WISH.but(cluster=""), 400, Token.BAD_REQUEST),
    (WISH.but(hosts="h0"), 400, Token.BAD_REQUEST),
    (WISH.but(cluster="d"), 404, Token.NO_SUCH_RESOURCE),
    (WISH.but(kind="switch"), 404, Token.NO_SUCH_RESOURCE),
    (WISH.but(cluster="", hosts="h[0-9]"), 404, Token.NO_SUCH_HOST),
    (WISH.but(cluster="", hosts="h["), 400, Token.BAD_REQUEST),
    (WISH.but(domain_size=None), 400, Token.BAD_REQUEST),
    (WISH.but(domain_size=Share(hosts=0)), 400, Token.BAD_REQUEST),
    (WISH.but(domain_size=Share(hosts=4)), 409, Token.CAPACITY_NEVER),
    (WISH.but(cycle=Duration(-5)), 400, Token.BAD_REQUEST),
    (WISH.but(components=(ComponentName("nix"),)), 404, Token.NO_SUCH_COMPONENT),
    (WISH.but(cluster="", domain_size=None, domains=("h0", "h[0-1]")), 400, Token.BAD_REQUEST),
]


@pytest.mark.parametrize(("wish", "status", "token"), BAD_TRAINS, ids=[str(n) for n in range(len(BAD_TRAINS))])
def test_bad_trains(tmp_path: Path, wish: TrainWish, status: int, token: Token) -> None:
    """1. A train that makes no sense is refused with its reason. 2. Nothing has changed."""

    async def act(house: MaintenanceHouse) -> None:
        before = house.runtime.engine.snapshot()
        found, problem = await house.refused("/v1/trains", ask(wish))
        assert (found, problem.reason.token) == (status, token), problem.reason.sentence
        assert house.runtime.engine.snapshot() == before
        assert await house.missing("/v1/trains/weekly") == (404, "no-such-train")

    during(tmp_path, act)


def test_a_rollout_from_plan_to_stop(tmp_path: Path) -> None:
    """1. The plan draws stages by a seed. 2. Applied with it: the same hosts. 3. A second one of the component is
    refused. 4. A stage that is not held is passed by nobody. 5. Paused, resumed, stopped; a stopped one can't be
    resumed. 6. Held ones want attention."""

    async def act(house: MaintenanceHouse) -> None:
        asked = RolloutRequest(
            component=NIC, version="3", canary=1, stages=Percentages(percents=(50.0, 100.0)), reason="test"
        )
        plan = (await house.post("/v1/rollouts", asked.but(dry_run=True), RolloutReport)).plan
        assert [stage.hosts for stage in plan.stages] == [1, 3, 6]
        assert plan.trains == ()
        wanted = asked.but(seed=plan.seed, check_index=plan.index, check_plan=plan.fingerprint)
        report = await house.post("/v1/rollouts", wanted, RolloutReport)
        detail = await house.get(f"/v1/rollouts/{report.rollout}", RolloutDetail)
        assert [stage.new for stage in detail.stages] == [stage.new for stage in plan.stages]
        assert (detail.rollout.state, detail.rollout.carriers, detail.seed) == ("canary", 0, plan.seed)
        assert (await house.refused("/v1/rollouts", asked.but(version="4")))[1].reason.token is Token.ROLLOUT_ACTIVE
        path = f"/v1/rollouts/{report.rollout}"
        assert (await house.refused(f"{path}/pass", WHY))[1].reason.sentence.startswith("rollout-1 is canary; only a")
        for verb, changed in (("pause", True), ("pause", False), ("resume", True), ("resume", False), ("stop", True)):
            assert (await house.post(f"{path}/{verb}", WHY, MaintenanceReport)).changed is changed, verb
        assert (await house.refused(f"{path}/resume", WHY))[0] == 409
        assert [one.state for one in (await house.get("/v1/rollouts", Rollouts)).items] == ["stopped"]
        assert await house.missing("/v1/rollouts/rollout-9") == (404, "no-such-rollout")

    during(tmp_path, act)


BAD_ROLLOUTS: list[tuple[Value, int, Token]] = [
    (RolloutRequest(component=NIC, version="", reason="t"), 400, Token.VERSION_MISSING),
    (RolloutRequest(component=ComponentName("x"), version="1", reason="t"), 404, Token.NO_SUCH_COMPONENT),
    (RolloutRequest(component=NIC, version="1", hosts="h9", reason="t"), 404, Token.NO_SUCH_HOST),
    (RolloutRequest(component=NIC, version="1", canary=-1, reason="t"), 400, Token.BAD_REQUEST),
    (RolloutRequest(component=NIC, version="1", soak_s=-1.0, reason="t"), 400, Token.BAD_REQUEST),
    (RolloutRequest(component=NIC, version="1", seed=-1, reason="t"), 400, Token.BAD_REQUEST),
    (RolloutRequest(component=NIC, version="1"), 400, Token.BAD_REQUEST),
]


@pytest.mark.parametrize(("asked", "status", "token"), BAD_ROLLOUTS, ids=[str(n) for n in range(len(BAD_ROLLOUTS))])
def test_bad_rollouts(tmp_path: Path, asked: Value, status: int, token: Token) -> None:
    """1. A rollout that makes no sense is refused with its reason."""

    async def act(house: MaintenanceHouse) -> None:
        found, problem = await house.refused("/v1/rollouts", asked)
        assert (found, problem.reason.token) == (status, token), problem.reason.sentence

    during(tmp_path, act)


def test_a_gang_upgrade(tmp_path: Path) -> None:
    """1. A job runs on two hosts. 2. The plan: both hosts, no lost step. 3. Asked for; the job leaves. 4. Again: it is
    getting it already. 5. Unknown jobs, unknown components, work that disturbs nothing: refused."""

    async def act(house: MaintenanceHouse) -> None:
        await start_job(house)
        asked = GangRequest(job="llama", component=NIC, version="2", reason="test")
        plan = (await house.post("/v1/gang-upgrades", asked.but(dry_run=True), GangReport)).plan
        assert (plan.units, plan.gpus, plan.steps_lost, plan.waits) == (2, 16, 0, None)
        for other, token in (
            (asked.but(job="mistral"), Token.NO_SUCH_JOB),
            (asked.but(component=ComponentName("x")), Token.NO_SUCH_COMPONENT),
            (asked.but(component=ComponentName("exporter")), Token.SCOPE_MISMATCH),
        ):
            assert (await house.refused("/v1/gang-upgrades", other))[1].reason.token is token
        await house.post("/v1/gang-upgrades", asked, GangReport)
        (gang,) = (await house.get("/v1/maintenance", MaintenanceView)).gangs
        assert (gang.job, len(gang.operations)) == ("job-1", 2)
        assert (await house.refused("/v1/gang-upgrades", asked))[1].reason.token is Token.ROLLOUT_ACTIVE

    during(tmp_path, act)


def test_units_that_a_cycle_missed_want_attention(tmp_path: Path) -> None:
    """1. A train of one stop meets a failed unit. 2. The cycle ends without it. 3. The status says who and why."""

    async def act(house: MaintenanceHouse) -> None:
        from trainmaster.core.base.ids import HostId, SessionId
        from trainmaster.core.events import AgentDisconnected, TimePassed

        state = house.runtime.engine.state
        left = AgentDisconnected(at=house.runtime.now(), host=HostId("h1"), session=SessionId("s"), reached=())
        await house.submit(left)
        wish = WISH.but(cluster="", domain_size=None, domains=("h[0-1]",))
        while (wake := house.runtime.engine.next_wake()) is not None and state.hosts[
            HostId("h1")
        ].state.value == "ready":
            await house.submit(TimePassed(at=wake))
        await house.post("/v1/trains", ask(wish), TrainReport)
        while not house.runtime.engine.state.maintenance.trains[WISH.name].proofs:
            await house.service.news.wait()
        told = [reason.sentence for reason in (await house.get("/v1/status", StatusView)).needs_attention]
        assert any(text.startswith("train weekly: cycle 1 missed 1 of 2 units; h1: ") for text in told), told

    during(tmp_path, act)
