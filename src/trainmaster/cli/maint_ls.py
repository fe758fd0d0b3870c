"""`trainmaster maint ls` and `trainmaster maint capacity`: lists of what is asked for, under way, and left to take."""

import sys
from typing import Any, Final

import click

from trainmaster.cli.client import Client, complete_hosts, connect
from trainmaster.cli.errors import WrongUsage
from trainmaster.cli.maint_words import bar, scope_text, short_reason
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, duration_text, instant_text, say
from trainmaster.cli.words import section, small_table
from trainmaster.core.base.time import Instant
from trainmaster.core.maintenance.ledger import BookAccount, BufferAccount
from trainmaster.core.words import count_text
from trainmaster.live.server.maintenance_resources import (
    OPERATIONS_MAX,
    CapacityView,
    MaintenanceView,
    Operations,
    OperationView,
    Rollouts,
    Trains,
    TrainView,
    Visits,
)

THINGS: Final = ("operations", "trains", "rollouts", "visits", "versions", "gangs")
STATES: Final = (
    "live", "ended", "requested", "admitted", "draining", "running", "verifying", "done", "failed", "off-boarded",
    "cancelled",
)  # fmt: skip
WAITING: Final = ("requested", "admitted")


@click.command(
    cls=Command,
    examples=[
        ("trainmaster maint ls", "operations that have not ended, and what each waits on"),
        ("trainmaster maint ls --state failed", "those that failed, newest first"),
        ("trainmaster maint ls trains", "or rollouts, visits, versions, gangs"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@click.argument("thing", type=click.Choice(THINGS), default="operations", metavar="[THING]")
@click.option("--state", type=click.Choice(STATES), help="Operations in this state; default: live.")
@click.option("--host", metavar="HOST", default="", help="Operations on it.", shell_complete=complete_hosts)
@click.option("--train", metavar="TRAIN", default="", help="Operations of it.")
@click.option("--rollout", metavar="ROLLOUT", default="", help="Operations of it.")
@click.option("--waiting", is_flag=True, help="Operations that wait, for whatever reason.")
@click.option("-n", "--lines", type=click.IntRange(1, OPERATIONS_MAX), default=100, show_default=True, help="At most.")
@shows
def ls(
    thing: str, state: str | None, host: str, train: str, rollout: str, waiting: bool, lines: int, output: Output
) -> None:
    """List operations, trains, rollouts, visits (units that are out), proven versions, or gang upgrades."""
    filters = {"state": state, "host": host, "train": train, "rollout": rollout}
    if thing != "operations" and (waiting or any(filters.values())):
        raise WrongUsage(f"{thing} are not filtered", "the filters are for operations", f"trainmaster maint ls {thing}")
    client = connect()
    match thing:
        case "operations":
            asked = {key: value for key, value in filters.items() if value}
            _operations(client, {"state": "live", **asked, "limit": lines}, waiting, output)
        case "trains":
            trains = client.get("/v1/trains", Trains)
            output.listing("train", trains.items, _train_columns(trains.at), {"index": trains.index, "at": trains.at})
        case "rollouts":
            rollouts = client.get("/v1/rollouts", Rollouts)
            extra = {"index": rollouts.index, "at": rollouts.at}
            output.listing("rollout", rollouts.items, _rollout_columns(rollouts.at), extra)
        case "visits":
            visits = client.get("/v1/visits", Visits)
            output.listing("visit", visits.items, _visit_columns(visits.at), {"index": visits.index, "at": visits.at})
        case _:
            _rest(client.get("/v1/maintenance", MaintenanceView), thing, output)


def _operations(client: Client, query: dict[str, Any], waiting: bool, output: Output) -> None:
    found = client.get("/v1/operations", Operations, **query)
    items = [item for item in found.items if not waiting or (item.state in WAITING and item.reason is not None)]
    extra = {"index": found.index, "at": found.at, "total": found.total}
    output.listing("operation", items, operation_columns(found.at), extra)
    if found.total > len(found.items):
        say(f"{found.total - len(found.items):,} more; --lines {OPERATIONS_MAX} shows at most that many")


def operation_columns(now: Instant) -> list[Column]:
    return [
        Column("id", lambda item: item.id),
        Column("kind", lambda item: item.kind),
        Column("component", lambda item: item.component),
        Column("version", lambda item: item.version),
        Column("scope", lambda item: scope_text(item.scope)),
        Column("state", lambda item: item.state, state=True),
        Column("age", lambda item: now - _from(item), lambda age: duration_text(max(0, age))),
        Column("reason", lambda item: short_reason(item.reason)),
        Column("since", lambda item: item.since, lambda at: instant_text(at, now), wide=True),
        Column("priority", lambda item: item.priority, wide=True),
        Column("units", lambda item: item.units, wide=True),
        Column("train", lambda item: item.train, wide=True),
        Column("rollout", lambda item: item.rollout, wide=True),
        Column("job", lambda item: item.job, wide=True),
        Column("by", lambda item: item.by, wide=True),
    ]


def _from(item: OperationView) -> Instant:
    """What its age counts from: of one that has ended, the end."""
    return item.ended_at if item.ended_at is not None else item.requested_at


def _train_columns(now: Instant) -> list[Column]:
    return [
        Column("train", lambda item: item.name),
        Column("state", _train_state, state=True),
        Column("mode", lambda item: item.mode),
        Column("cycle", lambda item: item.cycle),
        Column("visited", lambda item: f"{item.visited} of {item.units}"),
        Column("domain", lambda item: f"{item.next_domain} of {item.domains}"),
        Column("next stop", lambda item: item.next_due_at, lambda at: instant_text(at, now) if at else "-"),
        Column("carried", lambda item: item.carried),
        Column("reason", lambda item: short_reason(item.paused or item.reason)),
        Column("every", lambda item: item.cycle_s, lambda value: duration_text(round(value * 1e6)), wide=True),
        Column("missed", lambda item: item.missed_before, wide=True),
        Column("since", lambda item: item.since, lambda at: instant_text(at, now), wide=True),
    ]


def _train_state(item: TrainView) -> str:
    return "paused" if item.paused is not None else item.state


def _rollout_columns(now: Instant) -> list[Column]:
    return [
        Column("rollout", lambda item: item.id),
        Column("component", lambda item: item.component),
        Column("version", lambda item: item.version),
        Column("state", lambda item: item.state, state=True),
        Column("stage", lambda item: f"{item.stage} of {item.stages}"),
        Column("hosts", lambda item: f"{item.carriers} of {item.pool}"),
        Column("operations", lambda item: f"{item.operations_failed} of {item.operations} failed"),
        Column("proven", lambda item: item.proven),
        Column("reason", lambda item: short_reason(item.reason)),
        Column("began", lambda item: item.began_at, lambda at: instant_text(at, now), wide=True),
        Column("held", lambda item: item.stage_ends_at, lambda at: instant_text(at, now), wide=True),
        Column("by", lambda item: item.by, wide=True),
    ]


def _visit_columns(now: Instant) -> list[Column]:
    return [
        Column("unit", lambda item: item.unit),
        Column("phase", lambda item: item.phase, state=True),
        Column("for", lambda item: now - item.opened_at, lambda age: duration_text(max(0, age))),
        Column("current", lambda item: item.current),
        Column("pending", lambda item: len(item.pending) + len(item.wide)),
        Column("applied", lambda item: len(item.applied)),
        Column("reboot", lambda item: "now" if item.rebooting else "to come" if item.needs_reboot else ""),
        Column("train", lambda item: item.train),
        Column("drains by", lambda item: item.drain_by, lambda at: instant_text(at, now) if at else "-", wide=True),
        Column("evicts at", lambda item: item.evict_at, lambda at: instant_text(at, now) if at else "-", wide=True),
        Column("verification", lambda item: ", ".join(item.tasks), wide=True),
    ]


def _rest(view: MaintenanceView, thing: str, output: Output) -> None:
    extra = {"index": view.index, "at": view.at}
    if thing == "versions":
        columns = [
            Column("component", lambda item: item.component),
            Column("version", lambda item: item.version),
            Column("units", lambda item: item.units),
            Column("with it", lambda item: item.with_it),
        ]
        output.listing("proven-version", view.targets, columns, extra)
        return
    columns = [
        Column("job", lambda item: item.job),
        Column("component", lambda item: item.component),
        Column("version", lambda item: item.version),
        Column("hosts", lambda item: item.hosts),
        Column("left", lambda item: len(item.operations)),
        Column("began", lambda item: item.began_at, lambda at: instant_text(at, view.at) if at else "not yet"),
        Column("reason", lambda item: short_reason(item.reason)),
        Column("by", lambda item: item.by, wide=True),
    ]
    output.listing("gang-upgrade", view.gangs, columns, extra)


@click.command(
    cls=Command,
    examples=[
        ("trainmaster maint capacity", "what may be missing, and what is"),
        ("trainmaster maint capacity -o wide", "with limits of racks and rows"),
        ("trainmaster maint capacity -o json", "for programs"),
    ],
    exit_codes=(0, 2, 5, 6),
)
@shows
def capacity(output: Output) -> None:
    """Show what may be missing at once: buffers and guarantees of each book, and what they are used for."""
    found = connect().get("/v1/capacity", CapacityView)
    books = found.account.books
    if output.form not in ("table", "wide", "name"):
        output.one("capacity", found, [])
        return
    output.listing("book", books, _BOOKS)
    if output.form == "name":
        return
    if output.columns:
        return
    if books:
        section("= in service, p promised, m out for planned work, x failed")
        width = max(len(book.name) for book in books)
        sys.stdout.write("".join(f"{book.name:<{width}}  [{_bar(book)}]\n" for book in books))
    guarantees = [(book.name, guarantee) for book in books for guarantee in book.guarantees]
    if guarantees:
        section("Guarantees")
        small_table(output, guarantees, _GUARANTEES)
    spent = [row for row in found.account.domains if output.form == "wide" or row.cap.left == 0]
    if spent:
        section("Limits of places" if output.form == "wide" else "Limits of places that are spent")
        small_table(output, spent, _DOMAINS)
    if found.account.uncounted:
        say(f"in no book: {count_text(found.account.uncounted, 'unit')}; only limits of places hold there")


_BOOKS: Final = [
    Column("book", lambda book: book.name),
    Column("total", lambda book: book.total),
    Column("in service", lambda book: book.in_service),
    Column("promised", lambda book: book.promised),
    Column("planned", lambda book: _used(book.maintenance)),
    Column("left", lambda book: book.maintenance.left),
    Column("failed", lambda book: _used(book.failure)),
    Column("headroom", lambda book: book.guarantees[-1].headroom if book.guarantees else None),
    Column("absent", lambda book: book.absent, wide=True),
]

_GUARANTEES: Final = [
    Column("guarantee", lambda row: row[1].name),
    Column("book", lambda row: row[0]),
    Column("least", lambda row: row[1].least),
    Column("headroom", lambda row: row[1].headroom),
    Column("state", lambda row: "ok" if row[1].headroom >= 0 else "failed", state=True),
]

_DOMAINS: Final = [
    Column("place", lambda row: row.resource),
    Column("kind", lambda row: row.kind),
    Column("total", lambda row: row.total),
    Column("planned", lambda row: _used(row.cap)),
    Column("left", lambda row: row.cap.left),
]


def _used(account: BufferAccount) -> str:
    """`3 of 4`, and how far beyond it."""
    return f"{account.used} of {account.size}" + (f", {account.over} beyond" if account.over else "")


def _bar(book: BookAccount) -> str:
    kept = book.in_service - book.promised
    parts = [("=", kept), ("p", book.promised), ("m", book.out_planned), ("x", book.out_failed)]
    return bar(book.total, parts)
