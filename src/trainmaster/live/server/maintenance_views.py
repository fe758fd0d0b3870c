"""What the API shows of maintenance, built from the state. Each function only reads, while the state equals the log."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId, OperationId, TrainName
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import HOUR, Instant, in_seconds
from trainmaster.core.effects import RunSteps
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.maintenance import rollout as rollouts
from trainmaster.core.maintenance import running, trains
from trainmaster.core.maintenance.book import GangUpgrade
from trainmaster.core.maintenance.catalogue import Component, Kind
from trainmaster.core.maintenance.due import due_on
from trainmaster.core.maintenance.evidence import NAT
from trainmaster.core.maintenance.operation import EndedOperation, Operation, OperationState
from trainmaster.core.maintenance.plan import HeldUpdate
from trainmaster.core.maintenance.rollout import Rollout, RolloutState
from trainmaster.core.maintenance.stages import Plan
from trainmaster.core.maintenance.train import Stop, Train, TrainState
from trainmaster.core.maintenance.visit import UNDONE, VERSIONS, Visit
from trainmaster.core.step import Step
from trainmaster.core.words import count_text
from trainmaster.live.server.maintenance_resources import (
    CarriedView,
    DomainView,
    EffectView,
    GangView,
    MaintenanceView,
    OperationDetail,
    OperationView,
    RolloutDetail,
    RolloutView,
    StageView,
    StepView,
    StopView,
    TargetView,
    TrainDetail,
    TrainView,
    VisitView,
)

_AT_THE_GATE = (OperationState.REQUESTED, OperationState.ADMITTED)
_HELD_FOR_A_PERSON = {VERSIONS: Token.VERSIONS_CLASH}
OLD = 24 * HOUR
"""An operation that has not ended by then wants a person to look at what it waits on."""
OUT_TOLD = 5
"""Units that are named where a buffer is spent."""
_BUFFERS = frozenset(
    {Token.GUARANTEE_BROKEN, Token.MAINTENANCE_BUFFER_SPENT, Token.FAILURE_BUFFER_SPENT, Token.DOMAIN_CAP}
)


# Operations and visits


def operation_view(step: Step, operation: Operation) -> OperationView:
    return OperationView(
        id=operation.id,
        kind=operation.spec.kind,
        component=operation.spec.component,
        version=operation.spec.version,
        scope=operation.spec.scope,
        priority=operation.spec.priority.value,
        state=operation.state.value,
        since=operation.since,
        requested_at=operation.requested_at,
        started_at=operation.started_at,
        ended_at=None,
        by=operation.by,
        hosts=fold(operation.units) if operation.units else "",
        units=len(operation.units),
        reason=_present_reason(step, operation),
        train=operation.train,
        rollout=operation.rollout,
        job=operation.job,
    )


def _present_reason(step: Step, operation: Operation) -> Reason | None:
    """Who is in the way at a lock changes without the operation being told; and one that ends is told apart."""
    if operation.asked_lock and not operation.locked:
        return running.busy(step, operation.id)
    if operation.ends_as is not None and operation.failure is not None:
        sentence = f"it is asked to end ({operation.failure.sentence}); its present step ends first"
        return operation.failure.but(sentence=sentence)
    visit = step.state.maintenance.visits.get(operation.units[0]) if operation.units else None
    if visit is not None and operation.id in visit.pending and visit.asked_lock and not visit.locked:
        return running.busy(step, visit.lock_name)
    return operation.reason if operation.state in _AT_THE_GATE else _silent(step, operation) or operation.reason


def _silent(step: Step, operation: Operation) -> Reason | None:
    """Agents that it needs and that are away, otherwise than for their reboot: nothing goes on before they are back, or
    are given up."""
    hosts, visits = step.state.hosts, step.state.maintenance.visits
    needed = dict.fromkeys((operation.executor, *operation.units))
    boots = {name for name in needed if name in visits and visits[name].reboot is not None}
    away = [name for name in needed if not hosts[name].connected and name not in boots]
    if not away:
        return None
    gone = [at for name in away if (at := hosts[name].gone_at) is not None]
    numbers: dict[str, int | float | str] = {"away": len(away)}
    since = ""
    if gone:
        numbers["away_s"] = round(in_seconds(step.now - min(gone)), 3)
        since = f" for {numbers['away_s']:.0f} s"
    sentence = f"the agent of {fold(away)} is not connected{since}"
    return Reason(token=Token.WAITING_FOR_AGENTS, sentence=sentence, numbers=numbers)


def ended_view(operation: EndedOperation) -> OperationView:
    return OperationView(
        id=operation.id,
        kind=operation.spec.kind,
        component=operation.spec.component,
        version=operation.spec.version,
        scope=operation.spec.scope,
        priority=operation.spec.priority.value,
        state=operation.state.value,
        since=operation.ended_at,
        requested_at=operation.requested_at,
        started_at=operation.started_at,
        ended_at=operation.ended_at,
        by=None,
        hosts="",
        units=operation.units,
        reason=operation.reason,
        train=operation.train,
        rollout=operation.rollout,
        job=None,
    )


def operations(
    step: Step, state: str, host: HostId | None, train: str, rollout: str, limit: int
) -> tuple[tuple[OperationView, ...], int]:
    """Those that match, at most `limit`, and how many do. `state`: one of them, "live", "ended", or empty for all."""

    def fits(operation: Operation | EndedOperation) -> bool:
        kept = state in ("", "live", "ended") or operation.state.value == state
        return kept and train in ("", operation.train) and rollout in ("", operation.rollout)

    maintenance = step.state.maintenance
    live = [one for one in maintenance.operations.values() if fits(one) and (host is None or host in _touched(one))]
    ended = [
        one for one in reversed(maintenance.ended) if fits(one) and (host is None or f"host/{host}" in one.spec.scope)
    ]
    live, ended = (live if state != "ended" else []), (ended if state != "live" else [])
    first = heapq.nsmallest(limit, live, key=Operation.key)
    shown = [operation_view(step, one) for one in first]
    shown += [ended_view(one) for one in ended[: limit - len(shown)]]
    return tuple(shown), len(live) + len(ended)


def _touched(operation: Operation) -> tuple[HostId, ...]:
    return (operation.executor, *operation.units)


def operation_detail(step: Step, operation: Operation) -> OperationDetail:
    effect = step.state.pending.get(operation.effect) if operation.effect is not None else None
    asked = effect.effect if effect is not None else None
    shown = None
    if isinstance(asked, RunSteps):
        shown = EffectView(id=asked.id, leg=asked.leg, host=asked.host, asked_at=operation.since)
    visit = step.state.maintenance.visits.get(operation.units[0]) if operation.units else None
    return OperationDetail(
        index=step.state.index,
        at=step.now,
        operation=_with_who_is_out(step, operation_view(step, operation)),
        spec=operation.spec,
        executor=operation.executor,
        after=operation.after,
        steps=tuple(_steps(running.work_of(step, operation))),
        observed=operation.observed,
        previous=operation.previous,
        tries=operation.tries,
        effect=shown,
        visit=visit_view(visit) if visit is not None else None,
        history=operation.story,
    )


def _with_who_is_out(step: Step, view: OperationView) -> OperationView:
    """Where a buffer is spent: on whom, and by whom."""
    if view.reason is None or view.reason.token is not Token.MAINTENANCE_BUFFER_SPENT:
        return view
    out = step.derived.planner.ledger.out_of(str(view.reason.numbers["book"]))
    told = [f"{name} ({_holders(step.state.hosts[name])})" for name in out[:OUT_TOLD]]
    told += [f"{len(out) - OUT_TOLD} more"] if len(out) > OUT_TOLD else []
    sentence = f"{view.reason.sentence}; out: {', '.join(told) or 'nobody, all of it is promised'}"
    return view.but(reason=view.reason.but(sentence=sentence))


def _holders(host: Host) -> str:
    return ", ".join(f"{hold.owner}: {hold.reason}" for hold in host.holds) or host.state.value


def _steps(work: Component | Kind) -> Iterator[StepView]:
    for leg, steps in (("apply", work.steps), ("check", work.after_reboot), ("undo", work.undo)):
        for one in steps:
            yield StepView(leg=leg, name=one.name, command=one.command, deadline_s=in_seconds(one.deadline))


def ended_detail(step: Step, operation: EndedOperation) -> OperationDetail:
    work = step.derived.planner.work(operation.spec)
    return OperationDetail(
        index=step.state.index,
        at=step.now,
        operation=ended_view(operation),
        spec=operation.spec,
        executor=HostId(""),
        after=(),
        steps=tuple(_steps(work)) if work is not None else (),
        observed=operation.observed,
        previous=operation.previous,
        tries=0,
        effect=None,
        visit=None,
        history=operation.story,
    )


def visit_view(visit: Visit) -> VisitView:
    return VisitView(
        unit=visit.unit,
        phase=visit.phase.value,
        since=visit.since,
        opened_at=visit.opened_at,
        train=visit.train,
        current=visit.current,
        pending=visit.pending,
        applied=visit.applied,
        wide=visit.wide,
        needs_reboot=visit.needs_reboot,
        rebooting=visit.reboot is not None,
        tasks=visit.tasks,
        drain_by=visit.drain_by,
        evict_at=visit.evict_at,
    )


# Trains


def train_view(step: Step, train: Train) -> TrainView:
    domains = len(train.spec.domains)
    over = train.state is TrainState.ENDED
    reason = train.reason if train.state in (TrainState.WAITING, TrainState.ENDED) else None
    return TrainView(
        name=train.spec.name,
        state=train.state.value,
        since=train.since,
        mode=train.spec.mode,
        emergency=train.spec.emergency,
        paused=step.state.maintenance.paused.get(train.spec.name),
        reason=reason,
        cycle=train.cycle,
        cycle_began=train.cycle_began,
        cycle_s=in_seconds(train.spec.cycle),
        domains=domains,
        units=train.units(),
        next_domain=min(train.next_domain + 1, domains),
        next_due_at=None if over else train.due_at(),
        visited=sum(_was_visited(train, unit) for domain in train.spec.domains for unit in domain),
        carried=len(train.carried),
        missed_before=len(train.proofs[-1].missed) if train.proofs else 0,
        stop=_stop_view(train.stop) if train.stop is not None else None,
    )


def _was_visited(train: Train, unit: HostId) -> bool:
    return train.visited_at.get(unit, Instant(-1)) >= train.cycle_began


def _stop_view(stop: Stop) -> StopView:
    return StopView(
        domain=stop.domain + 1,
        began_at=stop.began_at,
        hosts=fold(stop.units),
        units=len(stop.units),
        open=len(stop.open),
        requested=stop.requested,
        failed=stop.failed,
        over=stop.over,
    )


def train_detail(step: Step, train: Train) -> TrainDetail:
    return TrainDetail(
        index=step.state.index,
        at=step.now,
        train=train_view(step, train),
        spec=train.spec,
        domains=tuple(_domain_view(step, train, place) for place in range(len(train.spec.domains))),
        carried=tuple(CarriedView(host=unit, reason=reason) for unit, reason in sorted(train.carried.items())),
        proof=trains.proof_of(train, step.now),
        proofs=train.proofs,
        advice=train.advice,
        history=train.story,
        held_back=tuple(HeldUpdate(component=name, reason=reason) for name, reason in sorted(train.held_back.items())),
    )


def _domain_view(step: Step, train: Train, place: int) -> DomainView:
    units, spec = train.spec.domains[place], train.spec
    due = sum(bool(due_on(step, step.state.hosts[unit], spec.components)[0]) for unit in units)
    return DomainView(
        number=place + 1,
        hosts=fold(units),
        units=len(units),
        visited=sum(_was_visited(train, unit) for unit in units),
        due_at=Instant(train.cycle_began + (0 if spec.emergency else spec.cycle * place // len(spec.domains))),
        due=due,
    )


# Rollouts


def rollout_view(step: Step, rollout: Rollout) -> RolloutView:
    plan, found = _plan_of(step, rollout), rollout.evidence
    return RolloutView(
        id=rollout.id,
        component=rollout.spec.component,
        version=rollout.spec.version,
        state=rollout.state.value,
        reason=rollout.reason,
        by=rollout.by,
        began_at=rollout.began_at,
        stage=rollout.stage + 1,
        stages=len(plan.counts),
        stage_hosts=plan.counts[rollout.stage],
        pool=len(plan.order),
        carriers=_carriers(step, rollout, plan.order),
        operations=len(found.operated),
        operations_failed=found.operations_failed,
        failures_upgraded=found.failures_upgraded,
        failures_others=found.failures_others,
        stage_ends_at=rollouts.deadline(rollout),
        proven=rollouts.is_proven(rollout),
    )


def _plan_of(step: Step, rollout: Rollout) -> Plan:
    return step.derived.planner.plan_of(rollout)


def _carriers(step: Step, rollout: Rollout, units: Iterable[HostId]) -> int:
    hosts, spec = step.state.hosts, rollout.spec
    return sum(hosts[unit].versions.get(spec.component) == spec.version for unit in units)


def rollout_detail(step: Step, rollout: Rollout) -> RolloutDetail:
    plan = _plan_of(step, rollout)
    stages = []
    for place, count in enumerate(plan.counts):
        new = plan.new_hosts(place)
        stages.append(StageView(number=place + 1, hosts=count, new=fold(new), carriers=_carriers(step, rollout, new)))
    found = rollout.evidence
    return RolloutDetail(
        index=step.state.index,
        at=step.now,
        rollout=rollout_view(step, rollout),
        spec=rollout.spec,
        seed=rollout.seed,
        stages=tuple(stages),
        numbers={
            "exposure_upgraded_host_h": round(found.exposure_upgraded / HOUR, 3),
            "exposure_others_host_h": round(found.exposure_others / HOUR, 3),
            "exposure_stage_host_h": round(found.exposure_stage / HOUR, 3),
            "operations_nats": found.operations.now / NAT,
            "load_nats": found.load.now / NAT,
        },
        history=rollout.story,
    )


def in_order(found: Iterable[Rollout]) -> list[Rollout]:
    """Those that live first, then the newest first."""
    return sorted(found, key=lambda one: (not one.is_live(), -one.began_at, one.id))


# All of it


def maintenance_view(step: Step) -> MaintenanceView:
    state, catalogue = step.state.maintenance, step.state.maintenance.catalogue
    outcomes = ("done", "failed", "off-boarded", "cancelled")
    live = [one for one in state.operations.values() if one.reason is not None]
    return MaintenanceView(
        index=step.state.index,
        at=step.now,
        catalogue=catalogue.name,
        components=len(catalogue.components),
        kinds=len(catalogue.kinds),
        requested=state.requested,
        live=dict(Counter(one.state.value for one in state.operations.values())),
        ended={name: state.counts.get(name, 0) for name in outcomes},
        waits=dict(Counter(str(one.reason.token) for one in live if one.reason is not None)),
        visits=dict(Counter(visit.phase.value for visit in state.visits.values())),
        capacity=step.derived.planner.ledger.account(),
        targets=tuple(_targets(step)),
        trains=tuple(train_view(step, train) for _, train in sorted(state.trains.items())),
        rollouts=tuple(rollout_view(step, one) for one in in_order(state.rollouts.values()) if one.is_live()),
        gangs=tuple(_gang_view(gang) for _, gang in sorted(state.gangs.items())),
    )


def _targets(step: Step) -> Iterator[TargetView]:
    catalogue = step.state.maintenance.catalogue
    for name, version in sorted(step.state.maintenance.targets.items()):
        component = catalogue.component(name)
        kinds = component.units if component is not None else ()
        units = [host for host in step.state.hosts.values() if host.spec.kind in kinds]
        seen = sum(host.versions.get(name) == version for host in units)
        yield TargetView(component=name, version=version, units=len(units), with_it=seen)


def _gang_view(gang: GangUpgrade) -> GangView:
    return GangView(
        job=gang.job,
        component=gang.component,
        version=gang.version,
        by=gang.by,
        why=gang.why,
        asked_at=gang.asked_at,
        began_at=gang.began_at,
        hosts=fold(gang.hosts) if gang.hosts else "",
        operations=gang.operations,
        reason=gang.reason,
    )


def needs_attention(step: Step) -> Iterator[tuple[Instant, Reason]]:
    """What of maintenance wants a person: units that a whole cycle missed, trains that a limit holds up, rollouts that
    were rejected or wait for a decision, operations older than a day, units on which an undo failed or whose versions
    do not go together. With the instant from which on."""
    state = step.state.maintenance
    for name, train in state.trains.items():
        yield from _of_train(name, train)
    newest: dict[str, Rollout] = {}
    for rollout in sorted(state.rollouts.values(), key=lambda one: (one.began_at, one.id)):
        newest[rollout.spec.component] = rollout
    for rollout in newest.values():
        if rollout.state in (RolloutState.OFF_BOARDED, RolloutState.HELD) and rollout.reason is not None:
            at = rollout.story[-1].at if rollout.story else rollout.began_at
            yield at, _with_name(rollout.id, rollout.reason)
    for operation in state.operations.values():
        if operation.requested_at + OLD < step.now:
            yield operation.requested_at, _old(step, operation)
    for host in step.state.hosts.values():
        for hold in host.holds:
            token = Token.UNDO_FAILED if hold.owner.startswith(UNDONE) else _HELD_FOR_A_PERSON.get(hold.owner)
            if token is not None:
                sentence = f"{host.id} is held by {hold.owner}: {hold.reason}"
                yield hold.since, because(token, sentence, held_s=round(in_seconds(step.now - hold.since)))


def _of_train(name: TrainName, train: Train) -> Iterator[tuple[Instant, Reason]]:
    last = train.proofs[-1] if train.proofs else None
    if last is not None and last.missed:
        first = last.missed[0]
        sentence = f"train {name}: cycle {last.number} missed {len(last.missed)} of {count_text(last.units, 'unit')}"
        numbers = {"missed": len(last.missed), "units": last.units, "cycle": last.number}
        yield (
            last.ended_at,
            because(first.reason.token, f"{sentence}; {first.unit}: {first.reason.sentence}", **numbers),
        )
    if train.state is TrainState.WAITING and train.reason is not None and train.reason.token in _BUFFERS:
        yield train.since, _with_name(f"train {name}", train.reason)


def _with_name(name: str, reason: Reason) -> Reason:
    return reason.but(sentence=f"{name}: {reason.sentence}")


def _old(step: Step, operation: Operation) -> Reason:
    age_s = in_seconds(step.now - operation.requested_at)
    reason = _present_reason(step, operation)
    if reason is None:
        sentence = f"{operation.id}: {operation.state.value} since {age_s / 3600:.0f} h"
        return because(Token.WAITING_FOR_AGENTS, sentence, age_s=round(age_s))
    numbers = {**reason.numbers, "age_s": round(age_s)}
    return Reason(token=reason.token, sentence=f"{operation.id}: {reason.sentence}", numbers=numbers)


def find_ended(step: Step, name: OperationId) -> EndedOperation | None:
    return next((one for one in reversed(step.state.maintenance.ended) if one.id == name), None)
