"""`trainmaster job`: submit training jobs, see how they are and why, end them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from trainmaster.cli.client import Client, complete_jobs, connect, job_path
from trainmaster.cli.errors import Unreachable, WrongUsage
from trainmaster.cli.follow import Json, Lines, Screen, Teller, follow, judge
from trainmaster.cli.job_account import incidents, report
from trainmaster.cli.job_looks import diagnose, stacks
from trainmaster.cli.job_show import constant, show
from trainmaster.cli.options import Change, Noun, changes, check_writable, settings_flags, shows
from trainmaster.cli.output import Column, Output, instant_text, say
from trainmaster.cli.words import DURATION, ENDED, hosts_text, job_state, reason_text, section, small_table
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import JobId
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.value import Value
from trainmaster.core.words import count_text
from trainmaster.live.server.resources import (
    ChangeReport,
    Hosts,
    HostView,
    JobChange,
    JobDetail,
    Jobs,
    JobSubmission,
    JobView,
    SavesView,
    SubmitReport,
)


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster job submit job.toml --watch", "submit, and see it run"),
        ("trainmaster job ls", "what runs and what waits"),
        ("trainmaster job why llama", "why it waits, and what to do"),
    ],
)
def job() -> None:
    """Submit training jobs, see how they are, and end them."""


_job_argument = click.argument("name", metavar="JOB", shell_complete=complete_jobs)
"""An id, or the name of the newest job of that name."""


# Submitting


@job.command(
    examples=[
        ("trainmaster job submit job.toml", "prints the id of the job"),
        ("trainmaster job submit job.toml --dry-run", "check it, and see where it would start"),
        ("trainmaster job submit job.toml --wait --timeout 2h", "for scripts: exit code 0 when it finished"),
    ],
    exit_codes=(0, 1, 2, 5, 6, 130),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check the job and show where it would start; submit nothing.")
@click.option("--wait", is_flag=True, help="Wait until the job ends; exit code 1 unless it finished.")
@click.option("--watch", is_flag=True, help="Wait, and tell what happens.")
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Wait no longer (exit code 6): 90s, 10m, 2h.")
@shows
def submit(file: Path, dry_run: bool, wait: bool, watch: bool, timeout: float | None, output: Output) -> None:
    """Submit the job that a job file describes."""
    from trainmaster.live.jobfile import load

    if timeout is not None and not (wait or watch):
        raise WrongUsage("--timeout is for --wait and --watch", fix="add --wait")
    check_writable(dry_run)
    spec = load(file)
    _refuse_unusable(spec.checkpoint.directory)
    client = connect()
    report = client.post("/v1/jobs", JobSubmission(spec=spec, dry_run=dry_run), SubmitReport)
    _print_submitted(report, spec.name, output)
    if dry_run or report.job is None or not (wait or watch):
        return
    detail = client.get(job_path(report.job), JobDetail)
    teller: Teller = Lines(sys.stderr)
    if watch and sys.stderr.isatty():
        teller = Screen(sys.stderr)
    judge(follow(client, detail, teller, timeout))


def _refuse_unusable(checkpoint_dir: str) -> None:
    """A directory of checkpoints that can't be. Only what this machine sees speaks against it: hosts may have mounts
    that it lacks, and each host looks for itself before it starts a rank."""
    from trainmaster.storage.directory import unusable

    seen = Path(checkpoint_dir).exists() or Path(checkpoint_dir).parent != Path("/")
    if checkpoint_dir and seen and (why := unusable(Path(checkpoint_dir))):
        fix = "name another dir under [checkpoint] in the job file, or make this one usable"
        raise WrongUsage(f"no checkpoint can be kept in {checkpoint_dir}", why, fix)


def _print_submitted(report: SubmitReport, name: str, output: Output) -> None:
    """The id alone on stdout, so that a script can take it; the rest is talk."""
    if output.form not in ("table", "wide", "name"):
        output.one("submit-report", report, [])
        return
    if report.job is not None:
        sys.stdout.write(f"{report.job}\n")
        sys.stdout.flush()
    if report.would_start_on:
        say(f"{name} {'would start' if report.dry_run else 'starts'} on {hosts_text(report.would_start_on)}")
    if report.waits is not None:
        say(f"{name} {'would wait' if report.dry_run else 'waits'}: {reason_text(report.waits)}")
    if report.dry_run:
        say("dry run: nothing was submitted")


# Looking


@job.command(
    examples=[
        ("trainmaster job ls", "what runs and what waits"),
        ("trainmaster job ls --all --sort -since", "ended ones too, the latest change first"),
        ("trainmaster job ls -o name", "ids for other commands"),
    ],
    exit_codes=(0, 2, 5, 6),
)
@click.option("--all", "everything", is_flag=True, help="Also jobs that have ended.")
@shows
def ls(everything: bool, output: Output) -> None:
    """List jobs that run or wait."""
    found = connect().get("/v1/jobs", Jobs, **({"all": 1} if everything else {}))
    columns = [
        Column("id", lambda item: item.id),
        Column("name", lambda item: item.name),
        Column("state", job_state, state=True),
        Column("hosts", lambda item: fold(item.hosts)),
        Column("step", lambda item: item.step if item.step >= 0 else None),
        Column("saved", lambda item: item.published_step if item.published_step >= 0 else None),
        Column("restarts", lambda item: item.restarts),
        Column("reason", lambda item: reason_text(item.reason)),
        Column("since", lambda item: item.since, lambda at: instant_text(at, found.at), wide=True),
        Column("priority", lambda item: item.priority, wide=True),
        Column("wanted", lambda item: item.hosts_wanted, wide=True),
        Column("spares", lambda item: fold(item.spares), wide=True),
        Column("attempt", lambda item: item.attempt, wide=True),
        Column("epoch", lambda item: item.epoch, wide=True),
    ]
    output.listing("job", found.items, columns, extra={"index": found.index, "at": found.at})


class Ahead(Value):
    """A job that gets hosts before this one."""

    id: JobId
    name: str
    hosts_wanted: int
    priority: int
    reason: str


class JobWhy(Value):
    """Why a job is as it is: the dominant reason, and what would change it."""

    job: JobId
    name: str
    state: str
    reason: Reason | None
    advice: str
    ahead: tuple[Ahead, ...]
    hosts_wanted: int
    """With spares."""
    hosts_free: int
    would_help: tuple[str, ...]
    saves: SavesView | None = None
    """How often it saves, and why."""


@job.command(
    examples=[
        ("trainmaster job why llama", "why it waits, re-forms, or failed"),
        ("trainmaster job why job-7 -o json", "with the numbers, for programs"),
        ("trainmaster explain not-enough-hosts", "what a token means"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@_job_argument
@shows
def why(name: str, output: Output) -> None:
    """Say why a job waits, re-forms or ended.

    The dominant reason, its numbers, what to do next, and for a job that waits: who is ahead, and what would help.
    """
    client = connect()
    detail = client.get(job_path(name), JobDetail)
    answer = explain(detail.job, client).but(saves=detail.saves)
    reason = answer.reason
    numbers = ", ".join(f"{key} {value}" for key, value in reason.numbers.items()) if reason else ""
    values: list[tuple[str, object]] = [
        ("job", f"{answer.job} {answer.name}"),
        ("state", answer.state),
        ("reason", str(reason.token) if reason else ""),
        ("why", reason.sentence if reason else f"nothing is wrong: it is {answer.state}"),
        ("numbers", numbers),
        ("next", answer.advice),
        ("saves", answer.saves.sentence if answer.saves is not None else ""),
    ]
    output.one("job-why", answer, [constant(name, value) for name, value in values])
    if output.form in ("table", "wide") and not output.columns and _wants_hosts(detail.job):
        _print_queue(answer, output)


def _print_queue(answer: JobWhy, output: Output) -> None:
    section(f"Wants {count_text(answer.hosts_wanted, 'host')} with spares, free now: {answer.hosts_free:,}")
    for line in answer.would_help:
        sys.stdout.write(f"  {line}\n")
    if answer.ahead:
        section("Ahead in the queue")
        columns = [
            Column("id", lambda row: row.id),
            Column("name", lambda row: row.name),
            Column("wanted", lambda row: row.hosts_wanted),
            Column("priority", lambda row: row.priority),
            Column("reason", lambda row: row.reason),
        ]
        small_table(output, answer.ahead, columns)


def explain(job: JobView, client: Client) -> JobWhy:
    """Asks for the queue and the hosts only if the job waits for hosts."""
    waiting = client.get("/v1/jobs", Jobs).items if job.state == "queued" else ()
    hosts = client.get("/v1/hosts", Hosts).items if _wants_hosts(job) else ()
    return JobWhy(
        job=job.id,
        name=job.name,
        state=job_state(job),
        reason=job.reason,
        advice=job.reason.token.advice if job.reason is not None else "Nothing.",
        ahead=ahead_of(job, waiting),
        hosts_wanted=job.hosts_wanted + job.spares_wanted,
        hosts_free=sum(_use(host) == "free" for host in hosts),
        would_help=would_help(hosts),
    )


def _wants_hosts(job: JobView) -> bool:
    return job.state == "queued" or (job.attempt_state == "re-forming" and job.reason is not None)


def ahead_of(job: JobView, jobs: Sequence[JobView]) -> tuple[Ahead, ...]:
    """Queued jobs with a higher priority, or the same and queued for longer; the first gets hosts first."""

    def order(item: JobView) -> tuple[int, int, int]:
        return (-item.priority, item.since, int(item.id.rpartition("-")[2]))

    before = [item for item in jobs if item.state == "queued" and order(item) < order(job)]
    return tuple(
        Ahead(
            id=item.id,
            name=item.name,
            hosts_wanted=item.hosts_wanted,
            priority=item.priority,
            reason=reason_text(item.reason),
        )
        for item in sorted(before, key=order)
    )


_USES: Final = {
    "used": "if jobs ended: {hosts} run {jobs}",
    "held": "if their holds were lifted: {hosts}",
    "verifying": "when they pass verification: {hosts}",
    "draining": "if their drain was taken back: {hosts}",
    "silent": "when their agents answer again: {hosts}",
    "expected": "when their agents are started: {hosts}",
    "out-planned": "when they are resumed: {hosts}",
    "out-failed": "when they are repaired and resumed: {hosts}",
}


def _use(host: HostView) -> str:
    """What keeps a host from a new job, or `free`."""
    if host.state != "ready":
        return host.state
    if host.holds:
        return "held"
    if not host.connected:
        return "silent"
    return "used" if host.attempt is not None else "free"


def would_help(hosts: Sequence[HostView]) -> tuple[str, ...]:
    """What would have to free up, a line a kind."""
    groups: dict[str, list[HostView]] = {}
    for host in hosts:
        groups.setdefault(_use(host), []).append(host)
    lines = []
    for use, template in _USES.items():
        members = groups.get(use, [])
        if members:
            jobs = sorted({host.attempt.rpartition(".a")[0] for host in members if host.attempt is not None})
            lines.append(template.format(hosts=hosts_text([host.id for host in members]), jobs=", ".join(jobs)))
    return tuple(lines)


@job.command(
    examples=[
        ("trainmaster job watch llama", "until it ends; exit code 0: finished"),
        ("trainmaster job watch job-7 -o jsonl", "events and figures for programs"),
        ("trainmaster job watch job-7 --timeout 10m", "no longer than that"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 6, 130),
)
@_job_argument
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Watch no longer (exit code 6): 90s, 10m, 2h.")
@shows
def watch(name: str, timeout: float | None, output: Output) -> None:
    """Tell what happens to a job until it ends. Ctrl-c ends the watching only."""
    client = connect()
    detail = client.get(job_path(name), JobDetail)
    teller: Teller = Lines(sys.stdout)
    if output.form in ("json", "jsonl", "yaml"):
        teller = Json(sys.stdout)
    elif sys.stdout.isatty():
        teller = Screen(sys.stdout)
    judge(follow(client, detail, teller, timeout))


for command in (show, incidents, report, diagnose, stacks):
    job.add_command(command)


@job.command(
    examples=[
        ("trainmaster job logs llama", "the last 100 lines of rank 0"),
        ("trainmaster job logs llama --rank 13 -n 1000", "of another rank"),
        ("trainmaster job logs llama --epoch 2", "of an earlier membership"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 6),
)
@_job_argument
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, help="Whose output.")
@click.option("--epoch", type=click.IntRange(min=1), metavar="N", help="Of which epoch; default: the newest.")
@click.option("-n", "--lines", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many.")
@settings_flags()
def logs(name: str, rank: int, epoch: int | None, lines: int) -> None:
    """Print the last lines that a rank wrote."""
    client = connect()
    text = client.text(job_path(name, "logs"), rank=rank, epoch=epoch or 0, lines=lines)
    if not text and epoch is None:
        text = _earlier_output(client, name, rank, lines)
    if not text:
        say(f"rank {rank} has written nothing" + (f" in epoch {epoch}" if epoch else ""))
        return
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _earlier_output(client: Client, name: str, rank: int, lines: int) -> str:
    """What a rank wrote in the newest epoch in which it wrote anything, before the newest; says which that is."""
    newest = client.get(job_path(name), JobDetail).job.epoch
    for epoch in range(newest - 1, 0, -1):
        try:
            text = client.text(job_path(name, "logs"), rank=rank, epoch=epoch, lines=lines)
        except Unreachable as error:  # often the host that was lost; an earlier epoch may have been elsewhere
            say(f"epoch {epoch} is unknown: {error.what}")
            continue
        if text:
            say(f"rank {rank} has written nothing in epoch {newest}, the newest; this is from epoch {epoch}")
            return text
    return ""


# Changing


@job.command(
    examples=[
        ('trainmaster job cancel llama --reason "wrong data"', "asks first"),
        ("trainmaster job cancel job-7 --dry-run", "what it would end"),
        ('trainmaster job cancel job-7 --reason "wrong data" --yes', "for scripts"),
    ],
    exit_codes=(0, 1, 2, 3, 4, 5, 6),
)
@_job_argument
@changes
@shows
def cancel(name: str, change: Change, output: Output) -> None:
    """End a job. What it did since its last checkpoint is lost."""
    _change("cancel", name, change, output)


@job.command(
    examples=[
        ('trainmaster job requeue llama --reason "new driver"', "save, leave the hosts, queue again"),
        ("trainmaster job requeue job-7 --dry-run", "what it would stop"),
        ('trainmaster job requeue job-7 --reason "disk was full" --yes', "a job that failed, once more"),
    ],
    exit_codes=(0, 1, 2, 3, 4, 5, 6),
)
@_job_argument
@changes
@shows
def requeue(name: str, change: Change, output: Output) -> None:
    """Send a job back to the queue.

    One that runs saves and leaves first; one that ended starts again.
    """
    _change("requeue", name, change, output)


def _change(verb: str, name: str, change: Change, output: Output) -> None:
    client = connect()
    detail = client.get(job_path(name), JobDetail)
    job = detail.job
    body = JobChange(reason=change.reason, dry_run=True)
    plan = client.post(job_path(job.id, verb), body, ChangeReport)
    if not change.dry_run:
        change.confirm(f"{verb} {_blast(detail)}")
        plan = client.post(job_path(job.id, verb), body.but(dry_run=False), ChangeReport)
    if output.form not in ("table", "wide"):
        output.one("change-report", plan, [Column("job", lambda _: job.id)])
    elif change.dry_run:
        sys.stdout.write(f"would {verb} {_blast(detail)}\n")
    else:
        sys.stdout.write(f"{plan.sentence or f'{verb} {job.id}'}\n")
    if change.dry_run:
        say(f"dry run at log index {plan.index}: nothing was changed")


def _blast(detail: JobDetail) -> str:
    """`llama (job-7, running) on 4 hosts h[1-4]; 120 steps since the last checkpoint`."""
    job = detail.job
    text = f"{job.name} ({job.id}, {job_state(job)})" + (f" on {hosts_text(job.hosts)}" if job.hosts else "")
    if job.state in ENDED or job.step < 0:
        return text
    return f"{text}; {count_text(job.step - max(job.published_step, 0), 'step')} since the last checkpoint"
