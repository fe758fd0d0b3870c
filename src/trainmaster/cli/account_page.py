"""Accounts as HTML pages that need nothing else: the life of a job as a picture, what it lost, and to what."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from trainmaster.cli.job_account import away_s, gpu_time_text, ranked, ranks_text
from trainmaster.cli.output import duration_text, instant_text
from trainmaster.cli.report import headline
from trainmaster.core.accounting.fleet import CauseLine, causes, lost_gpu_s
from trainmaster.core.accounting.report import Incident
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.time import seconds
from trainmaster.core.words import count_text
from trainmaster.demo import drawing
from trainmaster.demo.lanes import Lanes, Stay
from trainmaster.demo.page import document, table
from trainmaster.live.server.resources import FleetReport, JobDetail, JobTimeline

LANES_MAX: Final = 24
MARKS_MAX: Final = 8
INCIDENTS_MAX: Final = 500


def job_page(detail: JobDetail, found: JobTimeline) -> str:
    """The page of one job."""
    account, job = detail.account, detail.job
    wall = duration_text(seconds(account.wall_s))
    lost = gpu_time_text(lost_gpu_s(account), account.unit)
    told = (
        f"{account.goodput:.1%} of {wall} was productive; {lost} on {count_text(account.gpus, account.unit)} were not"
    )
    lines = causes(account.losses, account.incidents)
    worst = sorted(account.incidents, key=lambda item: -item.lost_s)[:INCIDENTS_MAX]
    more = len(account.incidents) - len(worst)
    return document(
        [
            f"<h1>{escape(job.name)} ({escape(job.id)}): where its time went</h1>",
            f"<p>{escape(told)}. {escape(instant_text(detail.at, detail.at))}</p>",
            picture(detail, found),
            "<h2>Lost, by cause</h2>",
            _causes(lines, account.unit),
            f"<h2>Incidents{f', the worst {len(worst)} of {len(account.incidents):,}' if more else ''}</h2>",
            table(_INCIDENT_HEAD, (_row(item, account.unit) for item in worst)),
            "<h2>Where the seconds went</h2>",
            table(("phase", "seconds", "share"), _phases(account.seconds_by_phase, account.wall_s)),
        ],
        f"{job.name}: where its time went",
    )


def fleet_page(found: FleetReport) -> str:
    """The page of all jobs."""
    account = found.account
    rows = (
        (
            escape(f"{line.name} ({line.id})"),
            line.state,
            f"{line.hosts:,}",
            f"{line.account.goodput:.1%}",
            gpu_time_text(lost_gpu_s(line.account), line.account.unit),
            f"{len(line.account.incidents):,}",
        )
        for line in account.jobs
    )
    return document(
        [
            "<h1>Where the fleet's time went</h1>",
            *(f"<p>{escape(line)}</p>" for line in headline(account)),
            "<h2>Lost, by cause</h2>",
            _causes(account.causes, account.unit),
            "<h2>Jobs</h2>",
            table(("job", "state", "hosts", "goodput", "lost", "incidents"), rows),
        ],
        "Where the fleet's time went",
    )


def picture(detail: JobDetail, found: JobTimeline) -> str:
    """The life of the job: its phases, and when hosts that came or went were members."""
    names = list(dict.fromkeys(stay.host for stay in found.members))[:LANES_MAX]
    shown = tuple(
        Stay(host=stay.host, start=stay.start, end=stay.end, what="member")
        for stay in found.members
        if stay.host in names
    )
    lanes = Lanes(hosts=shown, job=found.spans, start=found.start, end=found.end)
    hosts, bottom = drawing.host_lanes(lanes)
    height = bottom + 84
    account = detail.account
    body = [
        drawing.title(
            f"{detail.job.name} ({detail.job.id})",
            f"goodput {account.goodput:.1%} · {count_text(len(account.incidents), 'incident')}"
            f" · {account.steps_lost_unplanned + account.steps_lost_planned:,} steps lost",
        ),
        *drawing.axis(lanes, bottom),
        *drawing.job_lane(lanes),
        *hosts,
    ]
    worst = sorted(account.incidents, key=lambda item: -item.lost_s)[:MARKS_MAX]
    for place, item in enumerate(sorted(worst, key=lambda item: item.last_step_at)):
        words = f"{item.cause.token.value} {fold(item.hosts)}".strip()
        body.append(drawing.mark(lanes, item.last_step_at, words, bottom, rise=place % 2))
    body += drawing.legend({span.phase for span in found.spans} | {stay.what for stay in shown}, height - 34)
    return drawing.document(body, height)


def _causes(lines: Sequence[CauseLine], unit: str) -> str:
    most = max((line.gpu_s for line in lines), default=0.0) or 1.0
    rows = (
        (
            escape(line.cause),
            f"{line.incidents:,}" if line.incidents else "",
            gpu_time_text(line.gpu_s, unit),
            _bar(line, most),
            escape(", ".join(f"{phase} {gpu_time_text(lost, unit)}" for phase, lost in ranked(line.gpu_s_by_phase))),
        )
        for line in lines
    )
    return table(("cause", "incidents", "lost", "", "by phase"), rows)


def _bar(line: CauseLine, most: float) -> str:
    """Its phases, one behind the other, in the colours of the picture."""
    x, boxes = 0.0, []
    for phase, lost in ranked(line.gpu_s_by_phase):
        width = 240 * lost / most
        colour = drawing.COLOURS.get(phase, "#999999")
        boxes.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="14" fill="{colour}"/>')
        x += width
    return f'<svg width="240" height="14">{"".join(boxes)}</svg>'


_INCIDENT_HEAD: Final = ("at", "", "cause", "where", "ranks", "away", "steps lost", "lost", "why", "seconds by phase")


def _row(item: Incident, unit: str) -> tuple[str, ...]:
    away = away_s(item)
    source = {"restore": f" from {item.restored_from}"} if item.restored_from else {}
    phases = ", ".join(
        f"{phase} {length:.1f}{source.get(phase, '')}" for phase, length in item.seconds_by_phase.items() if length > 0
    )
    cells = (
        instant_text(item.detected_at, item.detected_at).partition(" (")[0],
        "planned" if item.planned else "unplanned",
        item.cause.token.value,
        fold(item.hosts),
        ranks_text(item.ranks),
        f"{away:.1f} s" if away is not None else "not resumed",
        f"{item.steps_lost:,}",
        gpu_time_text(item.lost_gpu_s, unit),
        item.cause.sentence,
        phases,
    )
    return tuple(escape(cell) for cell in cells)


def _phases(spent: dict[str, float], wall_s: float) -> Iterable[tuple[str, ...]]:
    for phase, length in ranked(spent):
        yield phase.replace("_", " "), f"{length:.1f}", f"{length / wall_s:.1%}" if wall_s else ""
    yield "<b>wall</b>", f"<b>{wall_s:.1f}</b>", ""
