"""Plans of maintenance for people: the route that plans all parts of a file together, and what it shares with the
routes that carry them out.

A file may call a version proven, ask for a rollout and declare the train that brings both. So its parts are planned in
the order in which they will be asked for, in one rehearsal: each in the world that those before it have made. Planned
one by one they would show a train that has nothing to bring.
"""

import os
from typing import Final

from trainmaster.core.base.ids import RolloutId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.maintenance.building import build_train
from trainmaster.core.maintenance.check import check_component
from trainmaster.core.maintenance.events import RolloutDeclared, VersionTargeted
from trainmaster.core.maintenance.plan import GangPlan, OperationsPlan, Plan, RolloutPlan, TrainPlan
from trainmaster.core.maintenance.plans import (
    PLANNER,
    plan_gang,
    plan_operations,
    plan_rollout,
    plan_train,
    resolve_after,
)
from trainmaster.core.maintenance.stages import RolloutSpec
from trainmaster.core.rehearsal import Rehearsal
from trainmaster.core.step import Step
from trainmaster.live.server.http import MIB, Call, Refusal, Route
from trainmaster.live.server.maintenance_resources import (
    GangRequest,
    MaintenanceReport,
    PlanReport,
    PlanRequest,
    RolloutRequest,
    TrainRequest,
    VersionRequest,
)
from trainmaster.live.server.people import known_hosts, known_job
from trainmaster.live.server.runtime import Runtime

_NOT_FOUND: Final = frozenset(
    {
        Token.NO_SUCH_HOST, Token.NO_SUCH_JOB, Token.NO_SUCH_RESOURCE, Token.NO_SUCH_KIND, Token.NO_SUCH_COMPONENT,
        Token.NO_SUCH_OPERATION, Token.NO_SUCH_TRAIN, Token.NO_SUCH_ROLLOUT,
    }
)  # fmt: skip
_BAD: Final = frozenset({Token.BAD_REQUEST, Token.VERSION_MISSING, Token.SCOPE_MISMATCH})


def refusal_of(reason: Reason) -> Refusal:
    """404 for what does not exist, 400 for what is written wrong, 409 for what the world does not allow."""
    status = 404 if reason.token in _NOT_FOUND else 400 if reason.token in _BAD else 409
    return Refusal.of(status, reason)


def rehearsal_of(runtime: Runtime, now: Instant) -> Rehearsal:
    """Whose engine begins with the present state."""
    return Rehearsal(runtime.engine.snapshot(), now)


def check_moved(plan: Plan, check_index: int | None, check_plan: str) -> None:
    """Refuses to carry out a plan that is not what was shown."""
    if check_index is None or check_index == plan.index or (check_plan and check_plan == plan.fingerprint):
        return
    said = "another plan follows now" if check_plan else "no fingerprint says that it is the same plan still"
    sentence = f"the plan is of index {check_index}, the log is at {plan.index}, and {said}"
    raise Refusal(409, Token.WORLD_MOVED, sentence, planned=check_index, index=plan.index)


def planned_text(plan: OperationsPlan) -> str:
    """A plan of operations in a line."""
    parts = [f"operations: {len(plan.items)}", f"units that leave production: {plan.units}"]
    parts += [f"jobs that are hit: {len({hit.job for hit in plan.jobs})}"]
    parts += [f"waiting: {plan.waiting}"] if plan.waiting else []
    parts += [f"refused: {plan.refused}"] if plan.refused else []
    return ", ".join(parts)


def rollout_spec(step: Step, body: RolloutRequest) -> RolloutSpec:
    """What is asked for, for these hosts. Raises `Refusal`."""
    for key in ("soak_s", "stage_limit_s"):
        if not 0 <= getattr(body, key) <= 366 * 86_400.0:
            raise Refusal(400, Token.BAD_REQUEST, f"{key} must be 0 to a year")
    component = step.state.maintenance.catalogue.component(body.component)
    kinds = component.units if component is not None else ()
    if body.hosts:
        pool = known_hosts(step.state, body.hosts)
    else:
        units = sorted(step.state.hosts.values(), key=lambda host: host.position)
        pool = tuple(host.id for host in units if host.spec.kind in kinds)
    strata = tuple(str(step.state.hosts[unit].spec.pod) for unit in pool) if body.by_pod else ()
    return RolloutSpec(
        component=body.component,
        version=body.version,
        pool=pool,
        strata=strata,
        canary=body.canary,
        stages=body.stages,
        criteria=body.criteria,
        soak=seconds(body.soak_s),
        unproven_percent=body.unproven_percent,
        stage_limit=seconds(body.stage_limit_s),
        on_failure=body.on_failure,
    )


def seed_of(body: RolloutRequest) -> int:
    """What draws the hosts. Raises `Refusal`."""
    seed = body.seed if body.seed is not None else int.from_bytes(os.urandom(6))
    if not 0 <= seed < 2**53:
        raise Refusal(400, Token.BAD_REQUEST, "seed must be 0 to 2**53 - 1")
    return seed


# All parts together


async def plan_all(call: Call) -> PlanReport:
    body: PlanRequest = call.body
    now = call.service.now()

    def decide(runtime: Runtime) -> PlanReport:
        rehearsal = rehearsal_of(runtime, now)
        operations = None
        if body.operations:
            step = runtime.engine.glance(now)
            specs = [resolve_after(ask.spec, step.state.maintenance.keys) for ask in body.operations]
            operations = plan_operations(step, rehearsal, specs, [ask.key for ask in body.operations])
        return PlanReport(
            index=rehearsal.index,
            operations=operations,
            gangs=tuple(_gang(rehearsal, each) for each in body.gangs),
            versions=tuple(_version(rehearsal, each) for each in body.versions),
            rollouts=tuple(_rollout(rehearsal, each) for each in body.rollouts),
            trains=tuple(_train(rehearsal, each) for each in body.trains),
        )

    return await call.service.command(decide)


def _gang(rehearsal: Rehearsal, asked: GangRequest) -> GangPlan:
    job = known_job(rehearsal.look().state, asked.job)
    plan = plan_gang(rehearsal, job.id, asked.component, asked.version)
    if isinstance(plan, Reason):
        raise refusal_of(plan)
    return plan


def version_text(component: str, version: str, changed: bool) -> str:
    return f"{component} {version} is the proven version" + ("" if changed else " already")


def _version(rehearsal: Rehearsal, asked: VersionRequest) -> MaintenanceReport:
    step = rehearsal.look()
    refused = check_component(step, asked.component, asked.version, f"version of {asked.component}")
    if refused is not None:
        raise refusal_of(refused)
    changed = step.state.maintenance.targets.get(asked.component) != asked.version
    event = VersionTargeted(at=rehearsal.now, component=asked.component, version=asked.version, by=PLANNER)
    rehearsal.handle(event)
    sentence = version_text(asked.component, asked.version, changed)
    return MaintenanceReport(index=rehearsal.index, dry_run=True, changed=changed, sentence=sentence)


def _rollout(rehearsal: Rehearsal, asked: RolloutRequest) -> RolloutPlan:
    step, seed = rehearsal.look(), seed_of(asked)
    name, spec = next_rollout(step), rollout_spec(step, asked)
    plan = plan_rollout(step, name, spec, seed, rehearsal.index)
    if isinstance(plan, Reason):
        raise refusal_of(plan)
    rehearsal.handle(RolloutDeclared(at=rehearsal.now, rollout=name, spec=spec, seed=seed, by=PLANNER))
    return plan


def next_rollout(step: Step) -> RolloutId:
    return RolloutId(f"rollout-{len(step.state.maintenance.rollouts) + 1}")


def _train(rehearsal: Rehearsal, asked: TrainRequest) -> TrainPlan:
    spec = build_train(rehearsal.look(), asked.train)
    if isinstance(spec, Reason):
        raise refusal_of(spec)
    return plan_train(rehearsal, spec)


ROUTES = (
    Route(
        method="POST",
        path="/v1/plans",
        access="operator",
        summary="Plan operations, gang upgrades, versions, rollouts and trains together; changes nothing",
        handle=plan_all,
        body=PlanRequest,
        body_limit=8 * MIB,
        answer=PlanReport,
        errors=(404, 409),
    ),
)
