"""`trainmaster twin replay`: lives through the log of a live server again, and says whether it comes out otherwise."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmaster import __version__
from trainmaster.cli.errors import Failed, WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, duration_text, say
from trainmaster.cli.twin_meter import Progress
from trainmaster.cli.words import counts_text
from trainmaster.core.base.time import seconds
from trainmaster.core.words import count_text

if TYPE_CHECKING:
    from trainmaster.live.adapters.sqlite_reader import LogReader
    from trainmaster.twin.replay import Replay, ReplayReport

TOLD_EVERY = 1_000
"""Events."""


@click.command(
    cls=Command,
    examples=[
        ("trainmaster twin replay run/log.sqlite", "the log of a server, also while it runs"),
        ("trainmaster twin replay copy.sqlite --until 4711 -o json", "up to an event, for programs"),
    ],
    exit_codes=(0, 1, 2),
)
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--until", type=click.IntRange(1), metavar="INDEX", help="Up to this event; default: all.")
@click.option("--watch-every", type=click.IntRange(0), default=1, show_default=True, metavar="N",
              help="Look at the invariants after so many events; 0: never.")  # fmt: skip
@shows
def replay(log: Path, until: int | None, watch_every: int, output: Output) -> None:
    """Replay the log of a live server, and compare.

    The file is only read: a copy, a backup, or the one that a server writes at this moment. Ends with 1 at the first
    event after which this version wants anything else than what stands in the log, and if an invariant is broken.
    """
    from trainmaster.live.adapters.sqlite_reader import LogReader
    from trainmaster.twin.replay import Replay

    reader = LogReader(log)
    try:
        last = _last(reader, log, until)
        if reader.product != __version__:
            say(
                f"note: trainmaster {reader.product} wrote this log, and this is {__version__}; it may decide otherwise"
            )
        lived = Replay(*reader.span(last), look_every=watch_every)
        start = time.perf_counter()
        _feed(reader, lived, last)
        report = lived.report(time.perf_counter() - start)
    finally:
        reader.close()
    output.one("twin-replay", report, fields(report))
    _judge(report, log)


def _last(reader: "LogReader", log: Path, until: int | None) -> int:
    if not reader.last_index:
        raise Failed(f"nothing to replay: the log {log} has no events", "", "start a server on it, or give another log")
    if until is not None and until > reader.last_index:
        why = f"the newest event is {reader.last_index:,}"
        raise WrongUsage(f"the log has no event {until:,}", why, f"give --until 1 to {reader.last_index}")
    return until or reader.last_index


def _feed(reader: "LogReader", lived: "Replay", last: int) -> None:
    snapshots = reader.snapshots(last)
    progress = Progress()
    for row in reader.rows(last):
        if not lived.apply(row.index, row.event, row.effects):
            break
        if row.index in snapshots and not lived.met(row.index, snapshots[row.index].state):
            break
        if row.index % TOLD_EVERY == 0:
            progress.tell(f"replayed {row.index:,} of {count_text(last, 'event')}")
    progress.end()


def _judge(report: "ReplayReport", log: Path) -> None:
    found = report.difference
    if found is not None:
        parts = [f"{found.sentence}", f"event: {found.event}"]
        parts += [f"{who}: {text}" for who, text in (("log", found.logged), ("engine", found.caused)) if text]
        fix = f"look at what came before: trainmaster twin replay {log} --until {max(found.index - 1, 1)}"
        raise Failed(f"event {found.index:,} comes out otherwise", "\n".join(parts), fix)
    if report.invariants_broken:
        why = "\n".join(report.broken[:10])
        fix = "it is a defect of the policies; keep the log"
        raise Failed(f"{report.invariants_broken:,} times an invariant was broken", why, fix)


def fields(report: "ReplayReport") -> list[Column]:
    """What a person sees; the whole report is in the other forms."""
    kinds = ", ".join(f"{kind} {sum(row.values()):,}" for kind, row in report.operations_by_kind.items())
    lost = ", ".join(f"{cause} {count:,} s" for cause, count in report.lost_gpu_s_by_cause.items())
    stops = "; ".join(f"{job}: {counts_text(row)}" for job, row in report.interruptions_by_job.items())
    waits = [*report.waits_by_reason.items(), *report.job_waits_by_reason.items()]
    looked = f"{report.invariants_looked:,} times, {report.invariants_broken:,} broken"
    found = report.difference
    ended, missed = counts_text(report.operations_by_outcome), count_text(report.hosts_missed, "host")
    result = f"event {found.index:,}: {found.sentence}" if found is not None else "none"
    rows = [
        (
            "replayed",
            f"{report.events:,} events over {duration_text(seconds(report.span_s))}, in {report.wall_s:.1f} s",
        ),
        ("difference", result),
        ("snapshots", f"{report.snapshots_equal} stored ones met and equal"),
        ("invariants", looked),
        ("operations", f"{report.operations_requested:,} requested{': ' if ended else ''}{ended}"),
        ("kinds", kinds),
        ("under way", count_text(report.unfinished, "operation")),
        ("visits", f"{report.visits:,} on {count_text(report.hosts_visited, 'host')}; {missed} had none"),
        ("hosts", counts_text(report.hosts_by_state)),
        ("jobs", counts_text(report.jobs)),
        ("stops of jobs", stops),
        ("gpu seconds", f"{report.trained_gpu_s:,} productive; lost: {lost or 'none'}"),
        ("waits", ", ".join(f"{token} {wait.hours * 3600:,.0f} s" for token, wait in waits)),
        ("most events", counts_text(dict(list(report.events_by_type.items())[:6]))),
    ]
    return [Column(name, lambda _, text=text: text) for name, text in rows if text]  # type: ignore[misc]
