"""`trainmaster diagnose`: why a job stopped or is slow, from what it left behind. Needs no server.

Give everything there is: dumps of all ranks, their logs, the launcher's command, times that somebody measured. The
answer names ranks and hosts only as far as the evidence carries, and says what would tell more.
"""

import sys
from collections.abc import Callable

import click

from trainmaster.cli.errors import NoSuchThing, WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output
from trainmaster.cli.words import section
from trainmaster.core.diagnosis.answer import Diagnosis, ranks_text
from trainmaster.core.diagnosis.evidence import Unusable
from trainmaster.core.diagnosis.judge import judge
from trainmaster.live.diagnosis.files import evidence


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
    logs of ranks, torchrun's error files, reports of NCCL's RAS, tables of times and tests; known by their form.
    """
    try:
        found = judge(evidence(files))
    except Unusable as error:
        kind = NoSuchThing if "no such file" in error.reason else WrongUsage
        raise kind(f"cannot use {error.place}", error.reason, error.fix) from error
    show(found, output)


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
        Column("hosts", lambda item: ", ".join(item.hosts) or "none to blame"),
        Column("confidence", lambda item: item.confidence),
    ]
    shown = [field for field in fields if output.columns or field.text(field.value(found)) != "-"]
    output.one("diagnosis", found, fields if output.columns else shown)
    if output.form in ("table", "wide") and not output.columns:
        for title, lines in (("Because", found.details), ("Would tell more", found.next_evidence),
                             ("What to do", found.advice)):  # fmt: skip
            if lines:
                section(title)
                sys.stdout.write("".join(f"  {line}\n" for line in lines))
