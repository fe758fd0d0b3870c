"""`trainmaster host`: the hosts of the fleet, who holds them and why, and taking them out and back.

A change is planned by the server (the same code as the change itself), shown with what it hits, agreed to, and planned
again before it is sent: between the question and the answer the fleet moves on, and nobody should have agreed to
something else. Comparing the two plans was preferred to comparing log indexes, which move all the time.
"""

import re
from collections.abc import Sequence
from typing import Final

import click

from trainmaster.cli.client import Client, complete_hosts, connect, host_path
from trainmaster.cli.errors import Failed, PartlyDone, WorldMoved, WrongUsage
from trainmaster.cli.health_lines import host_lines
from trainmaster.cli.options import Change, Noun, changes, shows
from trainmaster.cli.output import Column, Output, duration_text, instant_text, say
from trainmaster.cli.words import DURATION, holds_text, hosts_text, visit_text, why_host
from trainmaster.core.base.hostlist import fold, parse
from trainmaster.core.base.ids import HostId, Owner
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.maintenance.visit import MAINTENANCE
from trainmaster.core.words import count_text
from trainmaster.live.server.health_resources import HostHealth
from trainmaster.live.server.resources import ChangeReport, History, HostChangeItem, Hosts, HostsChange, HostView

STATES: Final = tuple(state.value for state in HostState)


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster host ls --fold", "all hosts, a row for each state and reason"),
        ("trainmaster host why gpu-017", "why it takes no work"),
        ('trainmaster host drain gpu-[017-020] --reason "new firmware"', "no new work; what runs is moved"),
    ],
)
def host() -> None:
    """See hosts, take them out of work and put them back."""


# Looking


class FoldedHosts(Value):
    """Hosts that are alike: one row of `ls --fold`."""

    hosts: str
    host_count: int
    gpus: int
    state: str
    connected: bool
    reason: str


@host.command(
    examples=[
        ("trainmaster host ls", "all hosts"),
        ("trainmaster host ls -w 'gpu-[001-064]' -x gpu-007 --state draining", "some of them"),
        ("trainmaster host ls --fold", "a row for each state and reason"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@click.option("-w", "--hosts", metavar="LIST", default="", help="Only these hosts.", shell_complete=complete_hosts)
@click.option("-x", "--exclude", metavar="LIST", default="", help="Leave these out.", shell_complete=complete_hosts)
@click.option("--state", type=click.Choice(STATES), help="Only hosts in this state.")
@click.option("--fold", "folded", is_flag=True, help="A row for each state and reason, with a host list.")
@shows
def ls(hosts: str, exclude: str, state: str | None, folded: bool, output: Output) -> None:
    """List hosts."""
    client = connect()
    query = {**({"hosts": hosts} if hosts else {}), **({"state": state} if state else {})}
    found = client.get("/v1/hosts", Hosts, **query)
    out = set(parse(exclude)) if exclude else set()
    items = [item for item in found.items if item.id not in out]
    extra = {"index": found.index, "at": found.at}
    if folded:
        output.listing("host-group", fold_hosts(items), _FOLDED_COLUMNS, extra)
    else:
        output.listing("host", items, host_columns(found.at), extra)


def host_columns(now: Instant) -> list[Column]:
    return [
        Column("host", lambda item: item.id),
        Column("state", lambda item: item.state, state=True),
        Column("gpus", lambda item: item.gpus),
        Column("attempt", lambda item: item.attempt),
        Column("role", lambda item: item.role),
        Column("heard", lambda item: item.heartbeat_at, lambda at: _age(at, now)),
        Column("reason", why_host),
        Column("since", lambda item: item.since, lambda at: instant_text(at, now), wide=True),
        Column("connected", lambda item: item.connected, wide=True),
        Column("cluster", lambda item: item.cluster, wide=True),
        Column("pod", lambda item: item.pod, wide=True),
        Column("rack", lambda item: item.rack, wide=True),
        Column("platform", lambda item: item.platform, wide=True),
    ]


_FOLDED_COLUMNS: Final = [
    Column("hosts", lambda row: row.hosts),
    Column("count", lambda row: row.host_count),
    Column("gpus", lambda row: row.gpus),
    Column("state", lambda row: row.state, state=True),
    Column("connected", lambda row: row.connected, wide=True),
    Column("reason", lambda row: row.reason),
]


def fold_hosts(items: Sequence[HostView]) -> list[FoldedHosts]:
    """Hosts of equal state and reason together, in the order of the host's life. A host's own name in its reason would
    keep every host apart, so it is written as HOST there."""
    groups: dict[tuple[int, str, bool, str], list[HostView]] = {}
    for item in items:
        place = STATES.index(item.state) if item.state in STATES else len(STATES)
        reason = why_host(item).replace(item.id, "HOST")
        groups.setdefault((place, item.state, item.connected, reason), []).append(item)
    return [
        FoldedHosts(
            hosts=fold(item.id for item in members),
            host_count=len(members),
            gpus=sum(item.gpus for item in members),
            state=state,
            connected=connected,
            reason=reason if len(members) > 1 else why_host(members[0]),
        )
        for (_, state, connected, reason), members in sorted(groups.items(), key=lambda group: group[0])
    ]


def _age(at: Instant | None, now: Instant) -> str:
    return f"{duration_text(max(0, now - at))} ago" if at else "never"


_name_argument = click.argument("name", metavar="HOST", shell_complete=complete_hosts)


@host.command(
    examples=[
        ("trainmaster host show gpu-017", "everything that is known of it"),
        ("trainmaster host show gpu-017 -o json", "for programs"),
        ("trainmaster host show gpu-017 --columns state,holds", "two fields"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@_name_argument
@shows
def show(name: str, output: Output) -> None:
    """Show one host."""
    output.one("host", connect().get(host_path(name), HostView), _FIELDS)


_FIELDS: Final = [
    Column("host", lambda item: item.id),
    Column("state", lambda item: item.state, state=True),
    Column("reason", lambda item: item.reason),
    Column("holds", holds_text),
    Column("since", lambda item: item.since, instant_text),
    Column("connected", lambda item: item.connected),
    Column("heard", lambda item: item.heartbeat_at, instant_text),
    Column("attempt", lambda item: item.attempt),
    Column("role", lambda item: item.role),
    Column("gpus", lambda item: item.gpus),
    Column("platform", lambda item: item.platform),
    Column("cluster", lambda item: item.cluster),
    Column("pod", lambda item: item.pod),
    Column("rack", lambda item: item.rack),
    Column("boot", lambda item: item.boot),
    Column("kind", lambda item: item.kind),
    Column("maintenance", visit_text),
    Column("must pass", lambda item: ", ".join(item.demands)),
    Column("versions", lambda item: ", ".join(f"{name} {version}" for name, version in sorted(item.versions.items()))),
]


class HostWhy(Value):
    """Why a host is as it is, and what would change it."""

    host: HostId
    state: str
    takes_work: bool
    why: tuple[str, ...]
    next: str


@host.command(
    examples=[
        ("trainmaster host why gpu-017", "why it takes no work"),
        ("trainmaster host why gpu-017 -o json", "for programs"),
        ("trainmaster host why gpu-017 && echo takes work", "exit code 1: it takes none"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 6),
)
@_name_argument
@shows
def why(name: str, output: Output) -> int:
    """Say why a host takes work or not.

    And what to do about it. Exit code 1: it takes none.
    """
    client = connect()
    item, health = client.get(host_path(name), HostView), client.get(host_path(name, "health"), HostHealth)
    answer = explain(item, host_lines(health.verdict))
    fields = [
        Column("host", lambda item: item.host),
        Column("state", lambda item: item.state, state=True),
        Column("takes work", lambda item: item.takes_work),
        Column("why", lambda item: "; ".join(item.why)),
        Column("next", lambda item: item.next),
    ]
    output.one("host-why", answer, fields)
    return 0 if answer.takes_work else 1


_NEXT: Final = {
    "expected": "start its agent: trainmaster agent run",
    "verifying": "wait; verification has a deadline of a few minutes",
    "draining": "wait until its job has moved, or take the drain back: trainmaster host resume HOST",
    "out-planned": "trainmaster host resume HOST, when the work on it is done",
    "out-failed": "repair it, then: trainmaster host resume HOST",
}


def _lifted_by(host: HostId, owner: Owner) -> str:
    """What lifts a hold of this owner."""
    if owner == MAINTENANCE:
        return "maintenance lifts its own hold at the end of its visit"
    if owner == HEALTH:
        return f"health lifts its own hold when {host} is repaired; if you did it: trainmaster health release {host}"
    if owner.startswith("policy:"):
        return f"trainmaster host resume {host} --owner {owner}"
    return f"trainmaster host resume {host}, by {owner}"


def explain(item: HostView, health: Sequence[str] = ()) -> HostWhy:
    """`health`: what stands against it, in words."""
    reasons = [*health]
    reasons += [f"held by {hold.owner}: {hold.reason}" for hold in item.holds]
    if not item.connected:
        reasons.append("its agent is not connected")
    if item.reason and item.reason not in reasons:
        reasons.append(item.reason)
    takes_work = item.state == "ready" and item.connected and not item.holds
    if item.visit is not None:
        reasons.append(f"maintenance: {visit_text(item)}")
    if item.attempt is not None:
        reasons.append(f"{item.role or 'used'} of {item.attempt}")
    if takes_work:
        following = f"trainmaster job show {item.attempt.rpartition('.a')[0]}" if item.attempt else "nothing"
    elif item.visit is not None and all(hold.owner == MAINTENANCE for hold in item.holds):
        following = f"wait, or see: trainmaster maint ls --host {item.id}"
    elif item.holds:
        following = "; ".join(sorted({_lifted_by(item.id, hold.owner) for hold in item.holds}))
    elif item.state == "ready":
        following = "see whether the host and its agent are alive; it is lost after a short grace"
    else:
        following = _NEXT.get(item.state, "nothing").replace("HOST", item.id)
    return HostWhy(host=item.id, state=item.state, takes_work=takes_work, why=tuple(reasons), next=following)


@host.command(
    examples=[
        ("trainmaster host history gpu-017", "its states, faults and parts, with times and causes"),
        ("trainmaster host history gpu-017 --sort -at", "the newest first"),
        ("trainmaster host history gpu-017 -o jsonl", "for programs"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@_name_argument
@shows
def history(name: str, output: Output) -> None:
    """Show what a host went through, oldest first: its states, faults, remedies and parts."""
    client = connect()
    found, health = client.get(host_path(name, "history"), History), client.get(host_path(name, "health"), HostHealth)
    columns = [
        Column("at", lambda chapter: chapter.at, instant_text),
        Column("what", lambda chapter: chapter.what),
        Column("from", lambda chapter: chapter.start, state=True),
        Column("to", lambda chapter: chapter.end, state=True),
        Column("cause", lambda chapter: chapter.cause),
    ]
    extra = {"id": found.id, "chassis": health.chassis, "place": health.place}
    output.listing("chapter", chapters(found, health), columns, extra)


class HostChapter(Value):
    """One thing that happened to a host."""

    at: Instant
    what: str
    """state, verdict, remedy, verification, lost, job-failed, ticket, part."""
    start: str
    end: str
    cause: str


def chapters(found: History, health: HostHealth) -> list[HostChapter]:
    """States, incidents and parts, oldest first."""
    told = [HostChapter(at=one.at, what="state", start=one.start, end=one.end, cause=one.cause) for one in found.items]
    for each in health.incidents:
        case = f" ({each.case})" if each.case else ""
        rule = f"{each.rule} " if each.rule else ""
        rule = f"{each.remedy} for {rule}" if each.kind == "remedy" else rule
        end = each.outcome or (f"{each.verdict}, {each.remedy}" if each.kind == "verdict" else "")
        name = f", as {each.host}" if each.host != health.verdict.host else ""
        told.append(HostChapter(at=each.at, what=each.kind, start="", end=end, cause=f"{rule}{each.unit}{case}{name}"))
    for one in health.parts:
        text = f"{one.part.slot}: {one.part.model} {one.part.serial}".replace("  ", " ")
        told.append(HostChapter(at=one.since, what="part", start="", end="in", cause=text))
        if one.until is not None:
            told.append(HostChapter(at=one.until, what="part", start="in", end="gone", cause=text))
    return sorted(told, key=lambda chapter: chapter.at)


# Changing

_list_argument = click.argument("hosts", metavar="LIST", shell_complete=complete_hosts)
_index_option = click.option(
    "--check-index", type=click.IntRange(min=0), metavar="N", help="Only if the log is still at this index of a plan."
)


@host.command(
    examples=[
        ('trainmaster host drain gpu-017 --reason "fan fails"', "jobs move to a spare after a checkpoint"),
        ("trainmaster host drain 'gpu-[1-8]' --dry-run", "what it would hit"),
        ('trainmaster host drain gpu-017 --reason "power" --deadline 10m --evict --yes', "out in ten minutes"),
    ],
    exit_codes=(0, 1, 2, 3, 4, 5, 6, 7),
)
@_list_argument
@click.option("--deadline", type=DURATION, metavar="DURATION", help="How long the jobs may stay: 90s, 10m, 2h.")
@click.option("--evict", is_flag=True, help="At the deadline, stop and requeue what still runs there.")
@_index_option
@changes
@shows
def drain(
    hosts: str, deadline: float | None, evict: bool, check_index: int | None, change: Change, output: Output
) -> None:
    """Take hosts out of work.

    They get no new work. A job that runs there moves to a spare after a checkpoint, or may finish, as its job file says
    (on_drain). Your hold stays until you resume the hosts.
    """
    if evict and deadline is None:
        raise WrongUsage("--evict needs --deadline", "jobs are stopped when it is over", "for example --deadline 10m")
    body = HostsChange(
        hosts=hosts,
        reason=change.reason,
        dry_run=change.dry_run,
        deadline_s=deadline,
        evict=evict,
        check_index=check_index,
    )
    _change("drain", body, change, output)


@host.command(
    examples=[
        ('trainmaster host resume gpu-017 --reason "fan replaced"', "lift your hold"),
        ("trainmaster host resume 'gpu-[121-125]' --dry-run", "which would come back"),
        ('trainmaster host resume gpu-[1-64] --reason "power is back" --yes', "many, without a question"),
    ],
    exit_codes=(0, 1, 2, 3, 4, 5, 6, 7),
)
@_list_argument
@_index_option
@click.option("--owner", metavar="POLICY", default="", help="Lift its hold: policy:undo/OP, policy:rollout/R.")
@changes
@shows
def resume(hosts: str, check_index: int | None, owner: str, change: Change, output: Output) -> None:
    """Lift your hold on hosts.

    Hosts that were out return through verification. A host that somebody else holds stays out (exit code 7, and the
    answer says who holds it): only the owner lifts a hold. Policies that left a host to a person are named by --owner.
    """
    reason, dry_run = change.reason, change.dry_run
    body = HostsChange(hosts=hosts, reason=reason, dry_run=dry_run, check_index=check_index, owner=owner)
    _change("resume", body, change, output)


def _change(verb: str, body: HostsChange, change: Change, output: Output) -> None:
    client = connect()
    plan = _send(client, verb, body.but(dry_run=True))
    if change.dry_run:
        _print(plan, output)
        say(f"dry run at log index {plan.index}: nothing was changed")
        return
    if any(item.changed for item in plan.items) and not change.yes:
        _preview(plan)
        change.confirm(f"{verb} {_blast(plan)}")
        again = _send(client, verb, body.but(dry_run=True))
        if again.items != plan.items:
            raise WorldMoved(
                "not done: the plan changed while you read it",
                "hosts or jobs moved in the meantime, so the change would hit something else",
                "give the command again and read the new plan",
            )
    report = _send(client, verb, body)
    _print(report, output)
    _judge(verb, report)


def _send(client: Client, verb: str, body: HostsChange) -> ChangeReport:
    return client.post(f"/v1/hosts/{verb}", body, ChangeReport)


def _blast(plan: ChangeReport) -> str:
    """`4 hosts h[1-4] (32 GPUs), which hits 1 job: job-7`."""
    touched = [item for item in plan.items if item.changed]
    jobs = sorted({item.job for item in touched if item.job is not None})
    text = f"{hosts_text([item.host for item in touched])} ({count_text(sum(i.gpus for i in touched), 'GPU')})"
    return f"{text}, which hits {count_text(len(jobs), 'job')}: {', '.join(jobs)}" if jobs else f"{text}; no job is hit"


class FoldedChange(Value):
    """Hosts to which the same happens: one row of a plan or report."""

    hosts: str
    change: str
    """yes, no, or refused."""
    gpus: int
    job: str
    what: str


def fold_changes(items: Sequence[HostChangeItem]) -> list[FoldedChange]:
    groups: dict[tuple[bool, bool, str, str], list[HostChangeItem]] = {}
    for item in items:
        groups.setdefault((item.refused, not item.changed, item.job or "", item.sentence), []).append(item)
    return [
        FoldedChange(
            hosts=fold(item.host for item in members),
            change="refused" if refused else "no" if unchanged else "yes",
            gpus=sum(item.gpus for item in members),
            job=job,
            what=what,
        )
        for (refused, unchanged, job, what), members in sorted(groups.items(), key=lambda group: group[0])
    ]


_CHANGE_COLUMNS: Final = [
    Column("hosts", lambda row: row.hosts),
    Column("change", lambda row: row.change),
    Column("gpus", lambda row: row.gpus or None),
    Column("job", lambda row: row.job),
    Column("what", lambda row: row.what),
]


def _preview(plan: ChangeReport) -> None:
    for row in fold_changes(plan.items):
        mark = {"yes": "", "no": "unchanged: ", "refused": "refused: "}[row.change]
        say(f"{row.hosts}: {mark}{row.what}")


def _print(report: ChangeReport, output: Output) -> None:
    match output.form:
        case "table" | "wide":
            output.listing("host", fold_changes(report.items), _CHANGE_COLUMNS)
        case "name":
            changed = [item for item in report.items if item.changed]
            output.listing("host", changed, [Column("host", lambda item: item.host)])
        case _:
            output.one("change-report", report, [])


def _judge(verb: str, report: ChangeReport) -> None:
    """Exit code 7 if some were refused, 1 if all were."""
    left = [item for item in report.items if item.refused]
    if not left:
        return
    lines = "\n".join(f"{row.hosts}: {row.what}" for row in fold_changes(left))
    what = f"{verb} was refused for {len(left)} of {count_text(len(report.items), 'host')}"
    first = fold(item.host for item in left)
    error = Failed if len(left) == len(report.items) else PartlyDone
    owner = re.search(r"policy:(undo|rollout)/[\w-]+", lines)
    if owner is not None:
        raise error(what, lines, f"look at the host, then add --owner {owner[0]}")
    raise error(what, lines, f"ask the owner of the hold; trainmaster host ls -w '{first}'")
