"""`trainmaster health verify`: the three tasks of verification on this host, without a server."""

import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from trainmaster.cli.health_check import Check
from trainmaster.cli.options import shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.cli.twin_meter import Progress
from trainmaster.core.health.verification.deadline import deadline_s
from trainmaster.core.health.verification.outcome import TaskReport, answer_of
from trainmaster.core.health.words import EXIT_CODES
from trainmaster.live.agent.probes import BUDGETS_S
from trainmaster.live.verification import child
from trainmaster.live.verification.devices import count

_EXAMPLES: Final = [
    ("trainmaster health verify", "the quick task: seconds, before every job"),
    ("trainmaster health verify deep --budget-s 600", "memory and computing bit for bit, for ten minutes"),
    ("trainmaster health verify group -o json", "transfers between ranks of this host, for programs"),
]


@click.command(cls=Check, examples=_EXAMPLES)
@click.argument("task", type=click.Choice(["quick", "deep", "group"]), default="quick", metavar="[quick|deep|group]")
@click.option("--budget-s", type=click.FloatRange(0.0, 86_400.0), metavar="SECONDS",
              help="What deep (default 120) and group (30) may take.")  # fmt: skip
@click.option("--share", type=click.FloatRange(0.001, 0.9), default=0.05, show_default=True,
              help="Part of the free memory that deep tests.")  # fmt: skip
@click.option("--ranks", type=click.IntRange(2, 64), metavar="N",
              help="Ranks of group; default: one a GPU, four without.")  # fmt: skip
@click.option("--dir", "directory", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
              help="A mounted directory that quick writes to and reads from.")  # fmt: skip
@shows
def verify(
    task: str, budget_s: float | None, share: float, ranks: int | None, directory: Path | None, output: Output
) -> int:
    """Verify this host: what it does before it takes work.

    Outcomes are pass, fail, not-run and invalid. Only fail counts against the host; what was not run, and samples that
    contradict themselves, are unknown (3). `group` over several hosts is a job: see examples/group-check.toml.
    """
    budget = BUDGETS_S[task] if budget_s is None else budget_s
    line = Progress()
    with tempfile.TemporaryDirectory(prefix="trainmaster-verify-") as scratch:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else scratch
        ask = child.Ask(
            host_dir=scratch, memory_dir=memory, jobs_dir=str(directory or scratch),
            budget_s=budget, share=share, ranks=ranks or 0,
        )  # fmt: skip
        limit_s = deadline_s(task, count(), budget)
        found = child.run(task, ask, limit_s, lambda part, words: line.tell(f"{100.0 * part:3.0f} % {words}"))
    line.end()
    _show(found, output)
    return EXIT_CODES[answer_of(found.outcome).verdict]


def _show(found: TaskReport, output: Output) -> None:
    columns = [
        Column("part", lambda result: result.part),
        Column("outcome", lambda result: result.outcome.value, state=True),
        Column("unit", lambda result: result.unit),
        Column("sentence", lambda result: result.sentence),
    ]
    extra = {"task": found.task, "outcome": found.outcome, "sentence": found.sentence, "duration_s": found.duration_s}
    output.listing("verification-result", found.results, columns, extra=extra)
    if output.form in ("table", "wide"):
        for result in found.results:
            for text in result.evidence:
                sys.stdout.write(f"  {result.unit}: {text}\n")
    say(f"{found.task}: {found.outcome}: {found.sentence}")
