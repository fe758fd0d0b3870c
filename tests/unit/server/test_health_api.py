"""Health over the API: what stands against hosts, what is done, and what a person decides."""

from pathlib import Path

import pytest
from tests.unit.server.maintenance_house import ME, MaintenanceHouse, during

from trainmaster.cli.health_lines import host_lines
from trainmaster.core.base.ids import BootId, HostId, KindName, PoolName
from trainmaster.core.health.conduct import HealthConduct, PoolConduct, Rung
from trainmaster.core.health.events import HealthConductDeclared, HealthReported, PartsSeen
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.part import Part
from trainmaster.core.health.words import Remedy, Verdict
from trainmaster.live.server.health_resources import (
    BreakerChange,
    Cases,
    CaseView,
    HealthChange,
    HealthHosts,
    HealthView,
    HostHealth,
    ModeChange,
    RmaClose,
    RmaDetail,
    RmaReport,
    RmaRequest,
    Rmas,
)
from trainmaster.live.server.maintenance_resources import MaintenanceReport
from trainmaster.live.server.resources import ChangeReport, HostView, StatusView

H1, GPU, POOL = HostId("h1"), "gpu 0000:1b:00", PoolName("main")
CONDUCT = HealthConduct(
    pools=(PoolConduct(name=POOL, level_hosts=2),), ladder=(Rung(remedy=Remedy.REBOOT, kind=KindName("reboot")),)
)


def bad(remedy: Remedy = Remedy.REBOOT) -> Finding:
    return Finding(
        unit=GPU, verdict=Verdict.BAD, remedy=remedy, rule="xid-79", summary="fell off the bus", evidence=("Xid 79",)
    )


def report(house: MaintenanceHouse, host: HostId, *findings: Finding) -> HealthReported:
    return HealthReported(
        at=house.runtime.now(), host=host, boot=BootId("b1"), probe="kernel-log", findings=findings
    )  # fmt: skip


async def declared(house: MaintenanceHouse) -> None:
    now = house.runtime.now()
    await house.submit(HealthConductDeclared(at=now, conduct=CONDUCT, by=ME))
    for host in house.hosts:
        part = Part(kind="gpu", slot=GPU, serial=f"GPU-{host}", model="H200")
        await house.submit(PartsSeen(at=now, host=host, boot=BootId("b1"), chassis=f"SN-{host}", parts=(part,)))


def test_a_fault_is_shown_advised_acted_on_and_closed(tmp_path: Path) -> None:
    """1. All is well. 2. A host is bad: its pool is observed, and the advice says what would be done. 3. The pool is
    promoted: an operation repairs the host. 4. The host is back and the case closed; its history stays."""

    async def act(house: MaintenanceHouse) -> None:
        await declared(house)
        view = await house.get("/v1/health", HealthView)
        assert (view.verdicts, view.cases, view.unacknowledged) == ({"ok": 6}, {}, 0)
        assert (await house.get("/v1/health/hosts", HealthHosts)).items == ()

        await house.submit(report(house, H1, bad()))
        [item] = (await house.get("/v1/health/hosts", HealthHosts)).items
        assert (item.host, item.verdict, item.remedy, item.unit, item.mode) == (H1, "bad", "reboot", GPU, "observe")
        [case] = (await house.get("/v1/health/cases", Cases)).items
        assert (case.state, case.host, case.tries) == ("observed", H1, ())
        assert "would drain h1 and run reboot" in case.reason.sentence
        assert any(
            "case-1" in reason.sentence for reason in (await house.get("/v1/status", StatusView)).needs_attention
        )

        dry = await house.post(f"/v1/health/pools/{POOL}/mode", ModeChange(mode="act", reason="", dry_run=True),
                               MaintenanceReport)  # fmt: skip
        assert (dry.changed, dry.sentence) == (
            True, "health acts on main; hosts that it takes up at once, as the breaker allows: 1: h1"
        )  # fmt: skip
        await house.post(f"/v1/health/pools/{POOL}/mode", ModeChange(mode="act", reason="right"), MaintenanceReport)
        [case] = (await house.get("/v1/health/cases", Cases)).items
        assert (case.state, len(case.tries), case.tries[0].outcome) == ("remedy", 1, "running")
        assert (await house.get("/v1/health", HealthView)).pools[0].out == 1

    during(tmp_path, act)


def test_people_take_on_release_and_trip(tmp_path: Path) -> None:
    """1. A breaker that was tripped by hand keeps a bad host in. 2. Somebody takes it on: it is no longer new. 3. It is
    released: nothing stands, and the case is closed as released. 4. Releasing again changes nothing."""

    async def act(house: MaintenanceHouse) -> None:
        await declared(house)
        path = f"/v1/health/pools/{POOL}"
        await house.post(f"{path}/breaker", BreakerChange(tripped=True, reason="odd"), MaintenanceReport)
        await house.post(f"{path}/mode", ModeChange(mode="act", reason="x"), MaintenanceReport)
        await house.submit(report(house, H1, bad()))
        [case] = (await house.get("/v1/health/cases", Cases)).items
        assert (case.state, str(case.reason.token)) == ("waiting", "breaker-tripped")
        [item] = (await house.get("/v1/health/hosts", HealthHosts)).items
        assert item.case_reason == "tripped by person:kim: odd"
        assert host_lines(item) == [
            "health: bad, reboot (case-1): fell off the bus", "case-1: tripped by person:kim: odd",
        ]  # fmt: skip
        view = await house.get("/v1/health", HealthView)
        assert (view.pools[0].tripped, view.unacknowledged) == (True, 1)

        answer = await house.post("/v1/health/acknowledge", HealthChange(hosts="h1", reason="cable"), ChangeReport)
        assert answer.sentence == "1 of 1 host change"
        assert (await house.get("/v1/health", HealthView)).unacknowledged == 0
        [item] = (await house.get("/v1/health/hosts", HealthHosts)).items
        assert item.acknowledged_by == "person:kim"

        plan = await house.post("/v1/health/release", HealthChange(hosts="h[1-2]", reason="", dry_run=True),
                                ChangeReport)  # fmt: skip
        assert [(one.host, one.changed) for one in plan.items] == [("h1", True), ("h2", False)]
        await house.post("/v1/health/release", HealthChange(hosts="h1", reason="reseated"), ChangeReport)
        assert (await house.get("/v1/health/hosts", HealthHosts)).items == ()
        [closed] = (await house.get("/v1/health/cases", Cases, all="true")).items
        assert (closed.state, closed.closed_how) == ("closed", "released")
        assert (
            await house.post(f"{path}/breaker", BreakerChange(tripped=False, reason="fine"), MaintenanceReport)
        ).changed
        idle = await house.post(f"{path}/breaker", BreakerChange(tripped=False, reason="fine"), MaintenanceReport)
        assert (idle.changed, idle.sentence) == (False, "the breaker of main is not tripped, and counts no host")
        await house.submit(report(house, H1, bad()))
        assert (await house.get("/v1/health", HealthView)).pools[0].taken == 1
        anew = await house.post(f"{path}/breaker", BreakerChange(tripped=False, reason="anew"), MaintenanceReport)
        assert (anew.changed, anew.sentence) == (
            True, "health goes on with main; hosts that wait for it: 0; hosts taken lately that count no longer: 1",
        )  # fmt: skip
        assert (await house.get("/v1/health", HealthView)).pools[0].taken == 0
        await house.post("/v1/health/release", HealthChange(hosts="h1", reason="reseated"), ChangeReport)
        again = await house.post("/v1/health/release", HealthChange(hosts="h1", reason="x"), ChangeReport)
        assert not again.items[0].changed
        assert await house.get(f"/v1/health/cases/{closed.id}", CaseView) == closed

    during(tmp_path, act)


def test_parts_go_back(tmp_path: Path) -> None:
    """1. A part is sent back with what stands against it. 2. A second time is refused, as is a slot that is not there.
    3. It is closed, and that once."""

    async def act(house: MaintenanceHouse) -> None:
        await declared(house)
        await house.submit(report(house, H1, bad()))
        ask = RmaRequest(host=H1, unit=GPU, reason="fails in every slot")
        dry = await house.post("/v1/rmas", ask.but(dry_run=True), RmaReport)
        assert dry.sentence == (
            f"{GPU} of h1 (H200 GPU-h1) goes back; findings that stand against it: 1; "
            "h1 is taken out (is ready; no job runs on it) and held by policy:health until that is closed"
        )
        opened = await house.post("/v1/rmas", ask, RmaReport)
        assert opened.rma == "rma-1"
        detail = await house.get("/v1/rmas/rma-1", RmaDetail)
        assert (detail.rma.serial, detail.bundle.findings[0].rule) == ("GPU-h1", "xid-79")
        assert "exchange GPU-h1" in detail.advice
        [item] = (await house.get("/v1/health/hosts", HealthHosts)).items
        assert (item.verdict, item.remedy, item.case) == ("bad", "rma", "case-1")
        shown = await house.get("/v1/hosts/h1", HostView)
        assert [hold.owner for hold in shown.holds] == ["policy:health"]
        status, problem = await house.refused("/v1/rmas", ask)
        assert (status, str(problem.reason.token)) == (409, "rma-open")
        status, problem = await house.refused("/v1/rmas", ask.but(unit="gpu 0000:99:00"))
        assert (status, str(problem.reason.token)) == (409, "no-such-unit")
        close = RmaClose(outcome="no-fault-found", reason="the vendor's report")
        answer = await house.post("/v1/rmas/rma-1/close", close, RmaReport)
        assert answer.sentence == f"{GPU} of h1 is no-fault-found; h1 returns through verification"
        assert (await house.get("/v1/hosts/h1", HostView)).holds == ()
        assert (await house.get("/v1/health/cases", Cases)).items == ()
        status, problem = await house.refused("/v1/rmas/rma-1/close", close)
        assert (status, str(problem.reason.token)) == (409, "rma-closed")
        assert (await house.get("/v1/rmas", Rmas)).items == ()
        assert len((await house.get("/v1/rmas", Rmas, all="true")).items) == 1

    during(tmp_path, act)


def test_one_host_has_all_of_it(tmp_path: Path) -> None:

    async def act(house: MaintenanceHouse) -> None:
        await declared(house)
        await house.submit(report(house, H1, bad()))
        found = await house.get("/v1/hosts/h1/health", HostHealth)
        assert (found.chassis, found.place, found.verdict.verdict) == ("SN-h1", "r0/2", "bad")
        assert [one.part.serial for one in found.parts] == ["GPU-h1"]
        assert [(one.kind, one.rule) for one in found.incidents] == [("verdict", "xid-79")]
        assert (await house.get("/v1/hosts/h1", HostView)).state == "ready"

    during(tmp_path, act)


@pytest.mark.parametrize(
    ("path", "body", "status", "token"),
    [
        ("/v1/health/pools/none/mode", ModeChange(mode="act", reason="x"), 404, "no-such-pool"),
        ("/v1/health/pools/main/breaker", BreakerChange(tripped=True, reason=""), 400, "bad-request"),
        ("/v1/health/acknowledge", HealthChange(hosts="h9", reason="x"), 404, "no-such-host"),
        ("/v1/health/acknowledge", HealthChange(hosts="h1", reason="x", for_s=-1.0), 400, "bad-request"),
        ("/v1/health/release", HealthChange(hosts="h1", reason="x", for_s=5.0), 400, "bad-request"),
        ("/v1/rmas/rma-9/close", RmaClose(outcome="replaced", reason="x"), 404, "no-such-rma"),
        ("/v1/rmas", RmaRequest(host=HostId("h9"), unit="host", reason="x"), 404, "no-such-host"),
    ],
)
def test_what_is_refused(tmp_path: Path, path: str, body: object, status: int, token: str) -> None:

    async def act(house: MaintenanceHouse) -> None:
        await declared(house)
        found, problem = await house.refused(path, body)  # type: ignore[arg-type]
        assert (found, str(problem.reason.token)) == (status, token)
        assert await house.missing("/v1/health/cases/case-9") == (404, "no-such-case")
        assert (await house.refused(path, body, role="viewer"))[0] == 403  # type: ignore[arg-type]

    during(tmp_path, act)
