"""`trainmaster status`: one screen, what needs a person first."""

import sys
from collections.abc import Sequence

import click

from trainmaster.cli.client import connect
from trainmaster.cli.host import fold_hosts
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Output, duration_text
from trainmaster.cli.words import counts_text, hosts_text, job_state, reason_text
from trainmaster.core.words import count_text
from trainmaster.live.server.maintenance_resources import MaintenanceView
from trainmaster.live.server.resources import Hosts, HostView, Jobs, JobView, StatusView

ROWS_MAX = 20
"""Rows of one kind; the rest is counted, and the list command shows it."""


@click.command(
    cls=Command,
    examples=[
        ("trainmaster status", "one screen"),
        ("trainmaster status -o json", "the figures for programs"),
        ("watch -n 2 trainmaster status", "the same, again and again"),
    ],
    exit_codes=(0, 2, 5, 6),
)
@shows
def status(output: Output) -> None:
    """Show what needs a person, hosts by state, jobs, maintenance, and the server, on one screen."""
    client = connect()
    view = client.get("/v1/status", StatusView)
    if output.form not in ("table", "wide"):
        output.one("status", view, [])
        return
    hosts, jobs = client.get("/v1/hosts", Hosts), client.get("/v1/jobs", Jobs)
    lines = [*_attention(view), "", *_hosts(view, hosts.items), "", *_jobs(view, jobs.items), ""]
    lines += [*_maintenance(client.get("/v1/maintenance", MaintenanceView)), "", _server(view)]
    sys.stdout.write("\n".join(lines) + "\n")


def _attention(view: StatusView) -> list[str]:
    if not view.needs_attention:
        return ["needs you  nothing"]
    lines = [f"needs you  {count_text(len(view.needs_attention), 'thing')}"]
    for reason in view.needs_attention[:ROWS_MAX]:
        lines += [f"  {reason_text(reason)}", f"    try: {reason.token.advice}"]
    return lines + _rest(len(view.needs_attention), "trainmaster status -o json")


def _hosts(view: StatusView, hosts: Sequence[HostView]) -> list[str]:
    total = sum(view.hosts_by_state.values())
    lines = [f"hosts      {total:,} with {count_text(view.gpus, 'GPU')}: {counts_text(view.hosts_by_state) or 'none'}"]
    groups = fold_hosts([host for host in hosts if host.state != "ready" or host.holds or not host.connected])
    for group in groups[:ROWS_MAX]:
        gone = "" if group.connected or group.state in ("expected", "out-failed") else ", agent not connected"
        lines.append(f"  {group.state:<11}  {group.hosts}: {group.reason or 'no reason is known'}{gone}")
    return lines + _rest(len(groups), "trainmaster host ls --fold")


def _jobs(view: StatusView, jobs: Sequence[JobView]) -> list[str]:
    lines = [f"jobs       {counts_text(view.jobs_by_state) or 'none'}"]
    for job in jobs[:ROWS_MAX]:
        facts = [f"{job.id} {job.name}"]
        if job.hosts:
            facts.append(hosts_text(job.hosts))
        if job.step >= 0:
            facts.append(f"step {job.step:,}")
        if job.reason is not None:
            facts.append(reason_text(job.reason))
        lines.append(f"  {job_state(job):<11}  {', '.join(facts)}")
    return lines + _rest(len(jobs), "trainmaster job ls")


def _maintenance(view: MaintenanceView) -> list[str]:
    """Nothing where no catalogue is declared: then nothing can be asked for."""
    if not view.catalogue:
        return ["maint      no catalogue is declared"]
    out = f"; units out: {counts_text(view.visits)}" if view.visits else ""
    lines = [f"maint      operations: {counts_text(view.live) or 'none under way'}{out}"]
    if view.waits:
        lines.append(f"  waiting      {counts_text(view.waits)}")
    for train in view.trains[:ROWS_MAX]:
        reason = train.paused or train.reason
        facts = f"{train.name}, {train.visited} of {count_text(train.units, 'unit')} visited"
        facts += f", {reason_text(reason)}" if reason is not None else ""
        lines.append(f"  {'paused' if train.paused is not None else train.state:<11}  train {facts}")
    for one in view.rollouts[:ROWS_MAX]:
        facts = f"{one.id} {one.component} {one.version}, {one.carriers} of {count_text(one.pool, 'host')}"
        lines.append(f"  {one.state:<11}  rollout {facts}")
    return lines + _rest(max(len(view.trains), len(view.rollouts)), "trainmaster maint ls trains")


def _server(view: StatusView) -> str:
    age = duration_text(max(0, view.at - view.started_at))
    return f"server     version {view.version}, up {age}, lease {view.lease}, log index {view.index:,}"


def _rest(count: int, command: str) -> list[str]:
    return [f"  and {count - ROWS_MAX:,} more: {command}"] if count > ROWS_MAX else []
