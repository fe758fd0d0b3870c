"""`trainmaster health report | ls | ack | release | breaker | promote | observe`: the health of a fleet, by its server.

`read` and `run` judge what is in front of them; these say what stands against hosts, what is done about it, and let a
person take a fault on, say that a host is repaired, and decide how far health may act by itself. Exit codes here are
those of all commands that ask a server.
"""

import sys
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import click

from trainmaster.cli.client import Client, complete_hosts, connect, host_path
from trainmaster.cli.errors import NoSuchThing, WrongUsage
from trainmaster.cli.host import fold_changes
from trainmaster.cli.options import Change, Command, Noun, changes, shows
from trainmaster.cli.output import Column, Output, duration_text, instant_text, say
from trainmaster.cli.words import DURATION
from trainmaster.core.base.time import Instant
from trainmaster.core.health.finding import Finding
from trainmaster.core.words import count_text, seconds_text, who
from trainmaster.live.server.health_resources import (
    BreakerChange,
    Cases,
    CaseView,
    HealthChange,
    HealthHosts,
    HealthView,
    HostHealth,
    HostVerdict,
    ModeChange,
    PoolView,
)
from trainmaster.live.server.maintenance_resources import MaintenanceReport
from trainmaster.live.server.resources import ChangeReport

_LOOKS: Final = (0, 2, 3, 5, 6)
_CHANGES: Final = (0, 1, 2, 3, 5, 6)
VERDICTS: Final = ("bad", "unknown", "watch", "ok")
PROOF_LINES: Final = 3


@click.command(
    cls=Command,
    examples=[
        ("trainmaster health ls", "hosts that are not ok, worst first"),
        ("trainmaster health ls --all -w 'gpu-[1-64]'", "ok ones too"),
        ("trainmaster health ls --cases", "faults that were taken up, and what is done about them"),
    ],
    exit_codes=_LOOKS,
)
@click.option("-w", "--hosts", metavar="LIST", default="", help="Only these hosts.", shell_complete=complete_hosts)
@click.option("--verdict", type=click.Choice(VERDICTS), help="Only hosts with this verdict.")
@click.option("--all", "everything", is_flag=True, help="Hosts that are ok too; with --cases, those that ended.")
@click.option("--cases", "as_cases", is_flag=True, help="Cases instead of hosts.")
@shows
def ls(hosts: str, verdict: str | None, everything: bool, as_cases: bool, output: Output) -> None:
    """List hosts that are not ok, or the cases that were made of it."""
    query: dict[str, str | int] = {**({"hosts": hosts} if hosts else {}), **({"all": "true"} if everything else {})}
    if as_cases:
        if verdict is not None:
            raise WrongUsage("--verdict is for hosts, not for cases", fix="leave out one of --verdict and --cases")
        cases = connect().get("/v1/health/cases", Cases, **query)
        output.listing(
            "health-case",
            cases.items,
            case_columns(cases.at),
            {"index": cases.index, "at": cases.at},
            "no case is open",
        )
        return
    if verdict:
        query["verdict"] = verdict
    found = connect().get("/v1/health/hosts", HealthHosts, **query)
    extra = {"index": found.index, "at": found.at}
    output.listing("health-host", found.items, verdict_columns(found.at), extra, "all of these hosts are ok")


def verdict_columns(now: Instant) -> list[Column]:
    return [
        Column("host", lambda item: item.host),
        Column("verdict", lambda item: item.verdict, state=True),
        Column("remedy", lambda item: item.remedy),
        Column("unit", lambda item: item.unit),
        Column("why", lambda item: item.sentence),
        Column("case", lambda item: item.case),
        Column("since", lambda item: item.since, lambda at: _age(at, now)),
        Column("taken on by", taken_on_text),
        Column("pool", lambda item: item.pool, wide=True),
        Column("mode", lambda item: item.mode, wide=True),
        Column("findings", lambda item: len(item.standings), wide=True),
    ]


def taken_on_text(item: HostVerdict) -> str | None:
    """Who has it, why, and until when."""
    if item.acknowledged_by is None:
        return None
    taken = next((one for one in item.standings if one.acknowledged_by == item.acknowledged_by), None)
    if taken is None or not taken.acknowledged_why:
        return who(item.acknowledged_by)
    until = f", until {instant_text(taken.acknowledged_until)}" if taken.acknowledged_until else ""
    return f"{who(item.acknowledged_by)}: {taken.acknowledged_why}{until}"


def case_columns(now: Instant) -> list[Column]:
    return [
        Column("case", lambda item: item.id),
        Column("host", lambda item: item.host),
        Column("state", lambda item: item.state, state=True),
        Column("remedy", lambda item: item.remedy),
        Column("unit", lambda item: item.unit),
        Column("tries", lambda item: sum(one.outcome != "cancelled" for one in item.tries)),
        Column("why", case_text),
        Column("since", lambda item: item.since, lambda at: _age(at, now)),
        Column("operation", lambda item: item.operation, wide=True),
        Column("rma", lambda item: item.rma, wide=True),
        Column("rule", lambda item: item.rule, wide=True),
        Column("opened", lambda item: item.opened_at, lambda at: _age(at, now), wide=True),
    ]


def case_text(case: CaseView) -> str:
    """Why it is where it is; of one that has ended, how it ended."""
    return case.reason.sentence


def _age(at: Instant | None, now: Instant) -> str:
    return f"{duration_text(max(0, now - at))} ago" if at else "-"


@click.command(
    cls=Command,
    examples=[
        ("trainmaster health report", "the fleet: verdicts, pools, what is done"),
        ("trainmaster health report gpu-017", "one host: what stands against it, and the proof"),
        ("trainmaster health report gpu-017 -o json", "with its history and its parts"),
    ],
    exit_codes=_LOOKS,
)
@click.argument("name", required=False, metavar="[HOST]", shell_complete=complete_hosts)
@shows
def report(name: str | None, output: Output) -> None:
    """Report on the health of the fleet, or of one host."""
    if name is None:
        _fleet(connect().get("/v1/health", HealthView), output)
    else:
        show_host(connect().get(host_path(name, "health"), HostHealth), output)


_POOL: Final = [
    Column("pool", lambda pool: pool.name),
    Column("mode", lambda pool: pool.mode),
    Column("hosts", lambda pool: pool.hosts),
    Column("out", lambda pool: f"{pool.out} of at most {pool.level_most}"),
    Column("taken", lambda pool: f"{pool.taken} of {pool.rate_most} in {seconds_text(pool.rate_window_s)}"),
    Column("breaker", lambda pool: "tripped" if pool.tripped else "closed"),
    Column("cases", lambda pool: pool.cases),
    Column("why", lambda pool: pool.reason.sentence if pool.reason else None),
]


def _fleet(view: HealthView, output: Output) -> None:
    if output.form not in ("table", "wide"):
        output.one("health-report", view, [Column("index", lambda item: item.index)])
        return
    counted = ", ".join(f"{view.verdicts.get(word, 0)} {word}" for word in VERDICTS)
    sys.stdout.write(f"hosts: {counted}; {view.unacknowledged} that nobody has taken on\n")
    cases = ", ".join(f"{count} {state}" for state, count in sorted(view.cases.items())) or "none"
    sys.stdout.write(f"open cases: {cases}; parts sent back: {view.rmas}\n\n")
    output.listing("health-pool", view.pools, _POOL)
    if view.lemons:
        sys.stdout.write("\nrepeat offenders:\n")
        lines = (f"  {one.host}: {one.sentence} (score {one.score:.2f}, limit {one.limit:.2f})" for one in view.lemons)
        sys.stdout.write("\n".join(lines) + "\n")


def show_host(view: HostHealth, output: Output) -> None:
    """What stands against a host, its cases and its parts."""
    if output.form not in ("table", "wide"):
        output.one("health-report", view, [Column("host", lambda item: item.verdict.host)])
        return
    verdict = view.verdict
    output.one("health-report", verdict, _HOST)
    for standing in verdict.standings:
        sys.stdout.write(finding_text(standing.finding))
    for case in view.cases:
        state = case.closed_how or case.state
        sys.stdout.write(f"\n{case.id}, {state}: {case.remedy} for {case.unit}; {case.reason.sentence}\n")
        lines = (f"  {instant_text(one.at, view.at)}  {one.remedy}: {one.outcome}" for one in case.tries)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    if view.lemon is not None:
        sys.stdout.write(f"\nrepeat offender: {view.lemon.sentence}\n")
    for rma in view.rmas:
        sys.stdout.write(f"\n{rma.id}, {rma.state}: {rma.unit} {rma.serial or 'of unknown serial'}; {rma.reason}\n")


_HOST: Final = [
    Column("host", lambda item: item.host),
    Column("verdict", lambda item: f"{item.verdict}, {item.remedy}", state=True),
    Column("why", lambda item: item.sentence),
    Column("since", lambda item: item.since, instant_text),
    Column("pool", lambda item: f"{item.pool or 'none'} ({item.mode})"),
    Column("case", lambda item: item.case),
    Column("taken on by", taken_on_text),
]


def finding_text(finding: Finding) -> str:
    """A finding with a few of the lines that prove it."""
    echo = f", an echo of {finding.echo_of}" if finding.echo_of else ""
    lines = [f"\n{finding.unit}: {finding.verdict}, {finding.remedy}{echo}; {finding.summary} ({finding.rule})"]
    shown = finding.evidence[:PROOF_LINES]
    lines += [f"  {text[:160]}" for text in shown]
    if finding.count > len(shown):
        lines.append(f"  seen {finding.count:,} times")
    lines += [f"  next: {each}" for each in finding.next_evidence]
    return "\n".join(lines) + "\n"


# Changing

_hosts_argument = click.argument("hosts", metavar="LIST", shell_complete=complete_hosts)


@click.command(
    cls=Command,
    examples=[
        ('trainmaster health ack gpu-017 --reason "cable is ordered"', "you have it; it is not shown as new"),
        ('trainmaster health ack gpu-017 --for 3d --reason "part on its way"', "for three days"),
        ("trainmaster health ack 'gpu-[1-8]' --dry-run", "what there is to take on"),
    ],
    exit_codes=(*_CHANGES, 7),
)
@_hosts_argument
@click.option("--for", "for_s", type=DURATION, metavar="DURATION", help="How long (8h, 3d); else until it is worse.")
@changes
@shows
def ack(hosts: str, for_s: float | None, change: Change, output: Output) -> None:
    """Take on what stands against hosts.

    It is no longer counted as new until it gets worse or the time is over. Holds and cases stay as they are.
    """
    body = HealthChange(hosts=hosts, reason=change.reason, dry_run=change.dry_run, for_s=for_s)
    _change("acknowledge", "take on what stands against", body, change, output)


@click.command(
    cls=Command,
    examples=[
        ('trainmaster health release gpu-017 --reason "GPU reseated"', "repaired: it returns through verification"),
        ("trainmaster health release gpu-017 --dry-run", "what would be closed, and who else holds it"),
        ("trainmaster health release 'gpu-[1-8]' --reason \"switch replaced\" --yes", "many, without a question"),
    ],
    exit_codes=(*_CHANGES, 7),
)
@_hosts_argument
@changes
@shows
def release(hosts: str, change: Change, output: Output) -> None:
    """Say that hosts are repaired.

    What stands against them is closed, the hold of health is lifted, and they return through the verification that
    their cases demand. Holds of others stay.
    """
    body = HealthChange(hosts=hosts, reason=change.reason, dry_run=change.dry_run)
    _change("release", "close what stands against", body, change, output)


def _change(verb: str, what: str, body: HealthChange, change: Change, output: Output) -> None:
    client = connect()
    path = f"/v1/health/{verb}"
    plan = client.post(path, body.but(dry_run=True), ChangeReport)
    if change.dry_run:
        _print(plan, output)
        say(f"dry run at log index {plan.index}: nothing was changed")
        return
    changed = [item for item in plan.items if item.changed]
    if changed and not change.yes:
        for row in fold_changes(plan.items):
            say(f"{row.hosts}: {row.what}")
        change.confirm(f"{what} {count_text(len(changed), 'host')}")
    _print(client.post(path, body, ChangeReport), output)


def _print(found: ChangeReport, output: Output) -> None:
    if output.form not in ("table", "wide"):
        output.one("change-report", found, [])
        return
    columns = [
        Column("hosts", lambda row: row.hosts),
        Column("change", lambda row: row.change),
        Column("what", lambda row: row.what),
    ]
    output.listing("host", fold_changes(found.items), columns)


# Pools


def pool_path(pool: str, verb: str) -> str:
    return f"/v1/health/pools/{quote(pool, safe='')}/{verb}"


def _pools(client: Client, name: str | None) -> Sequence[PoolView]:
    pools = client.get("/v1/health", HealthView).pools
    if name is None:
        return pools
    found = [pool for pool in pools if pool.name == name]
    if not found:
        known = ", ".join(pool.name for pool in pools) or "none"
        raise NoSuchThing(f"there is no pool {name}", f"the fleet has: {known}", "trainmaster health breaker show")
    return found


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster health breaker show", "how many hosts health may take out, and has"),
        ('trainmaster health breaker trip desk --reason "odd verdicts"', "no further host is taken out"),
        ('trainmaster health breaker reset desk --reason "rule mended"', "go on with what still holds"),
    ],
)
def breaker() -> None:
    """See, trip and reset what limits how many hosts health takes out by itself."""


@breaker.command(
    examples=[
        ("trainmaster health breaker show", "all pools"),
        ("trainmaster health breaker show desk", "one of them"),
        ("trainmaster health breaker show -o json", "for programs"),
    ],
    exit_codes=_LOOKS,
)
@click.argument("pool", required=False, metavar="[POOL]")
@shows
def show(pool: str | None, output: Output) -> None:
    """Show the breakers of pools."""
    output.listing("health-pool", _pools(connect(), pool), _POOL)


@breaker.command(
    examples=[
        ('trainmaster health breaker trip desk --reason "odd verdicts"', "nothing more is taken out"),
        ("trainmaster health breaker trip desk --dry-run", "what would wait"),
        ('trainmaster health breaker trip desk --reason "launch" --yes', "for scripts"),
    ],
    exit_codes=_CHANGES,
)
@click.argument("pool", metavar="POOL")
@changes
@shows
def trip(pool: str, change: Change, output: Output) -> None:
    """Let health take no further host out. The way back stays open."""
    body = BreakerChange(tripped=True, reason=change.reason, dry_run=change.dry_run)
    _send(pool_path(pool, "breaker"), body, f"trip the breaker of {pool}", change, output)


@breaker.command(
    examples=[
        ('trainmaster health breaker reset desk --reason "rule mended"', "go on with what still holds"),
        ("trainmaster health breaker reset desk --dry-run", "what it would act on"),
        ('trainmaster health breaker reset desk --reason "looked at" --yes', "for scripts"),
    ],
    exit_codes=_CHANGES,
)
@click.argument("pool", metavar="POOL")
@changes
@shows
def reset(pool: str, change: Change, output: Output) -> None:
    """Close a breaker. Only what holds now is acted on, not what was reported meanwhile and is over."""
    body = BreakerChange(tripped=False, reason=change.reason, dry_run=change.dry_run)
    _send(pool_path(pool, "breaker"), body, f"reset the breaker of {pool}", change, output)


@click.command(
    cls=Command,
    examples=[
        ('trainmaster health promote desk --reason "its advice is right"', "from observe to act"),
        ("trainmaster health promote desk --dry-run", "whom it would take out at once"),
        ('trainmaster health promote desk --reason "reviewed" --yes', "for scripts"),
    ],
    exit_codes=_CHANGES,
)
@click.argument("pool", metavar="POOL")
@changes
@shows
def promote(pool: str, change: Change, output: Output) -> None:
    """Let health act on a pool that it only observed."""
    body = ModeChange(mode="act", reason=change.reason, dry_run=change.dry_run)
    _send(pool_path(pool, "mode"), body, f"let health act on {pool}", change, output)


@click.command(
    cls=Command,
    examples=[
        ('trainmaster health observe desk --reason "odd verdicts"', "from act back to observe"),
        ("trainmaster health observe desk --dry-run", "what would stay as it is"),
        ('trainmaster health observe desk --reason "reviewed" --yes', "for scripts"),
    ],
    exit_codes=_CHANGES,
)
@click.argument("pool", metavar="POOL")
@changes
@shows
def observe(pool: str, change: Change, output: Output) -> None:
    """Let health only write what it would do to a pool. What is under way goes on to its end."""
    body = ModeChange(mode="observe", reason=change.reason, dry_run=change.dry_run)
    _send(pool_path(pool, "mode"), body, f"let health only observe {pool}", change, output)


def _send(path: str, body: BreakerChange | ModeChange, what: str, change: Change, output: Output) -> None:
    client = connect()
    found = client.post(path, body.but(dry_run=True), MaintenanceReport)
    if not change.dry_run:
        if found.changed:
            change.confirm(f"{what}: {found.sentence}")
        found = client.post(path, body, MaintenanceReport)
    if output.form not in ("table", "wide"):
        output.one("health-change", found, [Column("sentence", lambda item: item.sentence)])
    else:
        sys.stdout.write(f"{found.sentence}\n")
    if change.dry_run:
        say(f"dry run at log index {found.index}: nothing was changed")


COMMANDS: Final = (ack, breaker, ls, observe, promote, release, report)
