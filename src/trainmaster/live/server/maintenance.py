"""The routes that show maintenance: operations, visits, trains, rollouts, capacity. None changes anything; what does is
in `maintenance_changes.py`."""

from typing import Annotated, Literal, get_args

import msgspec

from trainmaster.core.base.ids import OperationId, RolloutId, TrainName
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.rollout import Rollout
from trainmaster.core.maintenance.train import Train
from trainmaster.core.step import Step
from trainmaster.live.server import maintenance_views as views
from trainmaster.live.server.http import Call, Refusal, Route
from trainmaster.live.server.maintenance_resources import (
    OPERATIONS_MAX,
    CapacityView,
    MaintenanceView,
    OperationDetail,
    Operations,
    RolloutDetail,
    Rollouts,
    TrainDetail,
    Trains,
    Visits,
)
from trainmaster.live.server.people import known_hosts

StateWord = Literal[
    "", "live", "ended", "requested", "admitted", "draining", "running", "verifying", "done", "failed", "off-boarded",
    "cancelled",
]  # fmt: skip
assert len(get_args(StateWord)) == 12


class OperationsQuery(Value):
    state: StateWord = ""
    """One of them; "live" and "ended" stand for several."""
    host: str = ""
    train: str = ""
    rollout: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=OPERATIONS_MAX)] = 100


class VisitsQuery(Value):
    hosts: str = ""


def known_train(step: Step, name: str) -> Train:
    train = step.state.maintenance.trains.get(TrainName(name))
    if train is None:
        raise Refusal(404, Token.NO_SUCH_TRAIN, f"no maintenance train is named {name}")
    return train


def known_rollout(step: Step, name: str) -> Rollout:
    rollout = step.state.maintenance.rollouts.get(RolloutId(name))
    if rollout is None:
        raise Refusal(404, Token.NO_SUCH_ROLLOUT, f"no rollout has the id {name}")
    return rollout


async def maintenance(call: Call) -> MaintenanceView:
    async with call.service.settled() as runtime:
        return views.maintenance_view(runtime.engine.glance(call.service.now()))


async def operations(call: Call) -> Operations:
    query: OperationsQuery = call.query
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        host = known_hosts(step.state, query.host)[0] if query.host else None
        if query.train:
            known_train(step, query.train)
        if query.rollout:
            known_rollout(step, query.rollout)
        items, total = views.operations(step, query.state, host, query.train, query.rollout, query.limit)
        return Operations(index=step.state.index, at=step.now, items=items, total=total)


async def operation(call: Call) -> OperationDetail:
    name = OperationId(call.name("operation"))
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        live = step.state.maintenance.operations.get(name)
        if live is not None:
            return views.operation_detail(step, live)
        ended = views.find_ended(step, name)
        if ended is None:
            raise Refusal(404, Token.NO_SUCH_OPERATION, f"no operation has the id {name}")
        return views.ended_detail(step, ended)


async def visits(call: Call) -> Visits:
    query: VisitsQuery = call.query
    async with call.service.settled() as runtime:
        state = runtime.engine.state
        wanted = set(known_hosts(state, query.hosts)) if query.hosts else None
        found = [visit for unit, visit in state.maintenance.visits.items() if wanted is None or unit in wanted]
        found.sort(key=lambda visit: (visit.opened_at, state.hosts[visit.unit].position))
        items = tuple(views.visit_view(visit) for visit in found)
        return Visits(index=state.index, at=call.service.now(), items=items)


async def capacity(call: Call) -> CapacityView:
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        account = step.derived.planner.ledger.account()
        policy = step.state.maintenance.capacity
        return CapacityView(index=step.state.index, at=step.now, policy=policy, account=account)


async def trains(call: Call) -> Trains:
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        found = sorted(step.state.maintenance.trains.items())
        items = tuple(views.train_view(step, train) for _, train in found)
        return Trains(index=step.state.index, at=step.now, items=items)


async def train(call: Call) -> TrainDetail:
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        return views.train_detail(step, known_train(step, call.name("train")))


async def rollouts(call: Call) -> Rollouts:
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        found = views.in_order(step.state.maintenance.rollouts.values())
        items = tuple(views.rollout_view(step, one) for one in found)
        return Rollouts(index=step.state.index, at=step.now, items=items)


async def rollout(call: Call) -> RolloutDetail:
    async with call.service.settled() as runtime:
        step = runtime.engine.glance(call.service.now())
        return views.rollout_detail(step, known_rollout(step, call.name("rollout")))


ROUTES = (
    Route(
        method="GET",
        path="/v1/maintenance",
        access="viewer",
        summary="One screen of maintenance: counts, waits, capacity, trains, rollouts",
        handle=maintenance,
        answer=MaintenanceView,
    ),
    Route(
        method="GET",
        path="/v1/operations",
        access="viewer",
        summary="Operations that live, in the order of their places, then ended ones, newest first",
        handle=operations,
        query=OperationsQuery,
        answer=Operations,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/operations/{operation}",
        access="viewer",
        summary="One operation, with its story and what it waits on",
        handle=operation,
        answer=OperationDetail,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/visits",
        access="viewer",
        summary="Units that are out for maintenance, or about to be",
        handle=visits,
        query=VisitsQuery,
        answer=Visits,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/capacity",
        access="viewer",
        summary="The limits of capacity and what they are used for",
        handle=capacity,
        answer=CapacityView,
    ),
    Route(method="GET", path="/v1/trains", access="viewer", summary="Maintenance trains", handle=trains, answer=Trains),
    Route(
        method="GET",
        path="/v1/trains/{train}",
        access="viewer",
        summary="One train, with its domains and the proof of its cycles",
        handle=train,
        answer=TrainDetail,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/rollouts",
        access="viewer",
        summary="Rollouts, those that live first",
        handle=rollouts,
        answer=Rollouts,
    ),
    Route(
        method="GET",
        path="/v1/rollouts/{rollout}",
        access="viewer",
        summary="One rollout, with its stages and evidence",
        handle=rollout,
        answer=RolloutDetail,
        errors=(404,),
    ),
)
