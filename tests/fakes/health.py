"""A small world of health to answer with: one bad host, one that is watched, one that nobody can see."""

from typing import Any

from tests.fakes.api import AT, FakeApi
from trainmaster.core.base.ids import CaseId, HostId, OperationId, Owner, PoolName, RmaId
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.base.time import Instant
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender.record import Incident, Tenancy
from trainmaster.core.health.offender.rma import Bundle
from trainmaster.core.health.part import Part
from trainmaster.core.health.words import Remedy, Verdict
from trainmaster.live.server.health_resources import (
    Cases,
    CaseView,
    HealthHosts,
    HealthView,
    HostHealth,
    HostVerdict,
    PoolView,
    RmaDetail,
    Rmas,
    RmaView,
    StandingView,
    TryView,
)
from trainmaster.live.server.resources import History

GPU = "gpu 0000:1b:00"
LOST = Finding(
    unit=GPU,
    verdict=Verdict.BAD,
    remedy=Remedy.REBOOT,
    rule="xid-79",
    summary="fell off the bus",
    evidence=("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",),
    count=3,
    next_evidence=("is the slot in lspci?",),
)
FLAPS = Finding(
    unit="port mlx5_2", verdict=Verdict.WATCH, remedy=Remedy.NONE, rule="link-flap", summary="went down twice"
)


def ago(seconds: int) -> Instant:
    return Instant(AT - seconds * 1_000_000)


def verdict(name: str, answer: str = "ok", **more: Any) -> HostVerdict:
    view = HostVerdict(
        host=HostId(name),
        verdict=answer,
        remedy="none",
        sentence="no probe sees a fault",
        unit="host",
        pool=PoolName("gpu"),
        mode="act",
        case=None,
        case_reason="",
        since=None,
        acknowledged_by=None,
        standings=(),
    )
    return view.but(**more)


def standing(finding: Finding, seconds: int) -> StandingView:
    return StandingView(
        finding=finding,
        probe="kernel-log",
        since=ago(seconds),
        last=ago(5),
        acknowledged_by=None,
        acknowledged_until=None,
        acknowledged_why="",
    )


BAD = verdict(
    "gpu-5",
    "bad",
    remedy="reboot",
    sentence=LOST.summary,
    unit=GPU,
    case=CaseId("case-7"),
    since=ago(300),
    standings=(standing(LOST, 300),),
)
WATCHED = verdict(
    "gpu-1",
    "watch",
    sentence=FLAPS.summary,
    unit=FLAPS.unit,
    since=ago(7200),
    acknowledged_by=Owner("person:lee"),
    standings=(
        standing(FLAPS, 7200).but(
            acknowledged_by=Owner("person:lee"), acknowledged_until=ago(-86_400), acknowledged_why="cable is ordered"
        ),
    ),
)
BLIND = verdict("gpu-8", "unknown", sentence="its agent is away")
CASE = CaseView(
    id=CaseId("case-7"),
    host=HostId("gpu-5"),
    unit=GPU,
    rule="xid-79",
    remedy="reboot",
    state="remedy",
    since=ago(60),
    opened_at=ago(300),
    reason=because(Token.REMEDY_RUNS, "op-9: reboot, try 1 of 2"),
    operation=OperationId("op-9"),
    tries=(
        TryView(at=ago(280), remedy="reset-gpu", operation=OperationId("op-8"), outcome="failed"),
        TryView(at=ago(60), remedy="reboot", operation=OperationId("op-9"), outcome="running"),
    ),
    rma=None,
    closed_how="",
    findings=(LOST,),
    story=(),
)
POOL = PoolView(
    name=PoolName("gpu"),
    mode="act",
    hosts=8,
    out=1,
    level_most=1,
    taken=1,
    rate_most=2,
    rate_window_s=3600.0,
    tripped=True,
    reason=because(Token.BREAKER_TRIPPED, "1 of 8 hosts of gpu are out by health, and 1 may be"),
    cases=1,
)
FLEET = HealthView(
    index=900,
    at=AT,
    verdicts={"ok": 5, "bad": 1, "watch": 1, "unknown": 1},
    pools=(POOL,),
    cases={"remedy": 1},
    unacknowledged=2,
    lemons=(),
    rmas=1,
)
PART = Part(kind="gpu", slot=GPU, serial="GPU-77", model="H200")
INCIDENT = Incident(
    at=ago(300),
    kind="verdict",
    host=HostId("gpu-5"),
    unit=GPU,
    rule="xid-79",
    verdict=Verdict.BAD,
    remedy=Remedy.REBOOT,
    case=CaseId("case-7"),
)
RMA = RmaView(
    id=RmaId("rma-3"),
    host=HostId("gpu-5"),
    unit=GPU,
    serial="GPU-77",
    model="H200",
    state="open",
    opened_at=ago(86_400),
    by=Owner("person:lee"),
    reason="fails in every slot",
    case=None,
    closed_at=None,
    outcome=None,
    closed_why="",
    successor="",
)


def of_host(view: HostVerdict, **more: Any) -> HostHealth:
    found = HostHealth(
        index=900, at=AT, verdict=view, cases=(), chassis="", place="", incidents=(), parts=(), lemon=None, rmas=()
    )
    return found.but(**more)


def health(api: FakeApi) -> None:
    """Fills the server with it."""
    api.answer("GET", "/v1/health", FLEET)
    api.answer("GET", "/v1/health/hosts", HealthHosts(index=900, at=AT, items=(BAD, BLIND, WATCHED)))
    api.answer("GET", "/v1/health/cases", Cases(index=900, at=AT, items=(CASE,)))
    tenancy = Tenancy(host=HostId("gpu-5"), chassis="SN-5", part=PART, since=ago(90_000))
    whole = of_host(
        BAD, cases=(CASE,), chassis="SN-5", place="r1/5", incidents=(INCIDENT,), parts=(tenancy,), rmas=(RMA,)
    )
    api.answer("GET", "/v1/hosts/gpu-5/health", whole)
    story = Chapter(at=ago(200_000), start="verifying", end="ready", cause="verification passed")
    api.answer("GET", "/v1/hosts/gpu-5/history", History(id="gpu-5", items=(story,)))
    api.answer("GET", "/v1/rmas", Rmas(index=900, at=AT, items=(RMA,)))
    bundle = Bundle(
        rma=RMA.id,
        opened_at=RMA.opened_at,
        reason=RMA.reason,
        host=RMA.host,
        chassis="SN-5",
        unit=GPU,
        serial=RMA.serial,
        model=RMA.model,
        tenancies=(tenancy,),
        part_incidents=(INCIDENT,),
        part_older=0,
        slot_incidents=(INCIDENT,),
        slot_older=0,
        findings=(LOST,),
        former_returns=(),
        outcome=None,
        successor="",
    )
    detail = RmaDetail(index=900, at=AT, rma=RMA, bundle=bundle, advice="exchange GPU-77, and send it in")
    api.answer("GET", "/v1/rmas/rma-3", detail)
