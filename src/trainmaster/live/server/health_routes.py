"""The routes of health: what stands against hosts, cases, pools, and parts that go back. See `health_resources.py`."""

from collections.abc import Awaitable, Callable
from typing import Final

from trainmaster.core.base.ids import CaseId, HostId, Owner, RmaId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import after, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.commands import HostPlanItem
from trainmaster.core.events import AnyEvent
from trainmaster.core.health import asked
from trainmaster.core.health.asked import plan_acknowledge, plan_release
from trainmaster.core.health.conduct import PoolConduct
from trainmaster.core.health.events import (
    BreakerSet,
    HealthAcknowledged,
    HealthModeSet,
    HealthReleased,
    RmaClosed,
    RmaOpened,
)
from trainmaster.core.state import ClusterState
from trainmaster.core.step import Step
from trainmaster.core.words import count_text
from trainmaster.live.server import health_views as views
from trainmaster.live.server.changes import asker, with_reason
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
from trainmaster.live.server.http import Call, Refusal, Route
from trainmaster.live.server.maintenance_resources import MaintenanceReport
from trainmaster.live.server.people import known_hosts
from trainmaster.live.server.resources import ChangeReport, HostChangeItem
from trainmaster.live.server.runtime import Runtime

ACKNOWLEDGED_MAX_S: Final = 366 * 86_400.0


class HealthHostsQuery(Value):
    hosts: str = ""
    verdict: str = ""
    all: bool = False


class CasesQuery(Value):
    hosts: str = ""
    all: bool = False


class RmasQuery(Value):
    all: bool = False


# Looking


async def fleet(call: Call) -> HealthView:
    async with call.service.settled() as runtime:
        return views.health_view(runtime.engine.glance(call.service.now()))


async def health_hosts(call: Call) -> HealthHosts:
    query: HealthHostsQuery = call.query
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        state = step.state
        wanted = known_hosts(state, query.hosts) if query.hosts else tuple(state.hosts)
        items = views.verdicts(step, (state.hosts[name] for name in wanted), query.verdict, query.all)
        return HealthHosts(index=state.index, at=step.now, items=items)


async def cases(call: Call) -> Cases:
    query: CasesQuery = call.query
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        wanted = set(known_hosts(step.state, query.hosts)) if query.hosts else None
        return Cases(index=step.state.index, at=step.now, items=views.case_views(step, wanted, query.all))


async def case(call: Call) -> CaseView:
    name = CaseId(call.name("case"))
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        health = step.state.health
        found = health.cases.get(name) or next((one for one in health.closed if one.id == name), None)
        if found is None:
            raise Refusal(404, Token.NO_SUCH_CASE, f"no case has the id {name}, or it is long over")
        return views.case_view(step, found)


async def host_health(call: Call) -> HostHealth:
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        [name] = known_hosts(step.state, call.name("host"))[:1]
        return views.host_health(step, step.state.hosts[name])


# Changing hosts


async def acknowledge(call: Call) -> ChangeReport:
    body: HealthChange = call.body
    if body.for_s is not None and not 0 < body.for_s <= ACKNOWLEDGED_MAX_S:
        raise Refusal(400, Token.BAD_REQUEST, f"for_s must be more than 0 and at most a year, not {body.for_s:g}")
    by, now = asker(call), call.service.now()
    until = after(now, seconds(body.for_s)) if body.for_s is not None else None

    def event(names: tuple[HostId, ...]) -> AnyEvent:
        return HealthAcknowledged(at=now, hosts=names, by=by, reason=body.reason, until=until)

    return await _change_hosts(call, plan_acknowledge, event)


async def release(call: Call) -> ChangeReport:
    body: HealthChange = call.body
    if body.for_s is not None:
        raise Refusal(400, Token.BAD_REQUEST, "for_s is for acknowledgements; a release has no end")
    by, now = asker(call), call.service.now()
    return await _change_hosts(
        call, plan_release, lambda names: HealthReleased(at=now, hosts=names, by=by, reason=body.reason)
    )


Plan = Callable[[ClusterState, tuple[HostId, ...]], tuple[HostPlanItem, ...]]


async def _change_hosts(call: Call, plan: Plan, event: Callable[[tuple[HostId, ...]], AnyEvent]) -> ChangeReport:
    body: HealthChange = call.body
    with_reason(body.reason, body.dry_run)

    def decide(runtime: Runtime) -> ChangeReport:
        state = runtime.engine.state
        names = known_hosts(state, body.hosts)
        if not names:
            raise Refusal(400, Token.BAD_REQUEST, "the host list names no host")
        items = plan(state, names)
        touched = tuple(item.host for item in items if item.changed)
        index = state.index
        if touched and not body.dry_run:
            index = runtime.stage(event(touched)).index
        return ChangeReport(
            index=index,
            dry_run=body.dry_run,
            items=tuple(
                HostChangeItem(host=i.host, changed=i.changed, sentence=i.sentence, refused=i.refused, gpus=i.gpus)
                for i in items
            ),
            refused=sum(item.refused for item in items),
            sentence=f"{len(touched)} of {count_text(len(items), 'host')} change",
        )

    return await call.service.command(decide)


# Pools


def _pool(step: Step, name: str) -> PoolConduct:
    found = next((pool for pool in step.state.health.conduct.pools if pool.name == name), None)
    if found is None:
        known = ", ".join(pool.name for pool in step.state.health.conduct.pools) or "none"
        raise Refusal(404, Token.NO_SUCH_POOL, f"health has no pool {name}; pools: {known}")
    return found


async def _steer(
    call: Call, plan: Callable[[Step, PoolConduct, Owner], tuple[AnyEvent | None, str]]
) -> MaintenanceReport:
    body: ModeChange | BreakerChange = call.body
    with_reason(body.reason, body.dry_run)
    by, now = asker(call), call.service.now()

    def decide(runtime: Runtime) -> MaintenanceReport:
        step = runtime.engine.glance(now)
        event, sentence = plan(step, _pool(step, call.name("pool")), by)
        index = step.state.index
        if event is not None and not body.dry_run:
            index = runtime.stage(event).index
        return MaintenanceReport(index=index, dry_run=body.dry_run, changed=event is not None, sentence=sentence)

    return await call.service.command(decide)


async def set_mode(call: Call) -> MaintenanceReport:
    body: ModeChange = call.body

    def plan(step: Step, pool: PoolConduct, by: Owner) -> tuple[AnyEvent | None, str]:
        view = views.pool_view(step, pool)
        if view.mode == body.mode:
            return None, f"{pool.name} is set to {body.mode} already"
        event = HealthModeSet(at=step.now, pool=pool.name, mode=body.mode, by=by, reason=body.reason)
        return event, asked.mode_text(step, pool, body.mode)

    return await _steer(call, plan)


async def set_breaker(call: Call) -> MaintenanceReport:
    body: BreakerChange = call.body

    def plan(step: Step, pool: PoolConduct, by: Owner) -> tuple[AnyEvent | None, str]:
        known = step.state.health.breakers.get(pool.name)
        tripped = known is not None and known.tripped_at is not None
        by_hand = known is not None and known.by is not None
        if body.tripped and by_hand:
            return None, f"the breaker of {pool.name} is tripped already"
        if not body.tripped and not tripped and not views.pool_view(step, pool).taken:
            return None, f"the breaker of {pool.name} is not tripped, and counts no host"
        event = BreakerSet(at=step.now, pool=pool.name, tripped=body.tripped, by=by, reason=body.reason)
        return event, asked.breaker_text(step, pool, body.tripped)

    return await _steer(call, plan)


# Parts that go back


async def rmas(call: Call) -> Rmas:
    query: RmasQuery = call.query
    async with call.service.settled() as runtime:
        state = runtime.engine.state
        found = [views.rma_view(one) for one in state.health.rmas.values() if query.all or one.closed_at is None]
        return Rmas(index=state.index, at=call.service.now(), items=tuple(sorted(found, key=lambda one: one.opened_at)))


async def show_rma(call: Call) -> RmaDetail:
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        return views.rma_detail(step, _rma(step, call.name("rma")))


def _rma(step: Step, name: str) -> RmaId:
    if name not in step.state.health.rmas:
        raise Refusal(404, Token.NO_SUCH_RMA, f"no part was sent back as {name}")
    return RmaId(name)


async def open_rma(call: Call) -> RmaReport:
    body: RmaRequest = call.body
    with_reason(body.reason, body.dry_run)
    by, now = asker(call), call.service.now()

    def decide(runtime: Runtime) -> RmaReport:
        step = runtime.engine.glance(now)
        [name] = known_hosts(step.state, body.host)[:1]
        refused = asked.check_open(step.state, name, body.unit)
        if refused is not None:
            raise Refusal.of(409, refused)
        sentence = asked.open_text(step.state, name, body.unit)
        if body.dry_run:
            return RmaReport(index=step.state.index, dry_run=True, rma=None, sentence=sentence)
        entry = runtime.stage(RmaOpened(at=now, host=name, unit=body.unit, by=by, reason=body.reason))
        [newest] = list(runtime.engine.state.health.rmas)[-1:]
        return RmaReport(index=entry.index, dry_run=False, rma=newest, sentence=f"{newest}: {sentence}")

    return await call.service.command(decide)


async def close_rma(call: Call) -> RmaReport:
    body: RmaClose = call.body
    with_reason(body.reason, body.dry_run)
    by, now = asker(call), call.service.now()

    def decide(runtime: Runtime) -> RmaReport:
        step = runtime.engine.glance(now)
        name = _rma(step, call.name("rma"))
        refused = asked.check_close(step.state, name)
        if refused is not None:
            raise Refusal.of(409, refused)
        sentence, index = asked.close_text(step.state, name, body.outcome), step.state.index
        if not body.dry_run:
            index = runtime.stage(RmaClosed(at=now, rma=name, outcome=body.outcome, by=by, reason=body.reason)).index
        return RmaReport(index=index, dry_run=body.dry_run, rma=name, sentence=sentence)

    return await call.service.command(decide)


def _get(
    path: str,
    summary: str,
    handle: Callable[[Call], Awaitable[Value]],
    answer: type[Value],
    query: type[Value] | None = None,
) -> Route:
    return Route(
        method="GET",
        path=path,
        access="viewer",
        summary=summary,
        handle=handle,
        query=query,
        answer=answer,
        errors=(404,),
    )


def _post(
    path: str, summary: str, handle: Callable[[Call], Awaitable[Value]], body: type[Value], answer: type[Value]
) -> Route:
    return Route(
        method="POST",
        path=path,
        access="operator",
        summary=summary,
        handle=handle,
        body=body,
        answer=answer,
        errors=(404, 409, 507),
    )


ROUTES: Final = (
    _get("/v1/health", "One screen: verdicts, pools and their breakers, cases", fleet, HealthView),
    _get("/v1/health/hosts", "Hosts that are not ok, worst first", health_hosts, HealthHosts, HealthHostsQuery),
    _get("/v1/health/cases", "Faults that were taken up", cases, Cases, CasesQuery),
    _get("/v1/health/cases/{case}", "One case", case, CaseView),
    _get("/v1/hosts/{host}/health", "All that is known of the health of a host", host_health, HostHealth),
    _post("/v1/health/acknowledge", "Take on what stands against hosts", acknowledge, HealthChange, ChangeReport),
    _post("/v1/health/release", "Hosts are repaired: close their cases", release, HealthChange, ChangeReport),
    _post("/v1/health/pools/{pool}/mode", "Let health act on a pool, or only observe", set_mode, ModeChange,
          MaintenanceReport),
    _post("/v1/health/pools/{pool}/breaker", "Trip or reset a breaker", set_breaker, BreakerChange, MaintenanceReport),
    _get("/v1/rmas", "Parts that go back to their vendor", rmas, Rmas, RmasQuery),
    _get("/v1/rmas/{rma}", "One of them, with its evidence", show_rma, RmaDetail),
    _post("/v1/rmas", "Send a part back", open_rma, RmaRequest, RmaReport),
    _post("/v1/rmas/{rma}/close", "Say how it ended", close_rma, RmaClose, RmaReport),
)  # fmt: skip
