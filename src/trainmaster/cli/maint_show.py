"""`trainmaster maint show`: one operation, train or rollout, with what it waits on and what is missing."""

import re
import sys
from collections.abc import Sequence
from typing import Final

import click

from trainmaster.cli.client import Client, complete_maintenance, connect
from trainmaster.cli.errors import NoSuchThing
from trainmaster.cli.maint_words import (
    numbers_text,
    operation_path,
    rollout_path,
    scope_text,
    seconds_words,
    short_reason,
    train_path,
    units_text,
    work_text,
)
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, duration_text, instant_text
from trainmaster.cli.words import counts_text, reason_text, section, small_table
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.machine import Chapter
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.maintenance.train import CycleProof
from trainmaster.core.words import count_text
from trainmaster.live.server.maintenance_resources import (
    CapacityView,
    CarriedView,
    MaintenanceView,
    OperationDetail,
    RolloutDetail,
    Rollouts,
    TrainDetail,
    Trains,
)

OPERATION_ID: Final = re.compile(r"op-\d+")
DOMAINS_MAX: Final = 40


def kind_of(client: Client, name: str) -> str:
    """operation, train or rollout. Raises `NoSuchThing`."""
    if OPERATION_ID.fullmatch(name):
        return "operation"
    if any(train.name == name for train in client.get("/v1/trains", Trains).items):
        return "train"
    if any(rollout.id == name for rollout in client.get("/v1/rollouts", Rollouts).items):
        return "rollout"
    why = "operations are op-NUMBER; trains and rollouts have names"
    raise NoSuchThing(f"no train and no rollout is named {name!r}", why, "trainmaster maint ls trains; ... ls rollouts")


@click.command(
    cls=Command,
    examples=[
        ("trainmaster maint show", "all of maintenance on one screen"),
        ("trainmaster maint show op-12", "an operation: what it waits on, its steps and its story"),
        ("trainmaster maint show weekly", "a train, or a rollout: stops, proof, evidence"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@click.argument("name", required=False, metavar="[OPERATION|TRAIN|ROLLOUT]", shell_complete=complete_maintenance)
@shows
def show(name: str | None, output: Output) -> None:
    """Show all of maintenance, or one operation, train or rollout."""
    client = connect()
    if name is None:
        whole = client.get("/v1/maintenance", MaintenanceView)
        output.one("maintenance", whole, _overview(whole))
        return
    match kind_of(client, name):
        case "operation":
            _operation(client.get(operation_path(name), OperationDetail), output)
        case "train":
            _train(client, client.get(train_path(name), TrainDetail), output)
        case _:
            _rollout(client.get(rollout_path(name), RolloutDetail), output)


def _field(name: str, value: object) -> Column:
    return Column(name, lambda _: value, state=name == "state")


def _columns(values: Sequence[tuple[str, object]]) -> list[Column]:
    return [_field(name, value) for name, value in values]


def _reason_rows(reason: Reason | None, what: str = "reason") -> list[tuple[str, object]]:
    if reason is None:
        return [(what, "")]
    rows: list[tuple[str, object]] = [(what, reason_text(reason))]
    if reason.numbers:
        rows.append(("numbers", numbers_text(reason)))
    return [*rows, ("next", reason.token.advice)]


def _story(history: Sequence[Chapter], now: Instant, output: Output) -> None:
    if not history:
        return
    section("Story")
    columns = [
        Column("at", lambda chapter: chapter.at, lambda at: instant_text(at, now)),
        Column("from", lambda chapter: chapter.start, state=True),
        Column("to", lambda chapter: chapter.end, state=True),
        Column("cause", lambda chapter: chapter.cause),
    ]
    small_table(output, history, columns)


def _is_page(output: Output) -> bool:
    return output.form in ("table", "wide") and not output.columns


# All


def _overview(view: MaintenanceView) -> list[Column]:
    books = (f"{book.name} {book.maintenance.used} of {book.maintenance.size}" for book in view.capacity.books)
    trains = (f"{train.name} {'paused' if train.paused else train.state}" for train in view.trains)
    rollouts = (f"{one.component} {one.version} {one.state} ({one.id})" for one in view.rollouts)
    declared = f"{view.catalogue}: {count_text(view.components, 'component')}, {view.kinds} kinds of operation"
    return _columns(
        [
            ("catalogue", declared if view.catalogue else "none is declared; name one in the fleet file"),
            ("operations", counts_text(view.live) or "none under way"),
            ("waiting for", counts_text(view.waits)),
            ("ended", counts_text({state: count for state, count in view.ended.items() if count})),
            ("units out", counts_text(view.visits) or "none"),
            ("planned out", ", ".join(books)),
            ("trains", ", ".join(trains)),
            ("rollouts", ", ".join(rollouts)),
            ("gangs", ", ".join(f"{gang.job} {gang.component} {gang.version}" for gang in view.gangs)),
            ("versions", ", ".join(f"{each.component} {each.version}" for each in view.targets)),
        ]
    )


# An operation


def _operation(detail: OperationDetail, output: Output) -> None:
    view, now = detail.operation, detail.at
    visit = detail.visit
    asked = instant_text(view.requested_at, now) + (f" by {view.by}" if view.by is not None else "")
    place = ""
    if visit is not None:
        place = f"{visit.unit} is {visit.phase}, {len(visit.pending)} pending, {len(visit.applied)} applied"
    effect = ""
    if detail.effect is not None:
        effect = f"{detail.effect.host} was asked ({detail.effect.leg}) {instant_text(detail.effect.asked_at, now)}"
    versions = ", ".join(
        f"{word} {version}" for word, version in (("before", detail.previous), ("observed", detail.observed)) if version
    )
    output.one(
        "operation",
        detail,
        _columns(
            [
                ("operation", view.id),
                ("work", work_text(view.kind, view.component, view.version)),
                ("state", view.state),
                *_reason_rows(view.reason),
                ("since", instant_text(view.since, now)),
                ("requested", asked),
                ("why", detail.spec.reason),
                ("scope", scope_text(view.scope)),
                ("leaving", units_text(view.units, view.hosts) if view.ended_at is None else ""),
                ("priority", view.priority),
                ("not before", instant_text(detail.spec.not_before, now) if detail.spec.not_before else ""),
                ("deadline", instant_text(detail.spec.deadline, now) if detail.spec.deadline else ""),
                ("after", ", ".join(detail.after)),
                ("part of", " ".join(str(part) for part in (view.train, view.rollout, view.job) if part)),
                ("executor", detail.executor),
                ("visit", place),
                ("asked", effect),
                ("versions", versions),
                ("tries", detail.tries or None),
            ]
        ),
    )
    if not _is_page(output):
        return
    if detail.steps:
        section("Steps")
        columns = [
            Column("leg", lambda step: step.leg),
            Column("step", lambda step: step.name),
            Column("deadline", lambda step: step.deadline_s, seconds_words),
            Column("command", lambda step: " ".join(step.command)),
        ]
        small_table(output, detail.steps, columns)
    _story(detail.history, now, output)


# A train


def _train(client: Client, detail: TrainDetail, output: Output) -> None:
    view, spec, now = detail.train, detail.spec, detail.at
    stop = ""
    if view.stop is not None:
        stop = (
            f"domain {view.stop.domain}, {view.stop.hosts}, since {instant_text(view.stop.began_at, now)}; "
            f"{view.stop.open} of {count_text(view.stop.units, 'unit')} left, "
            f"{view.stop.failed} of {view.stop.requested} failed"
        )
    following = ""
    if view.next_due_at is not None:
        following = f"domain {view.next_domain} of {view.domains}, due {instant_text(view.next_due_at, now)}"
    evicted = "never: a unit whose job can't be moved is carried over"
    if spec.evict_after is not None:
        evicted = f"jobs that can't be moved, {duration_text(spec.evict_after)} after a stop began"
    output.one(
        "train",
        detail,
        _columns(
            [
                ("train", view.name),
                ("state", "paused" if view.paused is not None else view.state),
                *_reason_rows(view.paused or view.reason),
                ("mode", f"{view.mode}{', emergency' if view.emergency else ''}"),
                ("brings", ", ".join(spec.components) or "everything that is due"),
                ("cycle", f"{view.cycle}, began {instant_text(view.cycle_began, now)}; {_every(view.cycle_s)}"),
                ("visited", f"{view.visited} of {count_text(view.units, 'unit')} in this cycle"),
                ("stop", stop),
                ("next stop", following),
                ("carried over", _carried(detail.carried)),
                ("held back", "; ".join(f"{held.component}: {short_reason(held.reason)}" for held in detail.held_back)),
                ("last proof", _proof(detail.proofs[-1], now) if detail.proofs else "no cycle has ended"),
                ("stops", evicted),
            ]
        ),
    )
    if not _is_page(output):
        return
    section("Domains")
    columns = [
        Column("domain", lambda row: row.number),
        Column("hosts", lambda row: row.hosts),
        Column("units", lambda row: row.units),
        Column("visited", lambda row: row.visited),
        Column("due", lambda row: row.due),
        Column("at", lambda row: row.due_at, lambda at: instant_text(at, now)),
    ]
    small_table(output, detail.domains[:DOMAINS_MAX], columns)
    if len(detail.domains) > DOMAINS_MAX:
        sys.stdout.write(f"and {len(detail.domains) - DOMAINS_MAX} more: -o json\n")
    if detail.advice:
        section("What the last stop would have done")
        sys.stdout.write("".join(f"  {line}\n" for line in detail.advice))
    _books(client, output)
    _story(detail.history, now, output)


def _every(cycle_s: float) -> str:
    return f"every {duration_text(round(cycle_s * 1e6))}"


def _carried(carried: Sequence[CarriedView]) -> str:
    """Folded by reason."""
    groups: dict[str, list[str]] = {}
    for each in carried:
        groups.setdefault(str(each.reason.token), []).append(each.host)
    return "; ".join(f"{fold(hosts)}: {token}" for token, hosts in groups.items())


def _proof(proof: CycleProof, now: Instant) -> str:
    text = f"cycle {proof.number}, ended {instant_text(proof.ended_at, now)}: {proof.visited} of {proof.units} visited"
    if proof.missed:
        text += f", missed {fold(each.unit for each in proof.missed)}"
    return f"{text}; longest gap {duration_text(proof.longest_gap)}" if proof.longest_gap else text


def _books(client: Client, output: Output) -> None:
    books = client.get("/v1/capacity", CapacityView).account.books
    if not books:
        return
    section("Capacity, in units")
    columns = [
        Column("book", lambda book: book.name),
        Column("total", lambda book: book.total),
        Column("in service", lambda book: book.in_service),
        Column("planned", lambda book: f"{book.maintenance.used} of {book.maintenance.size}"),
        Column("failed", lambda book: f"{book.failure.used} of {book.failure.size}"),
    ]
    small_table(output, books, columns)


# A rollout


def _rollout(detail: RolloutDetail, output: Output) -> None:
    view, spec, now = detail.rollout, detail.spec, detail.at
    may = f"{view.stage_hosts} of {count_text(view.pool, 'host')}"
    load = f"{view.failures_upgraded} on hosts with it, {view.failures_others} on the others"
    output.one(
        "rollout",
        detail,
        _columns(
            [
                ("rollout", view.id),
                ("brings", f"{view.component} {view.version}"),
                ("state", view.state),
                *_reason_rows(view.reason),
                ("stage", f"{view.stage} of {view.stages}: {may} may carry it"),
                ("carried by", count_text(view.carriers, "host")),
                ("proven", view.proven),
                ("operations", f"{view.operations_failed} of {view.operations} failed"),
                ("failures", f"under load: {load}"),
                ("evidence", ", ".join(f"{key} {value}" for key, value in detail.numbers.items())),
                ("held at", instant_text(view.stage_ends_at, now)),
                ("if rejected", "rolled back" if spec.on_failure == "roll-back" else "held for a person"),
                ("asked for", f"{instant_text(view.began_at, now)} by {view.by}"),
                ("drawn by", f"seed {detail.seed}"),
            ]
        ),
    )
    if not _is_page(output):
        return
    section("Stages")
    columns = [
        Column("stage", lambda row: row.number),
        Column("hosts", lambda row: row.hosts),
        Column("with it", lambda row: row.carriers),
        Column("adds", lambda row: row.new),
    ]
    small_table(output, detail.stages, columns)
    _story(detail.history, now, output)
