"""What a probe sees, as news: what the server does not know yet.

A probe says the same again and again; the server is told of changes of meaning alone. New is a unit and rule that were
not told before, another answer, ten times as many, and the same once more after a rest or after an operation on the
host: a GPU that was reset and loses its bus again is another incident, although the log of its boot still holds the
first. So 800,000 copies of a line are one report and a handful about how many there are.

Two kinds of probes. What a *state* probe no longer sees is gone, if it could look: a unit that it could not read keeps
what was told of it, since a failed read is no absence. Of *events* nothing is ever gone by itself, only by another
event; how long they stand is the server's business.

Reports are bounded: the worst go first, and what found no room is still news at the next look.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from trainmaster.core.base.time import DAY, Duration, Instant, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.health.events import Gone
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import Answer, Remedy, Verdict

REPORT_LIMIT: Final = 64
"""Findings in one report. A host with more of them has one fault that shouts, or a log of garbage."""
KNOWN_LIMIT: Final = 4_096
"""Findings that are remembered of one probe."""
GROWTH: Final = 10
REST: Final = seconds(600.0)
"""So long without a sign of it, the next one is another incident."""
LINE_LIMIT: Final = 600
"""Characters of a line of evidence that travel."""
FRESH: Final = seconds(60.0)
"""What is older when it is read is said to be old."""
_A_YEAR: Final = 365 * DAY
_A_BOOT: Final = 20 * _A_YEAR
"""No boot lasts so long: larger stamps are of the wall's clock."""


class Known(Value):
    """What was told of one unit and rule."""

    unit: str
    rule: str
    answer: Answer
    count: int
    last_us: int | None = None
    settled: bool = False
    """Something was done about it: from here on, any more of it is news."""


class News(NamedTuple):
    """What to tell, and what is known once it was told."""

    findings: tuple[Finding, ...]
    gone: tuple[Gone, ...]
    known: tuple[Known, ...]

    def __bool__(self) -> bool:
        return bool(self.findings or self.gone)


def of_events(known: Sequence[Known], findings: Iterable[Finding]) -> News:
    """News of a probe that reads events: `findings` are those that it has seen so far, or the newest of them. One that
    was told and says `ok, none` now is over: another event ended it."""
    before = {(each.unit, each.rule): each for each in known}
    now = _worst_each(findings)
    told, room = _tell(before, now)
    over = [key for key in before if key in now and not _counts(now[key])]
    assert len(told) <= REPORT_LIMIT
    left = {key: each for key, each in (before | room).items() if key not in over}
    return News(told, tuple(Gone(unit=unit, rule=rule) for unit, rule in over), _remembered(left))


def of_state(known: Sequence[Known], findings: Iterable[Finding], unread: frozenset[str] = frozenset()) -> News:
    """News of a probe that reads states: `findings` are all that hold now. `unread` are units that it could not look
    at; `host` among them means all."""
    before = {(each.unit, each.rule): each for each in known}
    now = _worst_each(findings)
    told, room = _tell(before, now)
    holds = {key for key, finding in now.items() if _counts(finding)}
    gone = [key for key in before if key not in holds and not unread & {"host", key[0]}]
    left = {key: each for key, each in (before | room).items() if key not in gone}
    return News(told, tuple(Gone(unit=unit, rule=rule) for unit, rule in gone), _remembered(left))


def _counts(finding: Finding) -> bool:
    """Whether it says anything that the server has to know: more than that all is well."""
    return finding.verdict is not Verdict.SKIPPED and (finding.verdict, finding.remedy) != (Verdict.OK, Remedy.NONE)


def _worst_each(findings: Iterable[Finding]) -> dict[tuple[str, str], Finding]:
    worst: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = finding.unit, finding.rule
        if key not in worst or finding.answer.rank > worst[key].answer.rank:
            worst[key] = finding
    return worst


def _tell(
    before: Mapping[tuple[str, str], Known], now: Mapping[tuple[str, str], Finding]
) -> tuple[tuple[Finding, ...], dict[tuple[str, str], Known]]:
    """(what to tell, what is known of it then)."""
    news = [finding for key, finding in now.items() if _counts(finding) and _is_news(before.get(key), finding)]
    news.sort(key=lambda finding: (not finding.echo_of, finding.answer.rank), reverse=True)
    told = tuple(_short(finding) for finding in news[:REPORT_LIMIT])
    return told, {(finding.unit, finding.rule): _known(finding) for finding in told}


def _is_news(known: Known | None, finding: Finding) -> bool:
    if known is None or known.answer != finding.answer or finding.count >= GROWTH * known.count:
        return True
    if known.settled and finding.count > known.count:
        return True
    if finding.verdict is Verdict.OK or known.last_us is None or finding.last_us is None:
        return False
    return finding.last_us - known.last_us >= REST


def settled(known: Sequence[Known], counts: Mapping[tuple[str, str], int]) -> tuple[Known, ...]:
    """What was told of events, after an operation on the host: their like is news from now on. `counts`: how many there
    are by now, told or not."""
    return tuple(each.but(settled=True, count=max(each.count, counts.get((each.unit, each.rule), 0))) for each in known)


def _known(finding: Finding) -> Known:
    return Known(
        unit=finding.unit, rule=finding.rule, answer=finding.answer, count=finding.count, last_us=finding.last_us
    )


def _short(finding: Finding) -> Finding:
    return finding.but(
        evidence=tuple(line[:LINE_LIMIT] for line in finding.evidence), summary=finding.summary[:LINE_LIMIT]
    )


def _remembered(known: Mapping[tuple[str, str], Known]) -> tuple[Known, ...]:
    kept = sorted(known.values(), key=lambda each: each.answer.rank, reverse=True)[:KNOWN_LIMIT]
    return tuple(sorted(kept, key=lambda each: (each.unit, each.rule)))


def age(finding: Finding, up: Duration, now: Instant) -> Duration | None:
    """How long ago a finding of a log was seen last: on the clock of the boot, which lasts since `up`, or on that of
    the wall. None: it does not say, or says something that can't be (a stamp without a year, a clock that was set)."""
    if finding.last_us is None:
        return None
    since = (now if finding.last_us > _A_BOOT else up) - finding.last_us
    return Duration(since) if 0 <= since < _A_YEAR else None


def aged(finding: Finding, up: Duration, now: Instant) -> Finding:
    """A finding of a log, with its age if it is old."""
    since = age(finding, up, now)
    if since is None or since < FRESH:
        return finding
    minutes = since // seconds(60.0)
    words = f"{minutes // 60} h" if minutes >= 120 else f"{minutes} min"
    return finding.but(summary=f"{finding.summary}; {words} old when it was read")
