"""`trainmaster health run`: judge this host, now, without a server: for Slurm, Nagios, and people.

The first line says it all, since some callers show nothing else. A check that has nothing to look at here (no such
hardware, no such tool) is skipped and says why; one that has, and can't read it, is unknown. How many could be read is
counted: a host of which nothing was read has not been found healthy.

A look by itself knows states and no growth: counters are judged by the agent, which looks again and again. Of the
kernel's log it takes the last hour of this boot; older lines were dealt with, or a state shows what is left of them.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trainmaster.cli.health_check import Check, NotJudged
from trainmaster.cli.health_findings import list_findings
from trainmaster.cli.options import shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.core.base.value import Value
from trainmaster.core.health.words import EXIT_CODES
from trainmaster.core.words import count_text
from trainmaster.ports.errors import UserError

if TYPE_CHECKING:
    from trainmaster.live.agent.health.check import Checked

_WORST: Final = 3
"""Findings that the first line names."""


class CheckView(Value):
    """One check: what it found, or why it did not look."""

    check: str
    verdict: str
    remedy: str
    found: str
    looks_at: str


@click.command(
    cls=Check,
    examples=[
        ("trainmaster health run", "everything that can be looked at here"),
        ("trainmaster health run nvml pcie --expect gpu=8", "two checks, and how many GPUs there should be"),
        ("trainmaster health run --list", "what there is"),
        ("trainmaster health run --timeout-s 20 -o json", "for programs, within 20 seconds"),
    ],
)
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
@click.option("--list", "listed", is_flag=True, help="Show the checks, and look at nothing.")
@click.option("--timeout-s", type=click.FloatRange(2, 3600), default=50.0, show_default=True, metavar="SECONDS",
              help="For all of it; what is not read by then is unknown.")  # fmt: skip
@click.option("--expect", default="", metavar="KIND=N,...", help="How many parts the host has: gpu=8,nic=9.")
@click.option("--kernel-log", default="/dev/kmsg", metavar="FILE", show_default=True,
              help="Where the kernel's log is read.")  # fmt: skip
@click.option("--probe-root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path("/"),
              metavar="DIR", show_default=True, help="Where /sys and /proc of the host are.")  # fmt: skip
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Rows that take the place of those shipped.")  # fmt: skip
@shows
def run(
    checks: tuple[str, ...],
    listed: bool,
    timeout_s: float,
    expect: str,
    kernel_log: str,
    probe_root: Path,
    policy_file: Path | None,
    output: Output,
) -> int:
    """Judge this host now, without a server.

    Prints one line that says it all, then what was found. As a health check of Slurm or Nagios the exit code counts.
    """
    from trainmaster.live.agent.health.check import CHECKS, check, chosen_checks
    from trainmaster.live.agent.health.choice import counts
    from trainmaster.live.agent.health.monitor import policy_index

    if listed:
        rows = [CheckView(check=name, verdict="", remedy="", found="", looks_at=what) for name, what in CHECKS.items()]
        output.listing("health-check", rows, [Column("check", _name), Column("looks_at", lambda view: view.looks_at)])
        return 0
    try:
        wanted, expected = chosen_checks(checks), counts(expect)
    except UserError as error:
        raise NotJudged(error.what, error.why, error.fix) from error
    index = policy_index(str(policy_file.absolute()) if policy_file else "")
    checked = check(wanted, index, probe_root, kernel_log, expected, timeout_s).but(asked=bool(checks))
    _show(checked, output)
    return EXIT_CODES[checked.verdict]


def _name(view: CheckView) -> str:
    return view.check


def _show(checked: "Checked", output: Output) -> None:
    line = summary(checked)
    if output.form in ("table", "wide"):
        sys.stdout.write(line + "\n")
    columns = [
        Column("check", _name),
        Column("verdict", lambda view: view.verdict, state=True),
        Column("remedy", lambda view: view.remedy),
        Column("found", lambda view: view.found),
        Column("looks_at", lambda view: view.looks_at, wide=True),
    ]
    views = [
        CheckView(check=name, verdict=verdict, remedy=remedy, found=found, looks_at=what)
        for name, verdict, remedy, found, what in checked.rows()
    ]
    extra = {
        "verdict": checked.verdict, "remedy": checked.remedy, "summary": line, "read": checked.read,
        "skipped": len(checked.skipped), "checks": views,
    }  # fmt: skip
    if output.form in ("table", "wide"):
        output.listing("health-check", views, columns)
        for finding in checked.worst():
            proof = "".join(f"  {text[:160]}\n" for text in finding.evidence[:6])
            following = "".join(f"  next: {each}\n" for each in finding.next_evidence)
            sys.stdout.write(f"\n{finding.unit}: {finding.verdict}, {finding.remedy}\n{proof}{following}")
    else:
        list_findings([finding for _, finding in checked.findings], output, extra)
        say(line)


def summary(checked: "Checked") -> str:
    """One line: the verdict, what it comes from, and how much was looked at."""
    looked = f"{checked.read} of {checked.there} checks could be read, {len(checked.skipped)} skipped"
    if not checked.there and checked.asked:
        return f"{checked.verdict}: {'; '.join(f'{name}: {why}' for name, why in checked.skipped.items())}; {looked}"
    worst = checked.worst()
    told = "; ".join(f"{each.unit} {each.verdict}: {each.summary}" for each in worst[:_WORST])
    more = f"; {count_text(len(worst) - _WORST, 'more finding')}" if len(worst) > _WORST else ""
    what = f"{checked.verdict}, {checked.remedy}" if worst else str(checked.verdict)
    return f"{what}: {told}{more}; {looked}" if told else f"{what}: {looked}"
