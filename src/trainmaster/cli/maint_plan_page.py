"""A plan of maintenance for people: what leaves, whom it hits, how long, what capacity is left, what would wait."""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from trainmaster.cli.maint_ask import Made
from trainmaster.cli.maint_words import scope_text, seconds_words, short_reason, units_text, work_text
from trainmaster.cli.output import Column, Output, instant_text
from trainmaster.cli.words import reason_text, section, small_table
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.plan import (
    DomainPlan,
    GangPlan,
    JobHit,
    Limit,
    OperationPlan,
    OperationsPlan,
    RolloutPlan,
    TrainPlan,
)
from trainmaster.core.words import count_text
from trainmaster.live.server.maintenance_resources import MaintenanceReport

ROWS_MAX: Final = 40


class Fields:
    """`name: value` lines that line up."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str]] = []

    def add(self, name: str, value: str) -> None:
        if value:
            self._rows.append((name, value))

    def write(self) -> None:
        width = max(len(name) for name, _ in self._rows)
        sys.stdout.write("".join(f"{name + ':':<{width + 1}}  {value}\n" for name, value in self._rows))


def print_plan(made: Made, output: Output) -> None:
    """All parts, one below the other."""
    first = True
    for part in _parts(made):
        if not first:
            sys.stdout.write("\n")
        first = False
        match part:
            case OperationsPlan():
                _operations(part, output)
            case GangPlan():
                _gang(part, output)
            case MaintenanceReport():
                sys.stdout.write(f"version:  {part.sentence}\n")
            case RolloutPlan():
                _rollout(part, made.trains, output)
            case TrainPlan():
                _train(part, output)


def _parts(made: Made) -> Iterable[Value]:
    own = () if made.operations is None else (made.operations,)
    return (*own, *made.gangs, *made.versions, *made.rollouts, *made.trains)


def blast(made: Made) -> str:
    """What is agreed to: `ask for 4 operations: 4 units h[0-3] (32 GPUs) leave, which hits llama (job-1)`."""
    parts = []
    if made.operations is not None:
        text = f"ask for {count_text(len(made.operations.items), 'operation')}: {_leave(made.operations)}"
        parts.append(text + _hit(made.operations.jobs))
    for gang in made.gangs:
        what = work_text("upgrade", gang.component, gang.version)
        parts.append(f"stop {gang.name} ({gang.job}) after a checkpoint and {what} on all its hosts {gang.hosts}")
    parts += [report.sentence for report in made.versions]
    for rollout in made.rollouts:
        what = work_text(rollout.spec.component, rollout.spec.version, "")
        pool, stages = count_text(len(rollout.spec.pool), "host"), count_text(len(rollout.stages), "stage")
        parts.append(f"roll out {what} to {pool} by {stages}")
    for train in made.trains:
        units = count_text(sum(domain.units for domain in train.domains), "unit")
        mode = "observes" if train.spec.mode == "observe" else "visits"
        stops = count_text(len(train.domains), "stop")
        parts.append(f"declare train {train.spec.name}, which {mode} {units} in {stops}")
    return "; ".join(parts)


def _leave(plan: OperationsPlan) -> str:
    text = units_text(plan.units, plan.hosts, plan.gpus)
    turns = f" ({_turns(plan)})" if _turns(plan) else ""
    return f"{text} leave{'s' if plan.units == 1 else ''}{turns}" if plan.units else text


def _turns(plan: OperationsPlan) -> str:
    """Who leaves at once, if not all do."""
    if plan.at_once == plan.hosts:
        return ""
    return f"{plan.at_once} at once, the others in turn" if plan.at_once else "none of them at once"


def _hit(jobs: Sequence[JobHit]) -> str:
    if not jobs:
        return "; no job is hit"
    return f", which hits {', '.join(dict.fromkeys(f'{hit.name} ({hit.job})' for hit in jobs))}"


# Operations


def _operations(plan: OperationsPlan, output: Output) -> None:
    fields = Fields()
    fields.add("asks for", count_text(len(plan.items), "operation"))
    turns = f"; {_turns(plan)}" if _turns(plan) else ""
    fields.add("leaving", units_text(plan.units, plan.hosts, plan.gpus) + turns)
    if plan.units:
        fields.add("of each", "one drain, components in the catalogue's order, then the rest, one reboot at most")
        fields.add("out for", f"{seconds_words(plan.expected_s)} at the longest{_hours(plan.gpu_hours)}")
    fields.add("waiting", f"{plan.waiting} of {len(plan.items)} would wait" if plan.waiting else "nothing would wait")
    fields.add("refused", f"{plan.refused} of {len(plan.items)} can't be asked for" if plan.refused else "")
    fields.add("made at", f"log index {plan.index}, fingerprint {plan.fingerprint}")
    fields.write()
    section("Operations, in the order in which they are asked for")
    columns = [
        Column("work", lambda row: row.work),
        Column("scope", lambda row: row.scope),
        Column("count", lambda row: row.count),
        Column("disturbs", lambda row: row.disturbs),
        Column("takes", lambda row: row.expected_s or None, lambda value: seconds_words(value or 0) or "-"),
        Column("steps", lambda row: row.steps),
        Column("waits for", lambda row: row.waits),
        Column("executor", lambda row: row.executor, wide=True),
    ]
    rows = fold_operations(plan.items)
    small_table(output, rows[:ROWS_MAX], columns)
    if len(rows) > ROWS_MAX:
        sys.stdout.write(f"and {len(rows) - ROWS_MAX} more rows: -o json\n")
    _jobs(plan.jobs, output)
    _capacity(plan.capacity, output)


class FoldedOperations(Value):
    """Operations that are alike: one row."""

    work: str
    scope: str
    count: int
    disturbs: str
    expected_s: float
    steps: str
    waits: str
    executor: str


def fold_operations(items: Sequence[OperationPlan]) -> list[FoldedOperations]:
    """Alike but for the scope, in the order of the first of each."""
    groups: dict[tuple[object, ...], list[OperationPlan]] = {}
    for item in items:
        reason = item.refused or item.waits
        token = str(reason.token) if reason is not None else ""
        state = (item.refused is None, item.known is None, token)
        key = (item.kind, item.component, item.version, item.disturbs, item.steps, *state)
        groups.setdefault(key, []).append(item)
    return [_folded(members) for members in groups.values()]


def _folded(members: Sequence[OperationPlan]) -> FoldedOperations:
    first = members[0]
    waits = short_reason(first.waits) if first.refused is None else f"refused, {short_reason(first.refused)}"
    if first.known is not None:
        waits = f"asked for before: {', '.join(str(item.known) for item in members[:3])}"
    executors = {item.executor for item in members if item.executor}
    return FoldedOperations(
        work=work_text(first.kind, first.component, first.version),
        scope=scope_text(resource for item in members for resource in item.scope),
        count=len(members),
        disturbs=first.disturbs,
        expected_s=max(item.expected_s for item in members),
        steps=", ".join(first.steps),
        waits=waits,
        executor=fold(executors) if executors else "",
    )


def _hours(gpu_hours: float, more: str = "") -> str:
    """Nothing on hosts without GPUs."""
    return f"; {gpu_hours:.3g} GPU-hours{more}" if gpu_hours else ""


def _jobs(jobs: Sequence[JobHit], output: Output) -> None:
    if not jobs:
        sys.stdout.write("\nNo job is hit\n")
        return
    section("Jobs that are hit")
    columns = [
        Column("job", lambda hit: hit.job),
        Column("name", lambda hit: hit.name),
        Column("loses", lambda hit: fold(hit.leaving)),
        Column("gpus", lambda hit: hit.gpus),
        Column("it", lambda hit: f"{hit.outcome}, later" if hit.later else hit.outcome),
        Column("to", lambda hit: fold(hit.to)),
        Column("what", lambda hit: hit.sentence),
    ]
    small_table(output, jobs, columns)


def _capacity(limits: Sequence[Limit], output: Output) -> None:
    if not limits:
        return
    section("Capacity, in units")
    columns = [
        Column("book", lambda row: row.book),
        Column("total", lambda row: row.total),
        Column("in service", lambda row: row.in_service),
        Column("taken", lambda row: row.taken_before),
        Column("at once", lambda row: row.taken_after),
        Column("of at most", lambda row: row.most),
        Column("failed", lambda row: row.failed),
        Column("at most", lambda row: row.failed_most),
    ]
    small_table(output, limits, columns)


# Gangs, rollouts, trains


def _gang(plan: GangPlan, output: Output) -> None:
    fields = Fields()
    fields.add("gang", f"{plan.name} ({plan.job}): {plan.component} {plan.version} on all its hosts at once")
    fields.add("leaving", units_text(plan.units, plan.hosts, plan.gpus))
    fields.add("stopped for", f"{seconds_words(plan.expected_s)}{_hours(plan.gpu_hours)}")
    lost = f"{count_text(plan.steps_lost, 'step')} lost" if plan.steps_lost else "no step is lost: it saves, and leaves"
    fields.add("cost", lost)
    fields.add("waits for", reason_text(plan.waits) or "nothing")
    fields.add("made at", f"log index {plan.index}, fingerprint {plan.fingerprint}")
    fields.write()
    _capacity(plan.capacity, output)


def _brought_by(plan: RolloutPlan, declared: Sequence[TrainPlan]) -> str:
    """Trains that are there, and those of the same plan that would go there."""
    found = [str(name) for name in plan.trains]
    pool, component = set(plan.spec.pool), plan.spec.component
    observing: list[str] = []
    for train in declared:
        takes = not train.spec.components or component in train.spec.components
        if not takes or pool.isdisjoint(unit for domain in train.spec.domains for unit in domain):
            continue
        (found if train.spec.mode == "act" else observing).append(f"{train.spec.name} of this plan")
    if found:
        return f"train {', '.join(dict.fromkeys(found))}"
    if observing:
        return f"no train yet: {', '.join(observing)} only observes until it is promoted"
    return "no train: nothing happens until one is declared"


def _rollout(plan: RolloutPlan, declared: Sequence[TrainPlan], output: Output) -> None:
    fields, spec = Fields(), plan.spec
    fields.add("rollout", f"{plan.rollout}: {spec.component} {spec.version} to {count_text(len(spec.pool), 'host')}")
    fields.add("seen with it", count_text(plan.carriers, "host") if plan.carriers else "no host yet")
    fields.add("brought by", _brought_by(plan, declared))
    fields.add("a host", f"is out for {seconds_words(plan.expected_s)}{_hours(plan.gpu_hours, ' for the pool')}")
    fields.add("if rejected", "its hosts are rolled back" if spec.on_failure == "roll-back" else "its hosts are held")
    fields.add("drawn by", f"seed {plan.seed}")
    fields.add("made at", f"log index {plan.index}, fingerprint {plan.fingerprint}")
    fields.write()
    section("Stages")
    columns = [
        Column("stage", lambda stage: stage.number),
        Column("hosts", lambda stage: stage.hosts),
        Column("adds", lambda stage: stage.new),
        Column("loaded h a host", lambda stage: stage.least_soak_h),
    ]
    small_table(output, plan.stages, columns)
    _jobs(plan.jobs, output)


def _train(plan: TrainPlan, output: Output) -> None:
    fields, spec = Fields(), plan.spec
    units = count_text(sum(domain.units for domain in plan.domains), "unit")
    cycle = "goes on in its cycle" if plan.goes_on else "begins a new cycle"
    known = f"is there, and {cycle}" if plan.known else "is new"
    if not plan.changes:
        known = "is there just so; nothing would change"
    fields.add("train", f"{spec.name}, {spec.mode}: {known}")
    fields.add("visits", f"{units} in {count_text(len(plan.domains), 'stop')}, one every {seconds_words(plan.every_s)}")
    fields.add("brings", ", ".join(spec.components) or "everything that is due")
    fields.add("jobs", f"{plan.stops_per_job:.3g} stops a cycle for each that runs now, on average")
    if plan.gpu_hours:
        fields.add("costs", f"{plan.gpu_hours:.3g} GPU-hours over a cycle with what is due now")
    fields.add("next stop", f"domain {plan.next}")
    fields.add("waits for", reason_text(plan.waits) or "nothing")
    fields.add("made at", f"log index {plan.index}, fingerprint {plan.fingerprint}")
    fields.write()
    section("Stops")
    columns = [
        Column("domain", lambda row: row.number),
        Column("hosts", lambda row: row.hosts),
        Column("units", lambda row: row.units),
        Column("leaving", lambda row: row.leaving),
        Column("due", _due),
        Column("takes", lambda row: row.expected_s or None, lambda value: seconds_words(value or 0) or "-"),
        Column("jobs", lambda row: ", ".join(row.jobs)),
        Column("at", lambda row: row.at, lambda at: instant_text(at) if at else "at once", wide=True),
    ]
    small_table(output, plan.domains[:ROWS_MAX], columns)
    if len(plan.domains) > ROWS_MAX:
        sys.stdout.write(f"and {len(plan.domains) - ROWS_MAX} more stops: -o json\n")
    _jobs(plan.jobs, output)
    _capacity(plan.capacity, output)


def _due(row: DomainPlan) -> str:
    return ", ".join(f"{each.component} {each.version} x{each.units}" for each in row.due)
