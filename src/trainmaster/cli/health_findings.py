"""Findings as commands print them: the same columns and the same values, whoever found them."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.cli.output import Column, Output
from trainmaster.core.health.finding import Finding, UnitVerdict


def place(finding: Finding | UnitVerdict) -> str:
    """The unit with its host, where the unit does not name it."""
    named = finding.host in finding.unit.split() or not finding.host
    return finding.unit if named else f"{finding.host} {finding.unit}"


def list_findings(findings: Sequence[Finding], output: Output, extra: Mapping[str, Any], several: bool = False) -> None:
    """Prints findings. The file is shown of several, and the section where it tells units apart; the name of a finding
    is its unit."""
    columns = [
        Column("verdict", lambda finding: finding.verdict.value, state=True),
        Column("remedy", lambda finding: finding.remedy.value),
        Column("unit", place),
        Column("echo_of", lambda finding: finding.echo_of),
        Column("count", lambda finding: finding.count),
        Column("summary", lambda finding: finding.summary),
        Column("rule", lambda finding: finding.rule, wide=True),
        Column("confidence", lambda finding: finding.confidence, wide=True),
        Column("at", lambda finding: finding.at, wide=True),
        Column("section", lambda finding: finding.section, wide=not _by_section(findings)),
        Column("file", lambda finding: finding.file, wide=not several),
        Column("lines", lambda finding: ",".join(map(str, finding.lines)), wide=True),
    ]
    if output.form == "name":
        first = {place(finding): finding for finding in reversed(findings)}
        units = sorted(first.values(), key=findings.index)
        output.listing("health-finding", units, [columns[2], *columns])
    else:
        output.listing("health-finding", findings, columns, extra=extra)


def _by_section(findings: Sequence[Finding]) -> bool:
    """Whether two findings have the same unit in different sections."""
    sections: dict[tuple[str, str], set[str]] = {}
    for finding in findings:
        sections.setdefault((finding.file, place(finding)), set()).add(finding.section)
    return any(len(its) > 1 for its in sections.values())
