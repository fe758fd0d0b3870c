"""Plans of maintenance: what would happen if this were asked for now. Nothing is changed by planning.

The plan asks the functions that decide (the gate, the ledger, what is due, the contracts of jobs), so it says what the
engine would say at this instant; it does not foretell what comes in between. Durations are medians of the catalogue:
of what is pending on a unit, one after the other, with one drain and at most one reboot.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import ComponentName, HostId, JobId, KindName, OperationId, Owner, RolloutId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import HOUR, MINUTE, Duration, in_seconds
from trainmaster.core.maintenance import contract, gate, trains
from trainmaster.core.maintenance.catalogue import Component, Kind, takes_capacity
from trainmaster.core.maintenance.check import check_component, check_operation, check_rollout, never
from trainmaster.core.maintenance.domains import Domain, DomainId, stops_by_gang
from trainmaster.core.maintenance.due import Due, due_on
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.operation import Operation
from trainmaster.core.maintenance.plan import (
    DomainPlan,
    DueCount,
    GangPlan,
    HeldUpdate,
    JobHit,
    Limit,
    OperationPlan,
    OperationsPlan,
    Outcome,
    RolloutPlan,
    StagePlan,
    TrainPlan,
    fingerprint_of,
)
from trainmaster.core.maintenance.stages import Plan, RolloutSpec
from trainmaster.core.maintenance.train import Train, TrainSpec, TrainState
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.core.scheduling.job import Job
from trainmaster.core.step import Step

USUAL_BOOT: Final = Duration(8 * MINUTE)
"""Of a reboot, where the catalogue has no kind `reboot` that says how long one takes."""


def plan_operations(step: Step, specs: Sequence[OperationSpec], keys: Sequence[str] = ()) -> OperationsPlan:
    """What the gate would do with these operations, in their order. `keys`: of each, by which others may name it."""
    items: list[OperationPlan] = []
    works: dict[HostId, list[Component | Kind]] = {}
    taken: dict[HostId, None] = {}
    for place, spec in enumerate(specs):
        refused = check_operation(step, spec, keys[:place])
        if refused is not None:
            items.append(_shown(spec, refused))
            continue
        operation = gate.draft(step, spec, Owner(""))
        work = step.derived.planner.work(spec)
        assert work is not None, spec
        for unit in operation.units or (operation.executor,):
            works.setdefault(unit, []).append(work)
        waits = _waits(step, operation, taken, keys)
        if waits is None:
            taken |= dict.fromkeys(operation.units)
        items.append(_planned(step, operation, work, waits))
    leaving = tuple(unit for unit, here in works.items() if any(map(takes_capacity, here)))
    durations = {unit: _duration(step, unit, here) for unit, here in works.items()}
    plan = OperationsPlan(
        index=step.state.index,
        items=tuple(items),
        units=len(leaving),
        hosts=fold(leaving) if leaving else "",
        gpus=sum(step.state.hosts[unit].spec.gpus for unit in leaving),
        jobs=hits(step, leaving, told=False),
        capacity=limits(step, leaving),
        expected_s=in_seconds(max(durations.values(), default=0)),
        gpu_hours=round(_gpu_hours(step, {unit: durations[unit] for unit in leaving}), 3),
        waiting=sum(item.waits is not None for item in items),
        refused=sum(item.refused is not None for item in items),
    )
    return plan.but(fingerprint=fingerprint_of(plan))


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
        expected_s=in_seconds(max(_duration(step, unit, [work]) for unit in units or (operation.executor,))),
        waits=waits,
    )


def _waits(step: Step, operation: Operation, taken: Collection[HostId], keys: Sequence[str]) -> Reason | None:
    """What it would wait for, with what those before it in the same request take."""
    earlier = [name for name in operation.spec.after if name in keys]
    if earlier:
        sentence = f"{', '.join(earlier[:3])} must be done before"
        return because(Token.WAITS_FOR_OPERATION, sentence, predecessors=len(earlier))
    found = gate.refusal(step, operation)
    if found is not None or not operation.units or not taken:
        return found
    return step.derived.planner.ledger.check((*taken, *operation.units))


# What it means for units, jobs and books


def _duration(step: Step, unit: HostId, works: Iterable[Component | Kind]) -> Duration:
    """From the notice to the return, with what is pending on the unit already."""
    index, maintenance = step.derived.planner, step.state.maintenance
    together = list(works)
    visit = maintenance.visits.get(unit)
    if visit is not None:
        for name in visit.pending:
            work = index.work(maintenance.operations[name].spec)
            assert work is not None, name
            together.append(work)
    total: int = sum(work.duration.median for work in together)
    if any(map(takes_capacity, together)):
        total += _notice(step, unit)
    if any(work.disturbs == "reboot" and not _is_boot(work) for work in together):
        total += _boot(step)
    return Duration(total)


def _is_boot(work: Component | Kind) -> bool:
    """Nothing but a reboot: its own duration has it."""
    return isinstance(work, Kind) and work.name == "reboot"


def _boot(step: Step) -> Duration:
    kind = step.state.maintenance.catalogue.kind(KindName("reboot"))
    return kind.duration.median if kind is not None else USUAL_BOOT


def _notice(step: Step, unit: HostId) -> Duration:
    """How long the job on the unit may keep it at the most."""
    attempt = _attempt_on(step, unit)
    if attempt is None:
        return Duration(0)
    asked = step.state.jobs[attempt.job].spec.contract
    return Duration(asked.notice + asked.checkpoint_wait)


def _attempt_on(step: Step, unit: HostId) -> Attempt | None:
    host = step.state.hosts[unit]
    if host.allocation is None or host.role != "member":
        return None
    attempt = step.state.attempts[host.allocation]
    return attempt if attempt.is_live() else None


def _gpu_hours(step: Step, out: dict[HostId, Duration]) -> float:
    total = sum(step.state.hosts[unit].spec.gpus * duration for unit, duration in out.items())
    return total / HOUR


def hits(step: Step, units: Sequence[HostId], told: bool) -> tuple[JobHit, ...]:
    """The jobs that run on these units, and what becomes of them if all leave. `told`: those that can't be moved are
    stopped after a checkpoint."""
    members: dict[JobId, list[HostId]] = {}
    for unit in units:
        attempt = _attempt_on(step, unit)
        if attempt is not None:
            members.setdefault(attempt.job, []).append(unit)
    refusals = contract.refusals(step, units, told=told)
    return tuple(
        _hit(step, step.state.jobs[job], tuple(leaving), set(units), refusals.get(leaving[0]), told)
        for job, leaving in sorted(members.items())
    )


def _hit(
    step: Step, job: Job, leaving: tuple[HostId, ...], units: set[HostId], refusal: Reason | None, told: bool
) -> JobHit:
    attempt = step.state.attempts[job.attempts[-1]]
    usable = (name for name in attempt.spares if name not in units and step.state.hosts[name].is_usable())
    spares = tuple(name for name, _ in zip(usable, leaving, strict=False))
    free = step.derived.free.count(attempt.cluster, attempt.stack)
    free -= sum(1 for unit in units if unit in step.derived.free and step.state.hosts[unit].stack == attempt.stack)
    lost = f"{fold(leaving)} of {job.spec.name} ({job.id})"
    outcome: Outcome
    if job.spec.on_drain == "finish":
        outcome, sentence = "finishes", f"{lost}: it may finish first"
    elif refusal is not None:
        outcome, sentence = "waits", f"{lost}: {refusal.sentence}"
    elif told and len(spares) + free < len(leaving):
        outcome, sentence = "stops", f"{lost}: no hosts are there to replace them, so it is stopped after a checkpoint"
    else:
        to = [fold(spares)] if spares else []
        others = len(leaving) - len(spares)
        to += [f"{others} free hosts"] if others else []
        outcome, sentence = "moves", f"{lost}: it moves to {' and '.join(to)} after a checkpoint"
    return JobHit(
        job=job.id,
        name=job.spec.name,
        leaving=leaving,
        outcome=outcome,
        to=spares if outcome == "moves" else (),
        gpus=sum(step.state.hosts[unit].spec.gpus for unit in leaving),
        sentence=sentence,
    )


def limits(step: Step, units: Sequence[HostId]) -> tuple[Limit, ...]:
    """The books that count one of the units, before and after planned work has taken them."""
    wanted = step.derived.planner.ledger.books_of(units)
    return tuple(
        Limit(
            book=book.name,
            total=book.total,
            in_service=book.in_service,
            taken_before=book.maintenance.used,
            taken_after=book.maintenance.used + wanted[book.name],
            most=book.maintenance.size,
            failed=book.out_failed,
            failed_most=book.failure.size,
        )
        for book in step.derived.planner.ledger.account().books
        if book.name in wanted
    )


# Trains


def plan_train(step: Step, spec: TrainSpec) -> TrainPlan:
    """What the train would do. The spec was made by `building.build_train`."""
    known = step.state.maintenance.trains.get(spec.name)
    changes = known is None or known.spec != spec or known.state is TrainState.ENDED
    train = msgspec.structs.replace(known) if known is not None and not changes else _new(step, spec)
    stops = [_stop(step, train, place) for place in range(len(spec.domains))]
    place = train.next_domain
    due, _ = trains.due_at_stop(step, train, spec.domains[place])
    leaving = trains.leaving_of(step, due)
    running = {job.id: _members(step, job) for job in step.state.jobs.values()}
    domains = [Domain(id=DomainId(f"stop/{place}"), units=units) for place, units in enumerate(spec.domains)]
    hit = [count for count in stops_by_gang(domains, running).values() if count]
    plan = TrainPlan(
        index=step.state.index,
        spec=spec,
        known=known is not None,
        changes=changes,
        domains=tuple(stop for stop, _ in stops),
        next=place + 1,
        jobs=hits(step, leaving, told=spec.evict_after is not None),
        waits=step.state.maintenance.paused.get(spec.name) or step.derived.planner.ledger.check(leaving),
        capacity=limits(step, spec.domains[place]),
        every_s=in_seconds(spec.cycle // len(spec.domains)),
        stops_per_job=round(sum(hit) / len(hit), 3) if hit else 0.0,
        gpu_hours=round(sum(hours for _, hours in stops), 3),
        held_back=tuple(HeldUpdate(component=name, reason=reason) for name, reason in sorted(train.held_back.items())),
    )
    return plan.but(fingerprint=fingerprint_of(plan))


def _new(step: Step, spec: TrainSpec) -> Train:
    return Train(spec=spec, by=Owner(""), since=step.now, cycle_began=step.now)


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
    attempts = [attempt for unit in units if (attempt := _attempt_on(step, unit)) is not None]
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
    return plan, _gpu_hours(step, {unit: out[unit] for unit in leaving})


def _duration_of(step: Step, unit: HostId, due: Sequence[Due]) -> Duration:
    return _duration(step, unit, [step.derived.planner.component(row.component) for row in due])


# Rollouts and gang upgrades


def plan_rollout(step: Step, rollout: RolloutId, spec: RolloutSpec, seed: int) -> RolloutPlan | Reason:
    reason = check_rollout(step, spec)
    if reason is not None:
        return reason
    stages, component = Plan(rollout, spec, seed), step.derived.planner.component(spec.component)
    expected = max(_duration(step, unit, [component]) for unit in spec.pool)
    hosts = step.state.hosts
    plan = RolloutPlan(
        index=step.state.index,
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
        gpu_hours=round(_gpu_hours(step, {unit: _duration(step, unit, [component]) for unit in spec.pool}), 3),
    )
    return plan.but(fingerprint=fingerprint_of(plan))


def _brings(train: Train, spec: RolloutSpec) -> bool:
    """It acts, stops at a host of the pool, and takes the component along."""
    pool = set(spec.pool)
    acts = train.state is not TrainState.ENDED and train.spec.mode == "act"
    takes = not train.spec.components or spec.component in train.spec.components
    return acts and takes and any(not pool.isdisjoint(domain) for domain in train.spec.domains)


def plan_gang(step: Step, job: Job, component: ComponentName, version: str) -> GangPlan | Reason:
    """All hosts of a job at once, with their spares."""
    reason = _check_gang(step, job, component, version)
    if reason is not None:
        return reason
    attempt = step.state.attempts[job.attempts[-1]]
    units = (*attempt.members, *attempt.spares)
    reason = never(step, units)
    if reason is not None:
        return reason
    work = step.derived.planner.component(component)
    expected = work.duration.median + (_boot(step) if work.disturbs == "reboot" else 0) + job.spec.yield_deadline
    plan = GangPlan(
        index=step.state.index,
        job=job.id,
        name=job.spec.name,
        component=component,
        version=version,
        hosts=fold(units),
        units=len(units),
        gpus=sum(step.state.hosts[unit].spec.gpus for unit in units),
        expected_s=in_seconds(expected),
        steps_lost=0,
        gpu_hours=round(_gpu_hours(step, dict.fromkeys(units, Duration(expected))), 3),
        waits=step.derived.planner.ledger.check(units),
        capacity=limits(step, units),
    )
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
