"""The routes by which people change maintenance: operations are asked for and taken back, trains and rollouts declared
and steered, versions called proven, gangs upgraded.

Each plans on the state, refuses what makes no sense, and either shows the plan (dry run) or stages what it stands for,
in the same breath. Up to a thousand operations come in one request: they are decoded once, all checked before the first
is staged, and stored by one commit; if one of them is refused, none is asked for.
"""

from collections.abc import Callable, Iterator
from typing import Final

from trainmaster.core.base.ids import OperationId, Owner, RolloutId, TrainName, operation_id
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.events import AnyEvent
from trainmaster.core.maintenance import running
from trainmaster.core.maintenance.building import build_train
from trainmaster.core.maintenance.check import check_cancel, check_component, check_operation
from trainmaster.core.maintenance.events import (
    GangUpgradeRequested,
    OperationCancelled,
    OperationRequested,
    OperationSpec,
    RolloutDeclared,
    RolloutPassed,
    RolloutPaused,
    RolloutResumed,
    RolloutStopped,
    TrainAborted,
    TrainDeclared,
    TrainPaused,
    TrainResumed,
    VersionTargeted,
)
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.maintenance.plans import plan_gang, plan_operations, plan_rollout, plan_train, resolve_after
from trainmaster.core.maintenance.rollout import ROLLOUT_MACHINE, RolloutState
from trainmaster.core.maintenance.train import TrainState
from trainmaster.core.step import Step
from trainmaster.core.words import count_text
from trainmaster.live.server.changes import asker, with_reason
from trainmaster.live.server.http import MIB, Call, Refusal, Route
from trainmaster.live.server.maintenance import known_rollout, known_train
from trainmaster.live.server.maintenance_plans import (
    check_moved,
    next_rollout,
    planned_text,
    refusal_of,
    rehearsal_of,
    rollout_spec,
    seed_of,
    version_text,
)
from trainmaster.live.server.maintenance_resources import (
    GangReport,
    GangRequest,
    MaintenanceChange,
    MaintenanceReport,
    OperationAnswer,
    OperationAsk,
    OperationsReport,
    OperationsRequest,
    RolloutReport,
    RolloutRequest,
    TrainReport,
    TrainRequest,
    VersionRequest,
)
from trainmaster.live.server.people import known_job
from trainmaster.live.server.runtime import Runtime

KEY_MAX: Final = 200
# Operations


async def request_operations(call: Call) -> OperationsReport:
    body: OperationsRequest = call.body
    by, now = asker(call), call.service.now()
    if not body.dry_run and not body.reason.strip():
        for ask in body.operations:
            with_reason(ask.spec.reason, body.dry_run)

    def decide(runtime: Runtime) -> OperationsReport:
        step = runtime.engine.glance(now)
        asks = [_with_reason(ask, body.reason) for ask in body.operations]
        specs = [resolve_after(ask.spec, step.state.maintenance.keys) for ask in asks]
        if body.dry_run or body.check_index is not None:
            plan = plan_operations(step, rehearsal_of(runtime, now), specs, [ask.key for ask in asks])
            if body.dry_run:
                return OperationsReport(index=plan.index, dry_run=True, plan=plan, sentence=planned_text(plan))
            check_moved(plan, body.check_index, body.check_plan)
        asks = [ask.but(spec=spec) for ask, spec in zip(asks, specs, strict=True)]
        _check_all(step, asks)
        return _ask_all(runtime, asks, by, now)

    return await call.service.command(decide)


def _with_reason(ask: OperationAsk, reason: str) -> OperationAsk:
    return ask if ask.spec.reason.strip() or not reason.strip() else ask.but(spec=ask.spec.but(reason=reason))


def _check_all(step: Step, asks: list[OperationAsk]) -> None:
    """Refuses the whole request for the first operation that can't be asked for."""
    known = _Known(step)
    first: dict[str, OperationSpec] = {}
    for place, ask in enumerate(asks, 1):
        reason = _check(step, ask, known, first)
        if reason is not None:
            where = f"operation {place} of {len(asks)}: " if len(asks) > 1 else ""
            raise refusal_of(reason.but(sentence=where + reason.sentence))
        if ask.key:
            first.setdefault(ask.key, ask.spec)


def _check(step: Step, ask: OperationAsk, known: "_Known", first: dict[str, OperationSpec]) -> Reason | None:
    if len(ask.key) > KEY_MAX:
        return because(Token.BAD_REQUEST, f"the key is longer than {KEY_MAX} characters", most=KEY_MAX)
    same = first.get(ask.key) or known.spec(ask.key)
    if same is not None and not _is_same(same, ask.spec):
        return because(Token.KEY_TAKEN, f"the key {ask.key!r} was used for another operation: {_words(same)}")
    return None if same is not None else check_operation(step, ask.spec, first)


def _is_same(one: OperationSpec, other: OperationSpec) -> bool:
    """But for the words of the reason, and predecessors that may have become ids meanwhile."""
    return one.but(reason="", after=()) == other.but(reason="", after=())


def _words(spec: OperationSpec) -> str:
    return " ".join(word for word in (spec.kind, spec.component, spec.version, "on", *spec.scope[:3]) if word)


class _Known:
    """Operations by the keys of their askers; ended ones are looked up once for a whole request."""

    def __init__(self, step: Step) -> None:
        self._state = step.state.maintenance
        self._ended: dict[OperationId, OperationSpec] | None = None

    def spec(self, key: str) -> OperationSpec | None:
        name = self._state.keys.get(key) if key else None
        if name is None:
            return None
        live = self._state.operations.get(name)
        if live is not None:
            return live.spec
        if self._ended is None:
            self._ended = {one.id: one.spec for one in self._state.ended}
        return self._ended[name]


def _ask_all(runtime: Runtime, asks: list[OperationAsk], by: Owner, now: Instant) -> OperationsReport:
    """Stages an event for each that is not known by its key."""
    state = runtime.engine.state.maintenance
    names: list[OperationId] = []
    known: list[bool] = []

    def events() -> Iterator[AnyEvent]:
        for ask in asks:
            maintenance = runtime.engine.state.maintenance
            before = maintenance.keys.get(ask.key) if ask.key else None
            known.append(before is not None)
            names.append(before or operation_id(maintenance.requested + 1))
            if before is None:
                spec = resolve_after(ask.spec, maintenance.keys)
                yield OperationRequested(at=now, spec=spec, by=by, key=ask.key)

    runtime.stage_all(events)
    assert state is runtime.engine.state.maintenance, "the engine was built anew"
    ended = {one.id: one for one in state.ended} if any(name not in state.operations for name in names) else {}
    items = []
    for name, was_known in zip(names, known, strict=True):
        found = state.operations.get(name) or ended[name]
        items.append(OperationAnswer(operation=name, known=was_known, state=found.state.value, reason=found.reason))
    new = known.count(False)
    if not new:
        sentence = f"nothing new is asked for: {count_text(len(asks), 'operation')} of just this plan asked for before"
        return OperationsReport(index=runtime.engine.index, dry_run=False, items=tuple(items), sentence=sentence)
    verb = "is" if new == 1 else "are"
    old = len(asks) - new
    before = f", {old} {'was' if old == 1 else 'were'} before" if old else ""
    sentence = f"{count_text(new, 'operation')} {verb} asked for{before}"
    return OperationsReport(index=runtime.engine.index, dry_run=False, items=tuple(items), sentence=sentence)


async def cancel_operation(call: Call) -> MaintenanceReport:
    name = OperationId(call.name("operation"))
    told = [f"{name} is cancelled"]

    def plan(step: Step, by: Owner, reason: str) -> AnyEvent | str:
        refused = check_cancel(step, name)
        if refused is not None:
            raise refusal_of(refused)
        operation = step.state.maintenance.operations[name]
        if operation.ends_as is not None:
            return f"{name} is asked to end already: it does when its present step has ended"
        if operation.state is OperationState.RUNNING:
            undone = "is undone" if running.work_of(step, operation).undo else "stays as it is, for it has no undo"
            told[0] = f"{name} is asked to end: its present step ends first, then what it did {undone}"
        return OperationCancelled(at=step.now, operation=name, by=by, reason=reason)

    return await _change(call, plan, lambda: told[0])


async def _change(
    call: Call, plan: Callable[[Step, Owner, str], AnyEvent | str], done: str | Callable[[], str]
) -> MaintenanceReport:
    """`plan` gives the event, or a sentence that it is so already; `done` tells what the event does."""
    body: MaintenanceChange = call.body
    with_reason(body.reason, body.dry_run)
    by, now = asker(call), call.service.now()

    def decide(runtime: Runtime) -> MaintenanceReport:
        step = runtime.engine.glance(now)
        event = plan(step, by, body.reason)
        if isinstance(event, str):
            return MaintenanceReport(index=step.state.index, dry_run=body.dry_run, changed=False, sentence=event)
        index = step.state.index if body.dry_run else runtime.stage(event).index
        sentence = done if isinstance(done, str) else done()
        return MaintenanceReport(index=index, dry_run=body.dry_run, changed=True, sentence=sentence)

    return await call.service.command(decide)


# Trains


async def declare_train(call: Call) -> TrainReport:
    body: TrainRequest = call.body
    with_reason(body.reason, body.dry_run)
    by, now = asker(call), call.service.now()

    def decide(runtime: Runtime) -> TrainReport:
        step = runtime.engine.glance(now)
        spec = build_train(step, body.train)
        if isinstance(spec, Reason):
            raise refusal_of(spec)
        plan = plan_train(rehearsal_of(runtime, now), spec)
        index = plan.index
        stops = count_text(len(plan.domains), "stop")
        sentence = f"train {spec.name}: {stops}, one every {plan.every_s / 3600:.3g} h, {spec.mode}"
        if not plan.changes:
            sentence = f"train {spec.name} is there just so"
        elif not body.dry_run:
            check_moved(plan, body.check_index, body.check_plan)
            index = runtime.stage(TrainDeclared(at=now, spec=spec, by=by)).index
        return TrainReport(index=index, dry_run=body.dry_run, changed=plan.changes, plan=plan, sentence=sentence)

    return await call.service.command(decide)


def _live_train(step: Step, name: TrainName) -> None:
    if known_train(step, name).state is TrainState.ENDED:
        raise Refusal(409, Token.MAINTENANCE_ENDED, f"train {name} has ended")


async def pause_train(call: Call) -> MaintenanceReport:
    name = TrainName(call.name("train"))

    def plan(step: Step, by: Owner, reason: str) -> AnyEvent | str:
        _live_train(step, name)
        paused = step.state.maintenance.paused.get(name)
        return f"{name}: {paused.sentence}" if paused else TrainPaused(at=step.now, train=name, by=by, reason=reason)

    return await _change(call, plan, f"{name} is paused: no stop begins")


async def resume_train(call: Call) -> MaintenanceReport:
    name = TrainName(call.name("train"))

    def plan(step: Step, by: Owner, reason: str) -> AnyEvent | str:
        _live_train(step, name)
        if name not in step.state.maintenance.paused:
            return f"{name} is not paused"
        return TrainResumed(at=step.now, train=name, by=by, reason=reason)

    return await _change(call, plan, f"{name} goes on")


async def abort_train(call: Call) -> MaintenanceReport:
    name = TrainName(call.name("train"))

    def plan(step: Step, by: Owner, reason: str) -> AnyEvent | str:
        if known_train(step, name).state is TrainState.ENDED:
            return f"{name} has ended"
        return TrainAborted(at=step.now, train=name, by=by, reason=reason)

    return await _change(call, plan, f"{name} ends: what has not begun is cancelled")


# Rollouts and versions


async def declare_rollout(call: Call) -> RolloutReport:
    body: RolloutRequest = call.body
    with_reason(body.reason, body.dry_run)
    by, now = asker(call), call.service.now()
    seed = seed_of(body)

    def decide(runtime: Runtime) -> RolloutReport:
        step = runtime.engine.glance(now)
        name = next_rollout(step)
        spec = rollout_spec(step, body)
        plan = plan_rollout(step, name, spec, seed, step.state.index)
        if isinstance(plan, Reason):
            raise refusal_of(plan)
        index = plan.index
        if not body.dry_run:
            check_moved(plan, body.check_index, body.check_plan)
            index = runtime.stage(RolloutDeclared(at=now, rollout=name, spec=spec, seed=seed, by=by)).index
        hosts, stages = count_text(len(spec.pool), "host"), count_text(len(plan.stages), "stage")
        what = f"{name}: {spec.component} {spec.version} to {hosts} in {stages}"
        return RolloutReport(index=index, dry_run=body.dry_run, rollout=name, plan=plan, sentence=what)

    return await call.service.command(decide)


def _steer(step: Step, name: RolloutId, wanted: tuple[RolloutState, ...]) -> None:
    """Refuses to move a rollout on an edge that its machine does not have."""
    state = known_rollout(step, name).state
    if not any(ROLLOUT_MACHINE.allows(state, end) for end in wanted):
        raise Refusal(409, Token.ROLLOUT_ACTIVE, f"{name} is {state.value}")


async def pause_rollout(call: Call) -> MaintenanceReport:
    name = RolloutId(call.name("rollout"))

    def plan(step: Step, by: Owner, reason: str) -> AnyEvent | str:
        if known_rollout(step, name).state is RolloutState.PAUSED:
            return f"{name} is paused"
        _steer(step, name, (RolloutState.PAUSED,))
        return RolloutPaused(at=step.now, rollout=name, by=by, reason=reason)

    return await _change(call, plan, f"{name} is paused; its evidence still counts")


async def resume_rollout(call: Call) -> MaintenanceReport:
    name = RolloutId(call.name("rollout"))

    def plan(step: Step, by: Owner, reason: str) -> AnyEvent | str:
        if known_rollout(step, name).is_moving():
            return f"{name} is not paused"
        _steer(step, name, (RolloutState.CANARY,))
        return RolloutResumed(at=step.now, rollout=name, by=by, reason=reason)

    return await _change(call, plan, f"{name} goes on")


async def pass_rollout(call: Call) -> MaintenanceReport:
    name = RolloutId(call.name("rollout"))

    def plan(step: Step, by: Owner, reason: str) -> AnyEvent | str:
        state = known_rollout(step, name).state
        if state is not RolloutState.HELD:
            sentence = f"{name} is {state.value}; only a stage that is held is passed by a person"
            raise Refusal(409, Token.ROLLOUT_ACTIVE, sentence)
        return RolloutPassed(at=step.now, rollout=name, by=by, reason=reason)

    return await _change(call, plan, f"{name} passes its stage without the evidence that it lacks")


async def stop_rollout(call: Call) -> MaintenanceReport:
    name = RolloutId(call.name("rollout"))

    def plan(step: Step, by: Owner, reason: str) -> AnyEvent | str:
        if known_rollout(step, name).state is RolloutState.STOPPED:
            return f"{name} is stopped"
        _steer(step, name, (RolloutState.STOPPED,))
        return RolloutStopped(at=step.now, rollout=name, by=by, reason=reason)

    return await _change(call, plan, f"{name} goes no further; hosts that have the version keep it")


async def target_version(call: Call) -> MaintenanceReport:
    body: VersionRequest = call.body
    with_reason(body.reason, body.dry_run)
    by, now = asker(call), call.service.now()

    def decide(runtime: Runtime) -> MaintenanceReport:
        step = runtime.engine.glance(now)
        refused = check_component(step, body.component, body.version, f"version of {body.component}")
        if refused is not None:
            raise refusal_of(refused)
        changed = step.state.maintenance.targets.get(body.component) != body.version
        index = step.state.index
        if changed and not body.dry_run:
            index = runtime.stage(VersionTargeted(at=now, component=body.component, version=body.version, by=by)).index
        sentence = version_text(body.component, body.version, changed)
        return MaintenanceReport(index=index, dry_run=body.dry_run, changed=changed, sentence=sentence)

    return await call.service.command(decide)


async def upgrade_gang(call: Call) -> GangReport:
    body: GangRequest = call.body
    with_reason(body.reason, body.dry_run)
    by, now = asker(call), call.service.now()

    def decide(runtime: Runtime) -> GangReport:
        step = runtime.engine.glance(now)
        job = known_job(step.state, body.job)
        plan = plan_gang(rehearsal_of(runtime, now), job.id, body.component, body.version)
        if isinstance(plan, Reason):
            raise refusal_of(plan)
        index = plan.index
        if not body.dry_run:
            check_moved(plan, body.check_index, body.check_plan)
            event = GangUpgradeRequested(
                at=now, job=job.id, component=body.component, version=body.version, by=by, reason=body.reason
            )
            index = runtime.stage(event).index
        units = count_text(plan.units, "host")
        what = f"{job.spec.name} ({job.id}): {units} together to {body.component} {body.version}"
        return GangReport(index=index, dry_run=body.dry_run, plan=plan, sentence=what)

    return await call.service.command(decide)


def _post(
    path: str, summary: str, handle: Callable[[Call], object], body: type[Value], answer: type[Value], limit: int = MIB
) -> Route:
    return Route(
        method="POST",
        path=path,
        access="operator",
        summary=summary,
        handle=handle,  # type: ignore[arg-type]
        body=body,
        body_limit=limit,
        answer=answer,
        errors=(404, 409, 507),
    )


def _steering(path: str, summary: str, handle: Callable[[Call], object]) -> Route:
    return _post(path, summary, handle, MaintenanceChange, MaintenanceReport)


ROUTES = (
    _post(
        "/v1/operations",
        "Ask for operations, all or none",
        request_operations,
        OperationsRequest,
        OperationsReport,
        limit=8 * MIB,
    ),
    _steering("/v1/operations/{operation}/cancel", "Take an operation back, everywhere", cancel_operation),
    _post(
        "/v1/trains", "Declare a maintenance train, or another plan for one", declare_train, TrainRequest, TrainReport
    ),
    _steering("/v1/trains/{train}/pause", "No stop of the train begins", pause_train),
    _steering("/v1/trains/{train}/resume", "The train goes on", resume_train),
    _steering("/v1/trains/{train}/abort", "The train ends; what has not begun is cancelled", abort_train),
    _post("/v1/rollouts", "Bring a new version to hosts by stages", declare_rollout, RolloutRequest, RolloutReport),
    _steering("/v1/rollouts/{rollout}/pause", "No further host gets the version for now", pause_rollout),
    _steering("/v1/rollouts/{rollout}/resume", "The rollout goes on, or gets more time", resume_rollout),
    _steering("/v1/rollouts/{rollout}/pass", "A held stage passes, at a person's risk", pass_rollout),
    _steering("/v1/rollouts/{rollout}/stop", "No further host gets the version", stop_rollout),
    _post("/v1/versions", "A version is proven: trains bring it", target_version, VersionRequest, MaintenanceReport),
    _post("/v1/gang-upgrades", "Upgrade all hosts of a job together", upgrade_gang, GangRequest, GangReport),
)
