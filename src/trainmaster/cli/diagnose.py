"""`trainmaster diagnose`: why a job stopped or is slow, from what it left behind. Needs no server.

Give everything there is: dumps of all ranks, their logs, the launcher's command, times that somebody measured. The
answer names ranks and hosts only as far as the evidence carries, and says what would tell more.
"""

import sys
from collections.abc import Callable
from typing import Final

import click
import msgspec

from trainmaster.cli.errors import NoSuchThing, WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output
from trainmaster.cli.words import section
from trainmaster.core.base.hostlist import fold
from trainmaster.core.diagnosis.answer import Diagnosis, Kind, ranks_text
from trainmaster.core.diagnosis.evidence import Unusable
from trainmaster.core.diagnosis.judge import judge
from trainmaster.core.diagnosis.live import LiveDiagnosis
from trainmaster.core.diagnosis.stacks import JobStacks
from trainmaster.live.diagnosis.files import evidence

FRAMES_SHOWN: Final = 12


@click.command(
    cls=Command,
    examples=[
        ("trainmaster diagnose dumps/", "flight-recorder dumps of all ranks, as pickles or JSON"),
        ("trainmaster diagnose rank*.log ras.txt launch.txt", "whatever there is, together"),
        ("kubectl logs job | trainmaster diagnose - -o json", "for programs"),
    ],
    exit_codes=(0, 2, 3),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@shows
def diagnose(files: tuple[str, ...], output: Output) -> None:
    """Say why a job stopped or is slow, after the fact.

    Reads dumps of PyTorch's flight recorder (pickles are read without running anything in them), lines of watchdogs,
    logs of ranks, torchrun's error files, reports of NCCL's RAS, tables of times and tests; known by their form. A file
    that can't be read is skipped and named, as long as others can.
    """
    try:
        found = judge(evidence(files))
    except Unusable as error:
        kind = NoSuchThing if "no such file" in error.reason else WrongUsage
        raise kind(f"cannot use {error.place}", error.reason, error.fix) from error
    show(found, output)


def show_live(live: LiveDiagnosis, output: Output) -> None:
    """Prints a diagnosis of a running job, flat: what it was measured by stands beside the fields of the diagnosis."""
    if output.form in ("table", "wide", "name"):
        show(live.diagnosis, output)
        if output.form != "name" and not output.columns and live.diagnosis.kind is not Kind.FORMING:
            section("Measured by")
            sys.stdout.write(f"  {live.bound}\n  ranks have waited for {live.standing_s:.1f} s\n")
            if live.silent_hosts:
                sys.stdout.write(f"  no answer from {fold(live.silent_hosts)}\n")
        return
    flat = {**msgspec.structs.asdict(live.diagnosis), **msgspec.structs.asdict(live)}
    del flat["diagnosis"]
    output.one("live-diagnosis", flat, [])


def show_stacks(found: JobStacks, output: Output) -> None:
    """Prints groups of equal stacks, the smallest first."""
    if output.form not in ("table", "wide"):
        output.one("stacks", found, [])
        return
    for group in found.groups:
        frames = group.frames if output.form == "wide" else group.frames[:FRAMES_SHOWN]
        more = len(group.frames) - len(frames)
        lines = frames or (group.trouble,)
        text = "".join(f"  {line}\n" for line in lines) + (f"  ... {more} more (-o wide)\n" if more else "")
        section(f"{ranks_text(group.ranks)} on {fold(group.hosts)}, state {group.states or '-'}")
        sys.stdout.write(text)
    if found.silent_hosts:
        sys.stderr.write(f"no answer from {fold(found.silent_hosts)}\n")


def _hosts(found: Diagnosis) -> str:
    """The hosts blamed; of none it is said beside a rank or a cause that it is no host which is at fault."""
    named = found.missing_ranks or found.ahead_ranks or found.differing_ranks or found.slow_ranks or found.first_cause
    return ", ".join(found.hosts) or ("no fault of a host is shown" if named else "none to blame")


def show(found: Diagnosis, output: Output) -> None:
    """Prints a diagnosis."""

    def ranks(name: str, of: Callable[[Diagnosis], tuple[int, ...]]) -> Column:
        return Column(name, of, lambda value: ranks_text(value) if value else "-")

    fields = [
        Column("kind", lambda item: item.kind.value),
        Column("summary", lambda item: item.summary),
        Column("first_cause", lambda item: item.first_cause),
        ranks("missing_ranks", lambda item: item.missing_ranks),
        ranks("waiting_ranks", lambda item: item.waiting_ranks),
        ranks("ahead_ranks", lambda item: item.ahead_ranks),
        ranks("differing_ranks", lambda item: item.differing_ranks),
        ranks("slow_ranks", lambda item: item.slow_ranks),
        ranks("unseen_ranks", lambda item: item.unseen_ranks),
        Column("hosts", _hosts),
        Column("confidence", lambda item: item.confidence),
    ]
    shown = [field for field in fields if output.columns or field.text(field.value(found)) != "-"]
    output.one("diagnosis", found, fields if output.columns else shown)
    if output.form in ("table", "wide") and not output.columns:
        for title, lines in (("Because", found.details), ("Would tell more", found.next_evidence),
                             ("What to do", found.advice), ("Skipped", found.skipped)):  # fmt: skip
            if lines:
                section(title)
                sys.stdout.write("".join(f"  {line}\n" for line in lines))
