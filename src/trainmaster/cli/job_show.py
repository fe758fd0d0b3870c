"""`trainmaster job show`: one job on one page: where it runs, how far it is, what it lost and to what."""

import click

from trainmaster.cli.client import complete_jobs, connect, job_path
from trainmaster.cli.job_account import cause_columns, gpu_time_text, incident_columns
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, duration_text, instant_text
from trainmaster.cli.words import job_state, loss_text, reason_text, section, small_table
from trainmaster.core.accounting.fleet import causes, lost_gpu_s
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.time import seconds
from trainmaster.core.words import count_text
from trainmaster.live.server.resources import JobDetail, SavesView

WORST = 5
"""Causes and incidents that are shown; the rest is told by `job incidents`."""


@click.command(
    cls=Command,
    examples=[
        ("trainmaster job show llama", "the newest job of this name"),
        ("trainmaster job show job-7 -o json", "everything, for programs"),
        ("trainmaster job show job-7 --columns goodput,restarts", "two fields"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@click.argument("name", metavar="JOB", shell_complete=complete_jobs)
@shows
def show(name: str, output: Output) -> None:
    """Show one job.

    Where it runs, how far it is, what it lost and to what, and where its things lie.
    """
    detail = connect().get(job_path(name), JobDetail)
    output.one("job", detail, _fields(detail))
    if output.form in ("table", "wide") and not output.columns:
        _print_time(detail, output)
        _print_lost(detail, output)


def _print_time(detail: JobDetail, output: Output) -> None:
    spent = sorted(detail.account.seconds_by_phase.items(), key=lambda item: -item[1])
    if not any(value > 0 for _, value in spent):
        return
    wall = detail.account.wall_s
    section("Time")
    columns = [
        Column("phase", lambda row: row[0]),
        Column("seconds", lambda row: round(row[1], 1)),
        Column("share", lambda row: row[1] / wall if wall else 0.0, lambda share: f"{share:.1%}"),
    ]
    small_table(output, [row for row in spent if row[1] > 0], columns)


def _print_lost(detail: JobDetail, output: Output) -> None:
    """The worst causes and the worst incidents."""
    account, job = detail.account, detail.job
    worst = causes(account.losses, account.incidents)
    if worst:
        section(f"Lost: {gpu_time_text(lost_gpu_s(account), account.unit)}")
        small_table(output, worst[:WORST], cause_columns(account.unit))
    if account.incidents:
        more = len(account.incidents) - WORST
        rest = f", the worst {WORST}; all: trainmaster job incidents {job.name}" if more > 0 else ""
        section(f"Incidents: {len(account.incidents):,}{rest}")
        at = Column("at", lambda item: item.detected_at, lambda instant: instant_text(instant, detail.at))
        shown = sorted(account.incidents, key=lambda item: -item.lost_s)[:WORST]
        small_table(output, sorted(shown, key=lambda item: item.detected_at), [at, *incident_columns(account.unit)])


def _fields(detail: JobDetail) -> list[Column]:
    job, spec, told, account = detail.job, detail.spec, detail.progress, detail.account
    figures = f"step {job.step:,}" if job.step >= 0 else ""
    if told is not None and told.step >= 0:
        figures = f"step {max(job.step, told.step):,}, loss {loss_text(told.loss)}, {told.step_s:.3f} s/step"
        figures += f" ({_age(detail, told.step_at)} ago)"
    saved = f"step {job.published_step:,}" if job.published_step >= 0 else ""
    ranks = count_text(spec.hosts * spec.ranks_per_host, "rank")
    values: list[tuple[str, object]] = [
        ("job", f"{job.id} {job.name}"),
        ("state", job_state(job)),
        ("reason", reason_text(job.reason)),
        ("since", instant_text(job.since, detail.at)),
        ("submitted", f"{instant_text(detail.submitted_at, detail.at)} by {detail.by}"),
        ("command", " ".join(spec.command)),
        ("size", f"{ranks} on {count_text(spec.hosts, 'host')}, {count_text(spec.spares, 'spare')} wanted"),
        ("hosts", fold(job.hosts)),
        ("spares", fold(job.spares)),
        ("attempt", f"{job.attempt} epoch {job.epoch}" if job.attempt else ""),
        ("progress", figures),
        ("saved", saved),
        ("saves", _saves(detail.saves)),
        ("goodput", _goodput(detail)),
        ("restarts", job.restarts),
        ("lost steps", f"{account.steps_lost_unplanned:,} unplanned, {account.steps_lost_planned:,} planned"),
        ("directory", detail.directory),
        ("checkpoints", spec.checkpoint.directory or "in its directory"),
    ]
    return [constant(name, value) for name, value in values]


def _goodput(detail: JobDetail) -> str:
    """Where no step was ever reported, the share of time that went into steps is not known, which is not 0 %."""
    account = detail.account
    if not account.wall_s:
        return ""
    wall = duration_text(seconds(account.wall_s))
    return f"{account.goodput:.1%} of {wall}" if detail.job.step >= 0 else f"unknown, no step was reported in {wall}"


def _age(detail: JobDetail, at: int) -> str:
    return duration_text(max(0, detail.at - at))


def constant(name: str, value: object) -> Column:
    """A field whose value is known already."""
    return Column(name, lambda _: value, state=name == "state")


def _saves(saves: SavesView | None) -> str:
    """How often, in short; `job why` tells the rest."""
    if saves is None or saves.choice is None:
        return saves.sentence if saves is not None else ""
    storage, expected = saves.choice.tiers[-1], saves.choice.efficiency
    every = f"every {count_text(storage.every_steps, 'step')}"
    return f"{every} ({duration_text(seconds(storage.interval_s))}), chosen: {expected:.1%} expected"
