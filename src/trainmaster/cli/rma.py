"""`trainmaster rma`: parts on their way back to their vendor, with what proves their fault."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args
from urllib.parse import quote

import click

from trainmaster.cli.client import complete_hosts, connect
from trainmaster.cli.errors import Failed
from trainmaster.cli.health_fleet import finding_text
from trainmaster.cli.options import Change, Noun, changes, shows
from trainmaster.cli.output import Column, Output, instant_text, say
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import encode
from trainmaster.core.health.events import RmaOutcome
from trainmaster.core.health.offender.record import Incident
from trainmaster.core.words import count_text, who
from trainmaster.live.server.health_resources import RmaClose, RmaDetail, RmaReport, RmaRequest, Rmas

_CODES: Final = (0, 1, 2, 3, 5, 6)


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster rma ls", "parts that are away"),
        ('trainmaster rma open gpu-017 "gpu 0000:1b:00" --reason "fails in every slot"', "send one back"),
        ('trainmaster rma close rma-3 --outcome replaced --reason "new one in"', "it is over"),
    ],
)
def rma() -> None:
    """See and steer parts that go back to their vendor."""


def rma_path(name: str, verb: str = "") -> str:
    return f"/v1/rmas/{quote(name, safe='')}" + (f"/{verb}" if verb else "")


@rma.command(
    examples=[
        ("trainmaster rma ls", "those that are open"),
        ("trainmaster rma ls --all", "all of them"),
        ("trainmaster rma ls -o json", "for programs"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@click.option("--all", "everything", is_flag=True, help="Closed ones too.")
@shows
def ls(everything: bool, output: Output) -> None:
    """List parts that are on their way."""
    found = connect().get("/v1/rmas", Rmas, **({"all": "true"} if everything else {}))
    columns = [
        Column("rma", lambda item: item.id),
        Column("state", lambda item: item.state, state=True),
        Column("host", lambda item: item.host),
        Column("unit", lambda item: item.unit),
        Column("serial", lambda item: item.serial),
        Column("opened", lambda item: item.opened_at, lambda at: instant_text(at, found.at)),
        Column("reason", lambda item: item.reason),
        Column("outcome", lambda item: item.outcome),
        Column("case", lambda item: item.case, wide=True),
        Column("successor", lambda item: item.successor, wide=True),
        Column("by", lambda item: who(item.by), wide=True),
    ]
    output.listing("rma", found.items, columns, {"index": found.index, "at": found.at})


@rma.command(
    examples=[
        ("trainmaster rma show rma-3", "what proves the fault, and what was tried"),
        ("trainmaster rma show rma-3 --bundle rma-3.json", "a file for the vendor"),
        ("trainmaster rma show rma-3 -o json", "for programs"),
    ],
    exit_codes=_CODES,
)
@click.argument("name", metavar="RMA")
@click.option("--bundle", type=click.Path(path_type=Path, dir_okay=False), help="Write all of it to this file.")
@shows
def show(name: str, bundle: Path | None, output: Output) -> None:
    """Show one part that goes back, with its evidence."""
    found = connect().get(rma_path(name), RmaDetail)
    if bundle is not None:
        _write(bundle, found)
        return
    if output.form not in ("table", "wide"):
        output.one("rma", found, [Column("rma", lambda item: item.rma.id)])
        return
    output.one("rma", found.rma, _FIELDS)
    for finding in found.bundle.findings:
        sys.stdout.write(finding_text(finding))
    _history("the part", found.bundle.part_incidents, found.at)
    _history("its slot", found.bundle.slot_incidents, found.at)
    if found.advice:
        sys.stdout.write(f"\nnext: {found.advice}\n")


def _history(whose: str, incidents: Sequence[Incident], now: Instant) -> None:
    if incidents:
        sys.stdout.write(f"\nhistory of {whose}:\n")
    for each in incidents:
        what = " ".join(word for word in (each.kind, each.rule, each.outcome) if word)
        sys.stdout.write(f"  {instant_text(each.at, now)}  {each.host} {each.unit}: {what}\n")


def _write(bundle: Path, found: RmaDetail) -> None:
    try:
        with bundle.open("xb") as file:
            file.write(encode(found.bundle) + b"\n")
    except FileExistsError as error:
        raise Failed(f"{bundle} exists", "it would be overwritten", "give another name") from error
    except OSError as error:
        raise Failed(f"{bundle} can't be written", error.strerror or str(error), "give another place") from error
    say(f"{bundle}: {count_text(len(found.bundle.findings), 'finding')}")


_FIELDS: Final = [
    Column("rma", lambda item: item.id),
    Column("state", lambda item: item.state, state=True),
    Column("host", lambda item: item.host),
    Column("unit", lambda item: item.unit),
    Column("serial", lambda item: item.serial),
    Column("model", lambda item: item.model),
    Column("opened", lambda item: item.opened_at, instant_text),
    Column("by", lambda item: who(item.by)),
    Column("reason", lambda item: item.reason),
    Column("case", lambda item: item.case),
    Column("successor", lambda item: item.successor),
    Column("outcome", lambda item: item.outcome),
    Column("closed", lambda item: item.closed_at, instant_text),
    Column("closed why", lambda item: item.closed_why),
]


@rma.command(
    name="open",
    examples=[
        ('trainmaster rma open gpu-017 "gpu 0000:1b:00" --reason "fails in every slot"', "one part"),
        ('trainmaster rma open gpu-017 host --reason "board is dead"', "the whole host"),
        ('trainmaster rma open gpu-017 "gpu 0000:1b:00" --dry-run', "what is known of it"),
    ],
    exit_codes=_CODES,
)
@click.argument("name", metavar="HOST", shell_complete=complete_hosts)
@click.argument("unit", metavar="UNIT")
@changes
@shows
def open_(name: str, unit: str, change: Change, output: Output) -> None:
    """Send a part back. The host is held until that is closed, or the host is released."""
    body = RmaRequest(host=HostId(name), unit=unit, reason=change.reason, dry_run=change.dry_run)
    _send("/v1/rmas", body, f"send back {unit} of {name}", change, output)


@rma.command(
    examples=[
        ('trainmaster rma close rma-3 --outcome replaced --reason "new one in"', "another part is in the slot"),
        ('trainmaster rma close rma-3 --outcome no-fault-found --reason "vendor\'s report"', "it comes back as it was"),
        ("trainmaster rma close rma-3 --outcome withdrawn --dry-run", "what that means"),
    ],
    exit_codes=_CODES,
)
@click.argument("name", metavar="RMA")
@click.option("--outcome", type=click.Choice(get_args(RmaOutcome)), required=True, help="How it ended.")
@changes
@shows
def close(name: str, outcome: RmaOutcome, change: Change, output: Output) -> None:
    """Say how it ended. The host returns through verification, unless others hold it."""
    body = RmaClose(outcome=outcome, reason=change.reason, dry_run=change.dry_run)
    _send(rma_path(name, "close"), body, f"close {name} as {outcome}", change, output)


def _send(path: str, body: RmaRequest | RmaClose, what: str, change: Change, output: Output) -> None:
    client = connect()
    found = client.post(path, body.but(dry_run=True), RmaReport)
    if not change.dry_run:
        change.confirm(f"{what}: {found.sentence}")
        found = client.post(path, body, RmaReport)
    if output.form not in ("table", "wide"):
        output.one("rma-report", found, [Column("rma", lambda item: item.rma)])
    else:
        sys.stdout.write(f"{found.sentence}\n")
    if change.dry_run:
        say(f"dry run at log index {found.index}: nothing was changed")
