"""`trainmaster event`: the log, in words."""

from collections.abc import Callable, Iterator
from typing import Final

import click

from trainmaster.cli.client import Client, Pause, complete_hosts, complete_jobs, connect, host_path, job_path
from trainmaster.cli.options import Noun, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.cli.words import clock_text
from trainmaster.core.base.ids import HostId, job_of
from trainmaster.core.scheduling.events import JobSubmitted
from trainmaster.live.server.resources import Events, HostView, JobDetail, LoggedEvent, StatusView

PAGE: Final = 1_000
LOOK_BACK_MAX: Final = 50_000
"""Events that `tail` looks through for those of one job or host; more would keep a server busy for a tail."""

Filter = Callable[[LoggedEvent], bool]


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster event tail", "the last twenty events"),
        ("trainmaster event tail --job llama --follow", "those of one job, as they happen"),
        ("trainmaster event tail -n 1000 -o jsonl", "for programs"),
    ],
)
def event() -> None:
    """Read the log of events."""


@event.command(
    examples=[
        ("trainmaster event tail", "the last twenty events"),
        ("trainmaster event tail --host gpu-017 -n 5", "the last five of one host"),
        ("trainmaster event tail --follow -o jsonl", "all that happens from now on, a line each"),
    ],
    exit_codes=(0, 2, 3, 5, 6, 130),
)
@click.option("-n", "--lines", type=click.IntRange(0, LOOK_BACK_MAX), default=20, show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until interrupted.")
@click.option("--job", metavar="JOB", help="Only events of this job.", shell_complete=complete_jobs)
@click.option("--host", metavar="HOST", help="Only events of this host.", shell_complete=complete_hosts)
@shows
def tail(lines: int, follow: bool, job: str | None, host: str | None, output: Output) -> None:
    """Show the last events, oldest first."""
    client = connect()
    wanted = _filter(client, job, host)
    end = client.get("/v1/status", StatusView).index
    found = last_events(client, wanted, lines, end)
    columns = [
        Column("index", lambda item: item.index),
        Column("time", lambda item: item.event.at, clock_text),
        Column("event", lambda item: item.sentence),
        Column("type", lambda item: item.event.__struct_config__.tag, wide=True),
    ]
    if found or not follow:
        output.listing("event", found, columns)
    if follow:
        rest = Output(output.form, output.columns, "", False, "always" if output.color else "never")
        rest.form = "jsonl" if rest.form in ("json", "yaml") else rest.form
        for item in _follow(client, end + 1):
            if wanted(item):
                rest.listing("event", [item], columns)


def last_events(client: Client, wanted: Filter, count: int, end: int) -> list[LoggedEvent]:
    """The last `count` wanted events up to index `end`, oldest first."""
    found: list[LoggedEvent] = []
    oldest = max(1, end - LOOK_BACK_MAX + 1)
    while end >= oldest and len(found) < count:
        size = min(PAGE, end - oldest + 1)
        page = client.get("/v1/events", Events, since=end - size + 1, limit=size).items
        found = [item for item in page if item.index <= end and wanted(item)] + found
        end -= size
    if end > 0 and len(found) < count:
        say(f"looked through the last {LOOK_BACK_MAX:,} events only")
    return found[-count:] if count else []


def _follow(client: Client, since: int) -> Iterator[LoggedEvent]:
    lost = False
    for heard in client.watch(since):
        if isinstance(heard, LoggedEvent):
            yield heard
        if isinstance(heard, Pause) and bool(heard.lost) != lost:
            lost = bool(heard.lost)
            say(f"the server went away ({heard.lost}); trying again" if lost else "the server is back")


def _filter(client: Client, job: str | None, host: str | None) -> Filter:
    """Raises `NoSuchThing` for a job or a host that does not exist."""
    of_job = _is_of_job(client.get(job_path(job), JobDetail)) if job else _all
    of_host = _is_of_host(client.get(host_path(host), HostView).id) if host else _all
    return lambda item: of_job(item) and of_host(item)


def _all(item: LoggedEvent) -> bool:
    return True


def _is_of_job(detail: JobDetail) -> Filter:
    """The submission carries no id yet: it is the one of this name at this instant."""
    job = detail.job.id

    def is_of(item: LoggedEvent) -> bool:
        happened = item.event
        if isinstance(happened, JobSubmitted):
            return happened.at == detail.submitted_at and happened.spec.name == detail.spec.name
        attempt = getattr(happened, "attempt", None)
        return getattr(happened, "job", None) == job or (attempt is not None and job_of(attempt) == job)

    return is_of


def _is_of_host(host: HostId) -> Filter:
    def is_of(item: LoggedEvent) -> bool:
        happened = item.event
        named = getattr(happened, "hosts", ())
        return getattr(happened, "host", None) == host or any(getattr(each, "id", each) == host for each in named)

    return is_of
