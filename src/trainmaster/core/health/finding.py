"""Findings: what health says about a unit, with the lines that prove it.

A finding is a claim with its proof: unit, verdict, remedy, evidence, how sure, and what would settle the rest.
`echo_of` points to the unit whose fault this one only reports; an echo never asks for more than a look, because its
cause asks.
`cause_of` is the same relation from the other end, and nothing else (`explained`). `offence` is false where the unit
needs the remedy but is not to blame (the far end of a link is), so that no history is held against it.

One verdict per unit is the worst of its findings that are no echoes: two sources that contradict each other are not
averaged.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from trainmaster.core.base.value import Value
from trainmaster.core.health.words import OK, Answer, Remedy, Verdict

Confidence = Literal["high", "medium", "low"]


class Finding(Value):
    """One claim about one unit."""

    unit: str
    verdict: Verdict
    remedy: Remedy
    rule: str
    """The row of the policy, or the reading, that decided."""
    summary: str
    """One sentence."""
    evidence: tuple[str, ...] = ()
    """The lines that prove it, as they stand in the file; of many repeats the first ones and the last."""
    lines: tuple[int, ...] = ()
    """Their numbers in the file, from 1."""
    count: int = 1
    """How often it was seen, repeats included."""
    cause_of: tuple[str, ...] = ()
    """Units whose findings are echoes of this one."""
    echo_of: str = ""
    """The unit whose fault this is an echo of; empty: it is none."""
    confidence: Confidence = "high"
    next_evidence: tuple[str, ...] = ()
    """What to look at next, or what this capture cannot tell."""
    offence: bool = True
    """Whether it counts against the unit's history."""
    scope: str = ""
    """What has to leave production for the remedy; empty: nothing."""
    at: str = ""
    """Where it was seen, if the unit is not a place: the GPU on which a job failed."""
    host: str = ""
    """As the lines name it; empty: they name none."""
    boot: str = ""
    """The id of the boot in which it was seen; empty: nothing names it."""
    section: str = ""
    """The part of the file, where one file holds several captures."""
    file: str = ""
    first_us: int | None = None
    """On the clock of the lines: since the boot, or since 1970; None: they have no stamps."""
    last_us: int | None = None

    @property
    def answer(self) -> Answer:
        return Answer(verdict=self.verdict, remedy=self.remedy)

    @property
    def place(self) -> tuple[str, str, str]:
        """Units of one name in different places are different units."""
        return self.host, self.section, self.unit


def explained(findings: Sequence[Finding]) -> list[Finding]:
    """The findings with `cause_of` as the inverse of `echo_of`: of several findings of a cause the worst names its
    echoes, and those of the same host before those of another one."""
    echoes: dict[int, list[str]] = {}
    by_name: dict[tuple[str, str], list[int]] = {}
    for place, finding in enumerate(findings):
        for name in {finding.unit, finding.at} - {""}:
            by_name.setdefault((finding.section, name), []).append(place)
    for place, finding in enumerate(findings):
        own = finding.at or finding.unit
        causes = [each for each in by_name.get((finding.section, finding.echo_of), ()) if each != place]
        if not finding.echo_of or finding.echo_of == own or not causes:
            continue
        best = max(causes, key=lambda each: _likely(findings[each], finding))
        named = echoes.setdefault(best, [])
        if own not in named:
            named.append(own)
    return [
        finding if finding.cause_of == (names := tuple(echoes.get(place, ()))) else finding.but(cause_of=names)
        for place, finding in enumerate(findings)
    ]


def _likely(cause: Finding, echo: Finding) -> tuple[bool, bool, bool, tuple[int, int]]:
    return not cause.echo_of, cause.host == echo.host, cause.file == echo.file, cause.answer.rank


class UnitVerdict(Value):
    """What holds for a unit, all its findings considered."""

    unit: str
    verdict: Verdict
    remedy: Remedy
    host: str
    section: str
    findings: int


class Report(Value):
    """What was found in the files of one call."""

    verdict: Verdict
    remedy: Remedy
    units: tuple[UnitVerdict, ...]
    findings: tuple[Finding, ...]


def worst(answers: Iterable[Answer]) -> Answer:
    """The answer that wins; ok if there is none."""
    return max(answers, key=lambda answer: answer.rank, default=OK)


def report(findings: Sequence[Finding]) -> Report:
    """Findings by unit, the worst first."""
    by_place: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        by_place.setdefault(finding.place, []).append(finding)
    units = []
    for (host, section, unit), its in by_place.items():
        own = [finding for finding in its if not finding.echo_of]
        answer = worst(finding.answer for finding in own or its)
        units.append(
            UnitVerdict(
                unit=unit, verdict=answer.verdict, remedy=answer.remedy, host=host, section=section, findings=len(its)
            )
        )
    units.sort(key=lambda each: Answer(verdict=each.verdict, remedy=each.remedy).rank, reverse=True)
    overall = worst(Answer(verdict=each.verdict, remedy=each.remedy) for each in units)
    ordered = sorted(findings, key=lambda finding: (not finding.echo_of, finding.answer.rank), reverse=True)
    return Report(verdict=overall.verdict, remedy=overall.remedy, units=tuple(units), findings=tuple(ordered))
