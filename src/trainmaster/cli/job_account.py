"""`trainmaster job incidents` and `job report`: where the time of a job went, and to what."""

from pathlib import Path

import click

from trainmaster.cli.client import complete_jobs, connect, job_path
from trainmaster.cli.errors import Failed
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, instant_text, say
from trainmaster.core.accounting.report import Incident
from trainmaster.core.base.hostlist import fold
from trainmaster.live.server.resources import JobDetail, JobTimeline


def gpu_time_text(gpu_s: float, unit: str) -> str:
    """`12.3 GPU-s`, `12.3 GPU-h`."""
    return f"{gpu_s:,.1f} {unit}-s" if gpu_s < 36_000 else f"{gpu_s / 3600:,.1f} {unit}-h"


def ranks_text(ranks: tuple[int, ...]) -> str:
    """`3`, `8-15`, `0-3,8-11`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def away_s(incident: Incident) -> float | None:
    """From the last step before it to the first one after it; None: there is none yet."""
    return round((incident.resumed_at - incident.last_step_at) / 1e6, 1) if incident.resumed_at is not None else None


def ranked(shares: dict[str, float]) -> list[tuple[str, float]]:
    """The greatest first."""
    return sorted(shares.items(), key=lambda item: -item[1])


def cause_columns(unit: str) -> list[Column]:
    """Of a `CauseLine`."""
    return [
        Column("cause", lambda line: line.cause),
        Column("incidents", lambda line: line.incidents),
        Column("lost", lambda line: line.gpu_s, lambda lost: gpu_time_text(lost, unit)),
        Column("mostly", lambda line: ", ".join(phase for phase, _ in ranked(line.gpu_s_by_phase)[:3])),
    ]


def incident_columns(unit: str) -> list[Column]:
    """Of an `Incident`, without its time."""
    return [
        Column("kind", lambda item: "planned" if item.planned else "unplanned"),
        Column("cause", lambda item: item.cause.token.value),
        Column("where", lambda item: fold(item.hosts)),
        Column("ranks", lambda item: ranks_text(item.ranks)),
        Column("epoch", lambda item: item.epoch, wide=True),
        Column("left", lambda item: fold(item.left), wide=True),
        Column("joined", lambda item: fold(item.joined), wide=True),
        Column("restored_from", lambda item: item.restored_from, wide=True),
        Column("stayed", lambda item: item.stayed, wide=True),
        Column("started", lambda item: item.started, wide=True),
        Column("away_s", away_s),
        Column("steps_lost", lambda item: item.steps_lost),
        Column("replay_s", lambda item: round(item.seconds_by_phase.get("replay", 0.0), 1), wide=True),
        Column("lost", lambda item: item.lost_gpu_s, lambda lost: gpu_time_text(lost, unit)),
        Column("sentence", lambda item: item.cause.sentence),
    ]


_job_argument = click.argument("name", metavar="JOB", shell_complete=complete_jobs)


@click.command(
    cls=Command,
    examples=[
        ("trainmaster job incidents llama", "what interrupted it, and what that cost"),
        ("trainmaster job incidents llama --sort -lost", "the worst first"),
        ("trainmaster job incidents job-7 -o json", "with seconds by phase, for programs"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@_job_argument
@shows
def incidents(name: str, output: Output) -> None:
    """List what interrupted a job, and what each cost.

    One record an incident: cause, hosts, ranks, steps that were lost, and GPU-seconds from the last step before it to
    the first one after it, with the steps that were done again.
    """
    detail = connect().get(job_path(name), JobDetail)
    account = detail.account
    at = Column("at", lambda item: item.detected_at, lambda instant: instant_text(instant, detail.at))
    extra = {"index": detail.index, "job": detail.job.id, "gpus": account.gpus, "unit": account.unit}
    none = f"nothing has interrupted {detail.job.name} ({detail.job.id})"
    output.listing("incident", account.incidents, [at, *incident_columns(account.unit)], extra=extra, empty=none)


@click.command(
    cls=Command,
    examples=[
        ("trainmaster job report llama --out llama.html", "one page, with a picture of its life"),
        ("trainmaster job incidents llama", "the same records as a list"),
        ("trainmaster report", "all jobs together"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 6),
)
@_job_argument
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The page to write.")
@shows
def report(name: str, out: Path, output: Output) -> None:
    """Write a page about where a job's time went.

    One HTML file that needs nothing else: a picture of its life, what it lost by cause, and every incident.
    """
    from trainmaster.cli.account_page import job_page

    client = connect()
    detail = client.get(job_path(name), JobDetail)
    found = client.get(job_path(detail.job.id, "timeline"), JobTimeline)
    try:
        out.write_text(job_page(detail, found))
    except OSError as error:
        raise Failed(f"{out} can't be written: {error}", fix="choose another place with --out") from error
    if output.form not in ("table", "wide"):
        output.one("job-account", detail.account, [])
    else:
        say(f"wrote {out}")
