"""`trainmaster job diagnose` and `job stacks`: looks at the ranks of a running job, which all its hosts must answer."""

from typing import Final

import click

from trainmaster.cli.client import complete_jobs, connect, job_path
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Output

ASK_ALL_S: Final = 60.0
"""For questions that all hosts of a job must answer."""


@click.command(
    cls=Command,
    examples=[
        ("trainmaster job diagnose llama", "what holds it up, right now"),
        ("trainmaster job diagnose job-7 -o json", "missing, ahead and waiting ranks, for programs"),
        ("trainmaster diagnose rank*.log dumps/", "after the fact, from files"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 6),
)
@click.argument("name", metavar="JOB", shell_complete=complete_jobs)
@shows
def diagnose(name: str, output: Output) -> None:
    """Say what holds up a running job.

    Asks the recorders and processes of its ranks, also while they hang or are stopped. A job that has ended is
    diagnosed from its files: trainmaster diagnose.
    """
    from trainmaster.cli.diagnose import show_live
    from trainmaster.core.diagnosis.live import LiveDiagnosis

    show_live(connect(ASK_ALL_S).get(job_path(name, "diagnosis"), LiveDiagnosis), output)


@click.command(
    cls=Command,
    examples=[
        ("trainmaster job stacks llama", "the odd ones first"),
        ("trainmaster job stacks llama -o json", "all frames, for programs"),
        ("trainmaster job diagnose llama", "which rank to look at"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 6),
)
@click.argument("name", metavar="JOB", shell_complete=complete_jobs)
@shows
def stacks(name: str, output: Output) -> None:
    """Show the stacks of a running job's ranks.

    Python stacks; ranks with equal ones stand together, the odd ones first. Taken by py-spy where the host has it
    and may use it, else by the process itself.
    """
    from trainmaster.cli.diagnose import show_stacks
    from trainmaster.core.diagnosis.stacks import JobStacks

    show_stacks(connect(ASK_ALL_S).get(job_path(name, "stacks"), JobStacks), output)
