"""Logs for tests: what a simulated fleet lived through, written as a live server writes it."""

from pathlib import Path

from trainmaster.core.base.time import HOUR, Duration, Instant
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import AnyEvent
from trainmaster.live.adapters.sqlite_log import SqliteLog
from trainmaster.ports.event_log import Batch, Entry, Snapshot
from trainmaster.twin.run import Options, Run
from trainmaster.twin.scenario import START, Scenario


def lived(scenario: Scenario) -> Run:
    """A run that has ended; its `entries` are its log."""
    run = Run(scenario, Options(whole_every=0))
    entries: list[Entry] = []
    handle = run.world.handle

    def kept(event: AnyEvent) -> tuple[AnyEffect, ...]:
        effects = handle(event)
        entries.append(Entry(index=len(entries) + 1, event=event, effects=effects))
        return effects

    run.world.handle = kept
    run.run()
    run.entries = entries  # type: ignore[attr-defined]
    return run


def entries_of(run: Run) -> list[Entry]:
    return run.entries  # type: ignore[attr-defined,no-any-return]


def write(path: Path, entries: list[Entry], snapshot: Snapshot | None = None) -> SqliteLog:
    """The log, still open."""
    log = SqliteLog(path, START)
    log.append(Batch(entries=tuple(entries)))
    if snapshot is not None:
        log.save_snapshot(snapshot)
    return log


def hours(count: float) -> Duration:
    return Duration(round(count * HOUR))


def later(count: float) -> Instant:
    return Instant(START + hours(count))
