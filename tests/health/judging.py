"""Judging a text in tests, with the policy that ships."""

from functools import cache

from tests.health.expected import Case
from trainmaster.core.health.finding import Finding, Report, report
from trainmaster.core.health.policy import Index
from trainmaster.core.health.read import read
from trainmaster.core.health.words import Verdict
from trainmaster.live.health.policyfile import shipped


@cache
def index() -> Index:
    return Index(shipped())


def judged(text: str) -> Report:
    return report(read("file", text, index()))


def asking(found: Report) -> list[Finding]:
    """Findings that ask for something themselves."""
    quiet = (Verdict.OK, Verdict.SKIPPED)
    return [each for each in found.findings if not each.echo_of and each.verdict not in quiet]


def answered(found: Report) -> Case:
    """A report in the form of the table."""
    units = frozenset((each.unit, str(each.answer)) for each in asking(found))
    return Case(f"{found.verdict}, {found.remedy}", units)
