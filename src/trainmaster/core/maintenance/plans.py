"""Plans of maintenance: what would happen if this were asked for now. Nothing is changed by planning.

What would wait, and for what, is said by the engine itself: it is given the events in a rehearsal
(`core/rehearsal.py`). What a plan adds (whom it hits, how long it takes, what it costs) is in `consequences.py`. It
says what the engine would do at this instant; it does not foretell what comes in between: who waits for its turn is
shown as waiting. Durations are medians of the catalogue: of what is pending on a unit, one after the other, with one
drain and at most one reboot.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import ComponentName, HostId, JobId, OperationId, Owner, RolloutId, operation_id
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import HOUR, Duration, in_seconds
from trainmaster.core.events import GangUpgradeRequested, OperationRequested, TimePassed, TrainDeclared
from trainmaster.core.maintenance import gate, running, trains
from trainmaster.core.maintenance.catalogue import Component, Kind, takes_capacity
from trainmaster.core.maintenance.check import check_component, check_operation, check_rollout, never
from trainmaster.core.maintenance.consequences import (
    attempt_on,
    boot,
    duration,
    hits,
    hits_later,
    limits,
    total_gpu_hours,
)
from trainmaster.core.maintenance.domains import Domain, DomainId, stops_by_gang
from trainmaster.core.maintenance.due import Due, due_on
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.maintenance.plan import (
    DomainPlan,
    DueCount,
    GangPlan,
    HeldUpdate,
    OperationPlan,
    OperationsPlan,
    RolloutPlan,
    StagePlan,
    TrainPlan,
    fingerprint_of,
)
from trainmaster.core.maintenance.stages import Plan, RolloutSpec
from trainmaster.core.maintenance.train import Train, TrainSpec, TrainState
from trainmaster.core.rehearsal import Rehearsal
from trainmaster.core.scheduling.job import Job
from trainmaster.core.step import Step

PLANNER: Final = Owner("policy:plan")
_OPERATION: Final = re.compile(r"\bop-\d+\b")


class _Draft(NamedTuple):
    """An operation that can be asked for."""

    operation: Operation
    work: Component | Kind


def plan_operations(
    step: Step, rehearsal: Rehearsal, specs: Sequence[OperationSpec], keys: Sequence[str] = ()
) -> OperationsPlan:
    """What the engine would do with these operations, in their order. `keys`: of each, by which others may name it;
    `step`: the state that the rehearsal begins with."""
    keys = keys or [""] * len(specs)
    known = {key: name for key, name in step.state.maintenance.keys.items() if key in keys}
    drafts = _drafts(step, specs, keys)
    before = step.derived.planner.ledger.account().books
    waiting = _ask(rehearsal, specs, keys, drafts)
    items: list[OperationPlan] = []
    works: dict[HostId, list[Component | Kind]] = {}
    now: dict[HostId, None] = {}
    later: dict[HostId, Reason] = {}
    for place, (spec, draft) in enumerate(zip(specs, drafts, strict=True)):
        if isinstance(draft, Reason) or keys[place] in known:
            refused = draft if isinstance(draft, Reason) and keys[place] not in known else None
            items.append(_shown(spec, refused).but(known=known.get(keys[place])))
            continue
        operation, waits = draft.operation, waiting.get(place)
        for unit in operation.units or (operation.executor,):
            works.setdefault(unit, []).append(draft.work)
        if waits is None:
            now |= dict.fromkeys(operation.units)
        else:
            later |= dict.fromkeys(operation.units, waits)
        items.append(_planned(step, operation, draft.work, waits))
    leaving = tuple(unit for unit in works if unit in now or unit in later)
    after_now = {unit: reason for unit, reason in later.items() if unit not in now}
    durations = {unit: duration(step, unit, here) for unit, here in works.items()}
    plan = OperationsPlan(
        index=step.state.index,
        items=tuple(items),
        units=len(leaving),
        hosts=fold(leaving) if leaving else "",
        at_once=fold(now) if now else "",
        gpus=sum(step.state.hosts[unit].spec.gpus for unit in leaving),
        jobs=(*hits(step, tuple(now), told=False), *hits_later(step, after_now)),
        capacity=limits(before, rehearsal.look(), leaving),
        expected_s=in_seconds(max(durations.values(), default=0)),
        gpu_hours=round(total_gpu_hours(step, {unit: durations[unit] for unit in leaving}), 3),
        waiting=sum(item.waits is not None for item in items),
        refused=sum(item.refused is not None for item in items),
    )
    return plan.but(fingerprint=fingerprint_of(plan))


def _drafts(step: Step, specs: Sequence[OperationSpec], keys: Sequence[str]) -> list[_Draft | Reason]:
    """Each as it would be, or why it can't be asked for."""
    drafts: list[_Draft | Reason] = []
    refused: set[str] = set()
    for place, spec in enumerate(specs):
        reason = check_operation(step, spec, keys[:place])
        missing = next((name for name in spec.after if name in refused), None)
        if reason is None and missing is not None:
            told = _told(specs[list(keys).index(missing)])
            reason = because(Token.PREDECESSOR_FAILED, f"{told} must be done before, and it can't be asked for")
        if reason is not None:
            refused.add(keys[place])
            drafts.append(reason)
            continue
        work = step.derived.planner.work(spec)
        assert work is not None, spec
        drafts.append(_Draft(gate.draft(step, spec, Owner("")), work))
    return drafts


def _ask(
    rehearsal: Rehearsal, specs: Sequence[OperationSpec], keys: Sequence[str], drafts: Sequence[_Draft | Reason]
) -> dict[int, Reason]:
    """Asks for all that can be asked for, and tells what waits once all are there, by place."""
    names: dict[OperationId, int] = {}
    for place, (spec, draft) in enumerate(zip(specs, drafts, strict=True)):
        state = rehearsal.look().state.maintenance
        if isinstance(draft, Reason) or keys[place] in state.keys:
            continue
        names[operation_id(state.requested + 1)] = place
        asked = resolve_after(spec, state.keys)
        rehearsal.handle(OperationRequested(at=rehearsal.now, spec=asked, by=PLANNER, key=keys[place]))
    look = rehearsal.look()
    found = {place: _wait_of(look, name) for name, place in names.items()}

    def named(match: re.Match[str]) -> str:
        place = names.get(OperationId(match[0]))
        return match[0] if place is None else _told(specs[place])

    return {
        place: reason.but(sentence=_OPERATION.sub(named, reason.sentence))
        for place, reason in found.items()
        if reason is not None
    }


def _told(spec: OperationSpec) -> str:
    """An operation that has no id yet, in words."""
    what = " ".join(word for word in (spec.kind, spec.component, spec.version) if word)
    more = f" and {len(spec.scope) - 3} more" if len(spec.scope) > 3 else ""
    return f"{what} on {', '.join(spec.scope[:3])}{more}"


def _wait_of(step: Step, name: OperationId) -> Reason | None:
    """What it waits for at the gate, or at a lock of its own; a visit that it has joined is no wait."""
    operation = step.state.maintenance.operations.get(name)
    if operation is None:
        return next((one.reason for one in step.state.maintenance.ended if one.id == name), None)
    if operation.asked_lock and not operation.locked:
        return running.busy(step, name)
    return operation.reason if operation.state is OperationState.REQUESTED else None


def _shown(spec: OperationSpec, refused: Reason | None = None) -> OperationPlan:
    return OperationPlan(
        kind=spec.kind, component=spec.component, version=spec.version, scope=spec.scope, refused=refused
    )


def _planned(step: Step, operation: Operation, work: Component | Kind, waits: Reason | None) -> OperationPlan:
    units = operation.units
    return _shown(operation.spec).but(
        units=len(units),
        hosts=fold(units) if units else "",
        executor=operation.executor,
        disturbs=work.disturbs,
        steps=tuple(one.name for one in work.steps),
        expected_s=in_seconds(max(duration(step, unit, [work]) for unit in units or (operation.executor,))),
        waits=waits,
    )


# Trains


def plan_train(rehearsal: Rehearsal, spec: TrainSpec) -> TrainPlan:
    """What the train would do, which is declared in the rehearsal. The spec was made by `building.build_train`."""
    known = rehearsal.look().state.maintenance.trains.get(spec.name)
    began = known.cycle_began if known is not None else None
    before = rehearsal.look().derived.planner.ledger.account().books
    changes = known is None or known.spec != spec or known.state is TrainState.ENDED
    if changes:
        rehearsal.handle(TrainDeclared(at=rehearsal.now, spec=spec, by=PLANNER))
    acts = _acting(rehearsal, spec)
    step = acts.look()
    train = msgspec.structs.replace(step.state.maintenance.trains[spec.name])
    stops = [_stop(step, train, place) for place in range(len(spec.domains))]
    place = train.next_domain
    due, _ = trains.due_at_stop(step, train, spec.domains[place])
    leaving = trains.leaving_of(step, due)
    running = {job.id: _members(step, job) for job in step.state.jobs.values()}
    domains = [Domain(id=DomainId(f"stop/{place}"), units=units) for place, units in enumerate(spec.domains)]
    hit = [count for count in stops_by_gang(domains, running).values() if count]
    plan = TrainPlan(
        index=rehearsal.index,
        spec=spec,
        known=known is not None,
        changes=changes,
        goes_on=train.cycle_began == began,
        domains=tuple(stop for stop, _ in stops),
        next=place + 1,
        jobs=hits(step, leaving, told=spec.evict_after is not None),
        waits=step.state.maintenance.paused.get(spec.name) or step.derived.planner.ledger.check(leaving),
        capacity=(),
        every_s=in_seconds(spec.cycle // len(spec.domains)),
        stops_per_job=round(sum(hit) / len(hit), 3) if hit else 0.0,
        gpu_hours=round(sum(hours for _, hours in stops), 3),
        held_back=tuple(HeldUpdate(component=name, reason=reason) for name, reason in sorted(train.held_back.items())),
    )
    if changes:
        plan = plan.but(waits=_first_stop(acts, spec))
    plan = plan.but(capacity=limits(before, acts.look(), spec.domains[place]))
    return plan.but(fingerprint=fingerprint_of(plan))


def _acting(rehearsal: Rehearsal, spec: TrainSpec) -> Rehearsal:
    """Of a train that only observes the plan says what it would do: it acts in a rehearsal of its own."""
    if spec.mode == "act":
        return rehearsal
    acts = rehearsal.again()
    acts.look().state.maintenance.trains[spec.name].spec = spec.but(mode="act")
    return acts


def _first_stop(rehearsal: Rehearsal, spec: TrainSpec) -> Reason | None:
    """Lets the first stop come; what that waits for, if it can't begin."""
    rehearsal.handle(TimePassed(at=rehearsal.now))
    state = rehearsal.look().state.maintenance
    train = state.trains[spec.name]
    return state.paused.get(spec.name) or (train.reason if train.state is TrainState.WAITING else None)


def _members(step: Step, job: Job) -> tuple[HostId, ...]:
    attempt = step.state.attempts[job.attempts[-1]] if job.attempts else None
    return attempt.members if attempt is not None and attempt.is_live() else ()


def _stop(step: Step, train: Train, place: int) -> tuple[DomainPlan, float]:
    """A stop with what is due now, and its GPU hours."""
    units = train.spec.domains[place]
    rows = {unit: due_on(step, step.state.hosts[unit], train.spec.components)[0] for unit in units}
    out = {unit: _duration_of(step, unit, due) for unit, due in rows.items() if due}
    leaving = trains.leaving_of(step, {unit: due for unit, due in rows.items() if due})
    counts: dict[tuple[ComponentName, str], int] = {}
    for due in rows.values():
        for row in due:
            counts[row.component, row.version] = counts.get((row.component, row.version), 0) + 1
    attempts = [attempt for unit in units if (attempt := attempt_on(step, unit)) is not None]
    at = train.cycle_began + train.spec.cycle * place // len(train.spec.domains)
    plan = DomainPlan(
        number=place + 1,
        hosts=fold(units),
        units=len(units),
        jobs=tuple(dict.fromkeys(step.state.jobs[attempt.job].spec.name for attempt in attempts)),
        due=tuple(DueCount(component=name, version=version, units=n) for (name, version), n in counts.items()),
        leaving=len(leaving),
        expected_s=in_seconds(max(out.values(), default=0)),
        at=None if place < train.next_domain else at,
    )
    return plan, total_gpu_hours(step, {unit: out[unit] for unit in leaving})


def _duration_of(step: Step, unit: HostId, due: Sequence[Due]) -> Duration:
    return duration(step, unit, [step.derived.planner.component(row.component) for row in due])


# Rollouts and gang upgrades


def plan_rollout(step: Step, rollout: RolloutId, spec: RolloutSpec, seed: int, index: int) -> RolloutPlan | Reason:
    """`index`: of the log that the state stands for, or began with."""
    reason = check_rollout(step, spec)
    if reason is not None:
        return reason
    stages, component = Plan(rollout, spec, seed), step.derived.planner.component(spec.component)
    expected = max(duration(step, unit, [component]) for unit in spec.pool)
    hosts = step.state.hosts
    plan = RolloutPlan(
        index=index,
        rollout=rollout,
        spec=spec,
        seed=seed,
        stages=tuple(
            StagePlan(
                number=place + 1,
                hosts=count,
                new=fold(stages.new_hosts(place)),
                least_soak_h=round(spec.soak / HOUR, 3),
            )
            for place, count in enumerate(stages.counts)
        ),
        jobs=hits(step, stages.stage_hosts(0), told=False) if takes_capacity(component) else (),
        carriers=sum(hosts[unit].versions.get(spec.component) == spec.version for unit in spec.pool),
        trains=tuple(sorted(name for name, train in step.state.maintenance.trains.items() if _brings(train, spec))),
        expected_s=in_seconds(expected),
        gpu_hours=round(total_gpu_hours(step, {unit: duration(step, unit, [component]) for unit in spec.pool}), 3),
    )
    return plan.but(fingerprint=fingerprint_of(plan))


def _brings(train: Train, spec: RolloutSpec) -> bool:
    """It acts, stops at a host of the pool, and takes the component along."""
    pool = set(spec.pool)
    acts = train.state is not TrainState.ENDED and train.spec.mode == "act"
    takes = not train.spec.components or spec.component in train.spec.components
    return acts and takes and any(not pool.isdisjoint(domain) for domain in train.spec.domains)


def plan_gang(rehearsal: Rehearsal, name: JobId, component: ComponentName, version: str) -> GangPlan | Reason:
    """All hosts of a job at once, with their spares; it is asked for in the rehearsal."""
    step = rehearsal.look()
    job, before = step.state.jobs[name], step.derived.planner.ledger.account().books
    reason = _check_gang(step, job, component, version)
    if reason is not None:
        return reason
    attempt = step.state.attempts[job.attempts[-1]]
    units = (*attempt.members, *attempt.spares)
    reason = never(step, units)
    if reason is not None:
        sentence = f"{reason.sentence}; all {len(units)} hosts of {job.spec.name}, {fold(units)}, leave together"
        return reason.but(sentence=sentence)
    work = step.derived.planner.component(component)
    expected = work.duration.median + (boot(step) if work.disturbs == "reboot" else 0) + job.spec.yield_deadline
    plan = GangPlan(
        index=rehearsal.index,
        job=name,
        name=job.spec.name,
        component=component,
        version=version,
        hosts=fold(units),
        units=len(units),
        gpus=sum(step.state.hosts[unit].spec.gpus for unit in units),
        expected_s=in_seconds(expected),
        steps_lost=0,
        gpu_hours=round(total_gpu_hours(step, dict.fromkeys(units, Duration(expected))), 3),
        waits=None,
        capacity=(),
    )
    event = GangUpgradeRequested(
        at=rehearsal.now, job=name, component=component, version=version, by=PLANNER, reason=""
    )
    rehearsal.handle(event)
    gang = step.state.maintenance.gangs.get(name)
    waits = gang.reason if gang is not None and gang.began_at is None else None
    plan = plan.but(waits=waits, capacity=limits(before, step, units))
    return plan.but(fingerprint=fingerprint_of(plan))


def _check_gang(step: Step, job: Job, component: ComponentName, version: str) -> Reason | None:
    reason = check_component(step, component, version, f"gang upgrade of {job.spec.name}")
    if reason is not None:
        return reason
    work = step.derived.planner.component(component)
    if not takes_capacity(work) or "compute" not in work.units:
        what = "disturbs nothing" if not takes_capacity(work) else f"is for {', '.join(work.units)}"
        return because(Token.SCOPE_MISMATCH, f"{component} {what}, so no job has to stop for it")
    under_way = step.state.maintenance.gangs.get(job.id)
    if under_way is not None:
        sentence = f"{job.spec.name} ({job.id}) is getting {under_way.component} {under_way.version} already"
        return because(Token.ROLLOUT_ACTIVE, sentence)
    if not _members(step, job):
        return because(Token.JOB_NOT_RUNNING, f"{job.spec.name} ({job.id}) is {job.state.value} and has no hosts")
    return None


def resolve_after(spec: OperationSpec, known: dict[str, OperationId]) -> OperationSpec:
    """The spec with ids where it names keys."""
    if not spec.after:
        return spec
    return spec.but(after=tuple(known.get(name, name) for name in spec.after))
