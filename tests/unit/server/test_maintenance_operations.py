"""Operations by the API: asked for in batches, planned, refused with reasons, shown, taken back."""

from pathlib import Path

import pytest
from tests.unit.server.maintenance_house import MaintenanceHouse, during

from trainmaster.core.base.ids import ComponentName, HostId, KindName, OperationId, SessionId
from trainmaster.core.base.reasons import Token
from trainmaster.core.fleet.events import AgentDisconnected
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.live.server.maintenance_resources import (
    CapacityView,
    MaintenanceChange,
    MaintenanceReport,
    MaintenanceView,
    OperationAsk,
    OperationDetail,
    Operations,
    OperationsReport,
    OperationsRequest,
    Visits,
)
from trainmaster.live.server.resources import ChangeReport, Hosts, HostsChange, HostView, StatusView

PATH = "/v1/operations"


def upgrade(host: str, component: str = "nic", version: str = "2", **more: object) -> OperationSpec:
    scope = f"host/{host}"
    return OperationSpec(scope=(scope,), component=ComponentName(component), version=version, **more)  # type: ignore[arg-type]


def asks(*specs: OperationSpec, keys: tuple[str, ...] = (), **more: object) -> OperationsRequest:
    named = keys or ("",) * len(specs)
    operations = tuple(OperationAsk(spec=spec, key=key) for spec, key in zip(specs, named, strict=True))
    return OperationsRequest(operations=operations, reason="test", **more)  # type: ignore[arg-type]


def test_an_upgrade_from_request_to_done(tmp_path: Path) -> None:
    """1. An upgrade is asked for. 2. While its step runs: the operation, the visit, the host and the summary say so.
    3. The agent answers. 4. It is done, the version is known, and the operation is still found."""

    async def act(house: MaintenanceHouse) -> None:
        report = await house.post(PATH, asks(upgrade("h1")), OperationsReport)
        assert [(item.operation, item.state, item.known) for item in report.items] == [("op-1", "running", False)]
        detail = await house.get(f"{PATH}/op-1", OperationDetail)
        assert (detail.executor, detail.effect is not None, detail.steps[0].name) == ("h1", True, "install")
        assert detail.operation.by == "person:kim"
        assert [chapter.end for chapter in detail.history] == ["admitted", "draining", "running"]
        visits = await house.get("/v1/visits", Visits)
        assert [(visit.unit, visit.phase, visit.current) for visit in visits.items] == [("h1", "applying", "op-1")]
        host = await house.get("/v1/hosts/h1", HostView)
        assert (host.state, host.visit) == ("out-planned", visits.items[0])
        summary = await house.get("/v1/maintenance", MaintenanceView)
        assert (summary.live, summary.visits, summary.requested) == ({"running": 1}, {"applying": 1}, 1)
        assert summary.capacity.books[0].out_planned == 1
        await house.let()
        detail = await house.get(f"{PATH}/op-1", OperationDetail)
        assert (detail.operation.state, detail.observed, detail.operation.reason) == ("done", "2", None)
        story = ["admitted", "draining", "running", "verifying", "done"]
        assert [chapter.end for chapter in detail.history] == story
        assert (await house.get("/v1/hosts/h1", HostView)).versions == {"nic": "2"}
        assert (await house.get("/v1/hosts", Hosts)).items[1].versions == {}
        account = (await house.get("/v1/capacity", CapacityView)).account
        assert account.books[0].out_planned == 0

    during(tmp_path, act)


def test_a_batch_is_one_answer_and_keys_make_it_safe_to_ask_again(tmp_path: Path) -> None:
    """1. Six operations with keys in one request: two take the buffer, the others wait in line, each with why. 2. The
    same request again: the same ids, nothing new. 3. A key with another content is refused, with the whole batch."""

    async def act(house: MaintenanceHouse) -> None:
        specs = [upgrade(f"h{number}") for number in range(6)]
        keys = tuple(f"k{number}" for number in range(6))
        report = await house.post(PATH, asks(*specs, keys=keys), OperationsReport)
        assert [item.state for item in report.items] == ["running"] * 2 + ["requested"] * 4
        tokens = [item.reason.token for item in report.items[2:] if item.reason is not None]
        assert tokens == [Token.MAINTENANCE_BUFFER_SPENT] * 4
        again = await house.post(PATH, asks(*specs, keys=keys), OperationsReport)
        assert [item.operation for item in again.items] == [item.operation for item in report.items]
        assert all(item.known for item in again.items)
        assert again.index == report.index
        other = asks(upgrade("h0", version="9"), upgrade("h1"), keys=("k0", "new"))
        status, problem = await house.refused(PATH, other)
        assert (status, problem.reason.token) == (409, Token.KEY_TAKEN)
        listed = await house.get(PATH, Operations, limit=3)
        assert (len(listed.items), listed.total) == (3, 6)
        assert [one.id for one in (await house.get(PATH, Operations, host="h4")).items] == ["op-5"]
        assert (await house.get(PATH, Operations, state="running")).total == 2
        waiting = (await house.get(f"{PATH}/op-5", OperationDetail)).operation.reason
        assert waiting is not None
        assert "; out: h0 (policy:maintenance: op-1 (upgrade " in waiting.sentence
        await house.let()
        again = await house.post(PATH, asks(*specs, keys=keys), OperationsReport)
        assert {item.state for item in again.items} == {"done"}

    during(tmp_path, act)


def test_order_within_a_batch(tmp_path: Path) -> None:
    """1. The second comes after the key of the first. 2. It waits for it by id. 3. What would come after itself, or
    after a later one, cannot be said."""

    async def act(house: MaintenanceHouse) -> None:
        first, second = upgrade("h0"), upgrade("h1", after=("a",))
        report = await house.post(PATH, asks(first, second, keys=("a", "b")), OperationsReport)
        detail = await house.get(f"{PATH}/{report.items[1].operation}", OperationDetail)
        assert detail.after == (report.items[0].operation,)
        assert detail.operation.reason is not None
        assert detail.operation.reason.token is Token.WAITS_FOR_OPERATION
        for keys, after in ((("c", "d"), ("d", "")), (("e", "f"), ("e", "e"))):
            bad = asks(upgrade("h2", after=after[:1]), upgrade("h3"), keys=keys)
            status, problem = await house.refused(PATH, bad)
            assert (status, problem.reason.token) == (404, Token.NO_SUCH_OPERATION)

    during(tmp_path, act)


BAD = [
    (upgrade("h9"), 404, Token.NO_SUCH_RESOURCE),
    (upgrade("h1", component="nick"), 404, Token.NO_SUCH_COMPONENT),
    (upgrade("h1", component=""), 400, Token.BAD_REQUEST),
    (upgrade("h1", version=""), 400, Token.VERSION_MISSING),
    (upgrade("h1", version="../../etc"), 400, Token.VERSION_MISSING),
    (upgrade("h1", version="a b"), 400, Token.VERSION_MISSING),
    (OperationSpec(kind=KindName("dance"), scope=("host/h1",)), 404, Token.NO_SUCH_KIND),
    (OperationSpec(kind=KindName("reboot"), scope=("host/h1",), version="2"), 400, Token.BAD_REQUEST),
    (OperationSpec(kind=KindName("reboot"), scope=()), 404, Token.NO_SUCH_RESOURCE),
    (OperationSpec(kind=KindName("reboot"), scope=("rack/r0",)), 400, Token.SCOPE_MISMATCH),
    (OperationSpec(kind=KindName("reboot"), scope=("host/h0", "host/h1")), 400, Token.SCOPE_MISMATCH),
    (OperationSpec(kind=KindName("rack-look"), scope=("host/h0",)), 400, Token.SCOPE_MISMATCH),
    (OperationSpec(kind=KindName("rack-power"), scope=("rack/r0",)), 409, Token.NO_CONTROLLER),
    (upgrade("h1", after=(OperationId("op-77"),)), 404, Token.NO_SUCH_OPERATION),
    (upgrade("h1", deadline=1), 400, Token.BAD_REQUEST),
    (upgrade("h1", not_before=2**53), 400, Token.BAD_REQUEST),
]


@pytest.mark.parametrize(("spec", "status", "token"), BAD, ids=[f"{token}-{n}" for n, (_, _, token) in enumerate(BAD)])
def test_bad_operations(tmp_path: Path, spec: OperationSpec, status: int, token: Token) -> None:
    """1. A good operation, then a bad one, in one request. 2. Refused, with the token and the place. 3. The good one
    was not asked for either. 4. The plan of the same shows both."""

    async def act(house: MaintenanceHouse) -> None:
        before = house.runtime.engine.snapshot()
        found, problem = await house.refused(PATH, asks(upgrade("h0"), spec))
        assert (found, problem.reason.token) == (status, token)
        assert problem.reason.sentence.startswith("operation 2 of 2: ")
        plan = (await house.post(PATH, asks(upgrade("h0"), spec, dry_run=True), OperationsReport)).plan
        assert plan is not None
        assert [item.refused.token if item.refused else None for item in plan.items] == [None, token]
        assert house.runtime.engine.snapshot() == before

    during(tmp_path, act)


def test_too_much_at_once_can_never_be(tmp_path: Path) -> None:
    """1. Work on a rack that disturbs nothing. 2. Work that takes all six hosts of the pod: never, whoever is back."""

    async def act(house: MaintenanceHouse) -> None:
        look = OperationSpec(kind=KindName("rack-look"), scope=("rack/r0",))
        assert (await house.post(PATH, asks(look), OperationsReport)).items[0].state == "running"
        status, problem = await house.refused(PATH, asks(OperationSpec(kind=KindName("pod-check"), scope=("pod/p",))))
        assert (status, problem.reason.token) == (409, Token.CAPACITY_NEVER)
        assert problem.reason.numbers["wanted"] == 6

    during(tmp_path, act)


def test_what_is_no_request_at_all(tmp_path: Path) -> None:
    """1. No JSON, unknown fields, none or too many operations, no reason, a viewer. 2. Each is refused, at no cost."""

    async def act(house: MaintenanceHouse) -> None:
        before = house.runtime.engine.snapshot()
        many = asks(*([upgrade("h0")] * 1001))
        silent = asks(upgrade("h0")).but(reason=" ")
        for body in (b"{", b'{"operations": [], "reason": "x"}', b'{"operation": []}', many, silent):
            status, problem = await house.refused(PATH, body)
            assert (status, problem.reason.token) == (400, Token.BAD_REQUEST)
        assert (await house.refused(PATH, asks(upgrade("h0")), role="viewer"))[0] == 403
        assert await house.missing(f"{PATH}/op-1") == (404, "no-such-operation")
        assert await house.missing(f"{PATH}?state=odd") == (400, "bad-request")
        assert await house.missing(f"{PATH}?host=h77") == (404, "no-such-host")
        assert house.runtime.engine.snapshot() == before

    during(tmp_path, act)


def test_a_list_of_a_train_that_is_not_there(tmp_path: Path) -> None:
    """Operations of a train or a rollout that nobody has declared: that is said, and no empty list shown."""

    async def act(house: MaintenanceHouse) -> None:
        assert await house.missing(f"{PATH}?train=nope") == (404, "no-such-train")
        assert await house.missing(f"{PATH}?rollout=nope") == (404, "no-such-rollout")
        assert (await house.get(PATH, Operations)).total == 0

    during(tmp_path, act)


def test_a_plan_is_carried_out_only_while_it_holds(tmp_path: Path) -> None:
    """1. A plan. 2. The log goes on with something else: the fingerprint carries it, the index alone does not. 3. The
    buffer is taken by others: it would wait now, so it is refused as another plan."""

    async def act(house: MaintenanceHouse) -> None:
        plan = (await house.post(PATH, asks(upgrade("h0"), dry_run=True), OperationsReport)).plan
        assert plan is not None
        assert (plan.units, plan.hosts, plan.gpus, plan.waiting, plan.expected_s) == (1, "h0", 8, 0, 60.0)
        assert (plan.capacity[0].taken_before, plan.capacity[0].taken_after, plan.capacity[0].most) == (0, 1, 2)
        await house.post(PATH, asks(OperationSpec(kind=KindName("probe"), scope=("host/h5",))), OperationsReport)
        held = asks(upgrade("h0"), check_index=plan.index)
        status, problem = await house.refused(PATH, held)
        assert (status, problem.reason.token) == (409, Token.WORLD_MOVED)
        carried = await house.post(PATH, held.but(check_plan=plan.fingerprint), OperationsReport)
        assert carried.items[0].state == "running"
        plan = (await house.post(PATH, asks(upgrade("h1"), dry_run=True), OperationsReport)).plan
        assert plan is not None
        await house.post(PATH, asks(upgrade("h2")), OperationsReport)
        late = asks(upgrade("h1"), check_index=plan.index, check_plan=plan.fingerprint)
        status, problem = await house.refused(PATH, late)
        assert (status, problem.reason.token) == (409, Token.WORLD_MOVED)

    during(tmp_path, act)


def test_cancelling(tmp_path: Path) -> None:
    """1. One that waits is cancelled; again: refused, it has ended. 2. One that runs ends its step first; asked again,
    nothing changes. 3. An unknown one is not found."""

    async def act(house: MaintenanceHouse) -> None:
        await house.post(PATH, asks(*(upgrade(f"h{number}") for number in range(3))), OperationsReport)
        why = MaintenanceChange(reason="no need")
        dry = await house.post(f"{PATH}/op-3/cancel", why.but(dry_run=True), MaintenanceReport)
        assert (dry.changed, (await house.get(f"{PATH}/op-3", OperationDetail)).operation.state) == (True, "requested")
        assert (await house.post(f"{PATH}/op-3/cancel", why, MaintenanceReport)).changed
        assert (await house.refused(f"{PATH}/op-3/cancel", why))[0] == 409
        asked = await house.post(f"{PATH}/op-1/cancel", why, MaintenanceReport)
        told = "op-1 is asked to end: its present step ends first, then what it did stays as it is, for it has no undo"
        assert (asked.changed, asked.sentence) == (True, told)
        assert not (await house.post(f"{PATH}/op-1/cancel", why, MaintenanceReport)).changed
        ending = (await house.get(f"{PATH}/op-1", OperationDetail)).operation
        assert ending.state == "running"
        assert ending.reason is not None
        assert ending.reason.sentence.startswith("it is asked to end (")
        assert "no need" in ending.reason.sentence
        assert (await house.refused(f"{PATH}/op-9/cancel", why))[1].reason.token is Token.NO_SUCH_OPERATION
        await house.let()
        states = [one.state for one in (await house.get(PATH, Operations, state="ended")).items]
        assert sorted(states) == ["cancelled", "cancelled", "done"]

    during(tmp_path, act)


def test_a_failed_undo_wants_a_person(tmp_path: Path) -> None:
    """1. The steps of an update fail, and so does its undo. 2. The status says so, with token and numbers. 3. The hold
    is lifted by a person, by the name of its owner; a hold of another policy is not. 4. The status is quiet again."""

    async def act(house: MaintenanceHouse) -> None:
        await house.post(PATH, asks(upgrade("h0", "kernel")), OperationsReport)
        for _ in ("apply", "undo"):
            (effect,) = house.runtime.engine.pending()
            now = house.runtime.now()
            await house.submit(
                EffectEnded(at=now, host=effect.hosts[0], effect=effect.id, outcome="failed", detail="x")
            )
        await house.let()
        (reason,) = (await house.get("/v1/status", StatusView)).needs_attention
        assert (reason.token, "held_s" in reason.numbers) == (Token.UNDO_FAILED, True)
        assert reason.sentence.startswith("h0 is held by policy:undo/op-1: op-1 could not be undone: x")
        body = HostsChange(hosts="h0", reason="looked at", owner="policy:maintenance")
        status, problem = await house.refused("/v1/hosts/resume", body)
        assert (status, problem.reason.token) == (403, Token.NOT_ALLOWED)
        await house.post("/v1/hosts/resume", body.but(owner="policy:undo/op-1"), ChangeReport)
        await house.let()
        view = await house.get("/v1/status", StatusView)
        assert (view.needs_attention, view.hosts_by_state) == ((), {"ready": 6})

    during(tmp_path, act)


def test_a_silent_agent_is_what_an_operation_waits_for(tmp_path: Path) -> None:
    """1. Steps are asked for. 2. The agent goes away. 3. The operation says that it waits for it, and for how long."""

    async def act(house: MaintenanceHouse) -> None:
        await house.post(PATH, asks(upgrade("h0")), OperationsReport)
        now = house.runtime.now()
        await house.submit(AgentDisconnected(at=now, host=HostId("h0"), session=SessionId("s"), reached=()))
        view = (await house.get(f"{PATH}/op-1", OperationDetail)).operation
        assert (view.state, view.reason is not None) == ("running", True)
        assert view.reason is not None
        assert (view.reason.token, view.reason.numbers["away"]) == (Token.WAITING_FOR_AGENTS, 1)
        assert view.reason.sentence.startswith("the agent of h0 is not connected for ")

    during(tmp_path, act)


def test_an_old_operation_wants_attention(tmp_path: Path) -> None:
    """1. An operation waits for its time. 2. The status says nothing. 3. A day and an hour later it does, with why."""

    async def act(house: MaintenanceHouse) -> None:
        now = house.runtime.now()
        far = upgrade("h0", not_before=now + 72 * 3_600_000_000)
        await house.post(PATH, asks(far), OperationsReport)
        assert (await house.get("/v1/status", StatusView)).needs_attention == ()
        operation = house.runtime.engine.state.maintenance.operations[OperationId("op-1")]
        operation.requested_at -= 25 * 3_600_000_000  # type: ignore[assignment]
        (reason,) = (await house.get("/v1/status", StatusView)).needs_attention
        assert reason.token is Token.NOT_BEFORE
        assert reason.sentence.startswith("op-1: not before its time")

    during(tmp_path, act)
