"""`trainmaster health`: judge hosts by their logs and captures. Needs no server.

The exit code is the verdict (`health_check.py`). `health_run.py` judges the host itself.
"""

import sys
from pathlib import Path
from typing import Final

import click

from trainmaster.cli import health_fleet
from trainmaster.cli.health_check import Check, Shown
from trainmaster.cli.health_findings import list_findings, place
from trainmaster.cli.health_run import run
from trainmaster.cli.health_verify import verify
from trainmaster.cli.options import Noun, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.core.base.value import Value
from trainmaster.core.health.finding import Finding, Report, report
from trainmaster.core.health.policy import Index, Policy
from trainmaster.core.health.read import read_all
from trainmaster.core.health.words import EXIT_CODES, Verdict
from trainmaster.core.words import count_text
from trainmaster.live.health.files import contents
from trainmaster.live.health.policyfile import load

_QUIET: Final = (Verdict.OK, Verdict.SKIPPED)


class RuleView(Value):
    """One row of the policy."""

    rule: str
    verdict: str
    remedy: str
    means: str
    repeats: str
    sources: str
    because: str


@click.group(
    cls=Noun,
    examples=[
        ("dmesg | trainmaster health read -", "what the kernel's log says about this host"),
        ("trainmaster health read dmesg.log nvidia-smi.xml -o json", "findings with their evidence"),
        ("trainmaster health rules --columns rule,verdict,remedy", "what each code means here"),
    ],
)
def health() -> None:
    """Judge hosts, see what stands against them, and act on it."""


@health.command(
    cls=Check,
    examples=[
        ("trainmaster health read dmesg.log", "verdict, remedy and unit, with the lines that prove it"),
        ("journalctl -k -b | trainmaster health read -", "from standard input"),
        ("trainmaster health read *.log smi.xml.gz -o json", "for programs"),
    ],
)  # fmt: skip
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Rows that take the place of those shipped.")  # fmt: skip
@shows
def read(files: tuple[str, ...], policy_file: Path | None, output: Output) -> int:
    """Judge logs and captures after the fact.

    Kernel logs (dmesg, journal, syslog), nvidia-smi (-q -x, -q, csv), dcgmi, ibstat, sysfs counters, lspci, states of
    Slurm and tables of events are known by their form. Echoes point to their cause and ask for nothing. A file that
    can't be read is unknown, and the others are judged.
    """
    index = Index(load(policy_file))
    texts, notes = contents(files)
    found = report([*notes, *read_all(texts, index)])
    _show(found, output, len(set(files)) > 1)
    return EXIT_CODES[found.verdict]


def _show(found: Report, output: Output, several: bool) -> None:
    extra = {"verdict": found.verdict, "remedy": found.remedy, "units": found.units}
    list_findings(found.findings, output, extra, several)
    if output.form in ("table", "wide"):
        for finding in found.findings:
            if not finding.echo_of and finding.verdict not in _QUIET:
                sys.stdout.write(_proof(finding))
        sys.stdout.write(_what_is_not_told(found))
    bad = sum(unit.verdict is Verdict.BAD for unit in found.units)
    counted = f"; {count_text(bad, 'unit')} bad" if bad else ""
    say(f"{found.verdict}, {found.remedy}: {count_text(len(found.findings), 'finding')}{counted}")


def _what_is_not_told(found: Report) -> str:
    """What findings that ask for nothing cannot tell, units that say the same together."""
    units: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for finding in found.findings:
        if not finding.echo_of and finding.verdict in _QUIET and finding.next_evidence:
            key = f"{finding.verdict}, {finding.remedy}", finding.next_evidence
            units.setdefault(key, []).append(place(finding))
    text = ""
    for (answer, next_), its in units.items():
        shown = list(dict.fromkeys(its))
        more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        text += "\n".join([f"\n{', '.join(shown[:8])}{more}: {answer}", *(f"  next: {each}" for each in next_)]) + "\n"
    return text


def _proof(finding: Finding) -> str:
    """The lines that prove a finding, what it explains, and what would tell more."""
    lines = [f"\n{place(finding)}: {finding.verdict}, {finding.remedy}"]
    width = max((len(str(number)) for number in finding.lines), default=1)
    lines += [
        f"  {number:>{width}}  {text[:160]}" for number, text in zip(finding.lines, finding.evidence, strict=True)
    ]
    if finding.cause_of:
        lines.append(f"  explains: {', '.join(finding.cause_of)}")
    lines += [f"  next: {each}" for each in finding.next_evidence]
    return "\n".join(lines) + "\n"


@health.command(
    cls=Shown,
    examples=[
        ("trainmaster health rules", "every row"),
        ("trainmaster health rules --policy site.toml -o json", "with the site's own rows"),
        ("trainmaster health rules --sort verdict --columns rule,verdict,remedy,means", "by verdict"),
    ],
)
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Rows that take the place of those shipped.")  # fmt: skip
@shows
def rules(policy_file: Path | None, output: Output) -> None:
    """Show what each code and text means here, and why where sources disagree."""
    policy = load(policy_file)
    columns = [
        Column("rule", lambda view: view.rule),
        Column("verdict", lambda view: view.verdict, state=True),
        Column("remedy", lambda view: view.remedy),
        Column("means", lambda view: view.means),
        Column("repeats", lambda view: view.repeats, wide=True),
        Column("sources", lambda view: view.sources, wide=True),
        Column("because", lambda view: view.because, wide=True),
    ]
    output.listing("health-rule", rule_views(policy), columns, extra={"version": policy.version})


def rule_views(policy: Policy) -> list[RuleView]:
    """The rows of a policy, by rule."""
    views = []
    for rule, row in Index(policy).rows.items():
        repeats = "; ".join(
            f"{each.at_least} within {each.within_us // 3_600_000_000} h{f', same {each.same}' if each.same else ''}:"
            f" {each.answer}"
            for each in row.repeats
        )
        views.append(
            RuleView(
                rule=rule,
                verdict=row.answer.verdict,
                remedy=row.answer.remedy,
                means=row.means,
                repeats=repeats,
                sources=row.sources,
                because=row.because,
            )
        )
    return views


for command in (run, verify, *health_fleet.COMMANDS):
    health.add_command(command)
