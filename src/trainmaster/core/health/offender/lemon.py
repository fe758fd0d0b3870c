"""Lemons: hosts that fail far more often than their peers, although each failure by itself was answered and is over.

Features of a window (28 days), after Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research
Clusters" (HPCA 2025), and one of our own (`unit_repeats`: cases of the worst slot). Each has a limit and a weight, as
data. The score is the sum of weights, each times how far the value is on the way from the peers' mean to the limit,
and capped, so that no single count, however high, condemns a host by itself, and several that agree do.

*Peers.* A bad week of the whole fleet, or of a pod, makes no lemons: the limit of a feature rises to what chance alone
would give some host of so many, if all failed at the mean rate of the fleet, or of the host's pod. The means leave out
the worst twentieth, so that lemons do not raise their own limit.

*Exposure.* A host that has served less than a week is not judged. A new host is expected to fail more often (early
life), and is compared with other new ones, or with three times the fleet's mean; it is watched, and a burn-in is
advised, unless its score is twice the limit.

*Repair.* What was before a person said that the host is repaired counts no more, except how often it was out and had a
ticket: who is repaired three times a month is a lemon for that.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from trainmaster.core.base.ids import HostId, PodId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import DAY, HOUR, MINUTE, Duration, Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.conduct import FeatureLimit, OffenderLimits
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender.notes import cases
from trainmaster.core.health.offender.record import LEMON, History, Incident
from trainmaster.core.health.words import SUSPECT, TRIAGE, Answer

CAP: Final = 1.5
"""A feature gives so many times its weight at most."""
NEAR: Final = 0.5
"""From this share of the limit on a host is told of."""
TRIMMED: Final = 0.05
CHANCE: Final = 0.1
"""So many healthy hosts of the fleet may pass the limit of a feature by chance, in one survey."""
PEERS: Final = 16
"""Fewer make no comparison."""
EARLY_FACTOR: Final = 3.0
"""How much more often new hosts fail, where there are too few of them to tell."""
APART: Final = Duration(6 * HOUR)
"""Absences that are closer are one."""
BEFORE: Final = Duration(10 * MINUTE)
AFTER: Final = Duration(5 * MINUTE)
"""A verdict that is so near to the end of a job explains it; the span of the paper."""
RUNS: Final = 5
"""Jobs that a host must have run alone before a rate means anything."""


class Subject(Value):
    """A host that may be a lemon, and among whom."""

    host: HostId
    pod: PodId


class Measure(Value):
    """A feature of a host."""

    feature: str
    value: float
    limit: float
    """The one that was applied."""
    median: float
    """Of the fleet."""
    points: float


class Suspect(Value):
    """A host whose score is high."""

    host: HostId
    score: float
    limit: float
    is_new: bool
    days: float
    """So long it has served, within the window."""
    measures: tuple[Measure, ...]
    """Those that gave points, the most first."""

    @property
    def answer(self) -> Answer | None:
        """None: it is near the limit, no more."""
        if self.score < self.limit:
            return None
        return SUSPECT if self.is_new and self.score < 2 * self.limit else TRIAGE

    @property
    def reason(self) -> Reason:
        told = "; ".join(
            f"{each.feature} {each.value:g} (limit {each.limit:g}, median of the fleet {each.median:g})"
            for each in self.measures
        )
        new = "; it is new, so a burn-in may settle it" if self.is_new else ""
        sentence = f"score {self.score:.2f} of {self.limit:g} over {self.days:.0f} d: {told}{new}"
        numbers = {each.feature: each.value for each in self.measures}
        return because(Token.LEMON, sentence, score=round(self.score, 3), limit=self.limit, **numbers)

    def finding(self) -> Finding:
        """The same as a finding of the host, for those who act on findings. Only of one that has an answer."""
        answer = self.answer
        assert answer is not None, self.host
        next_ = (
            ("acceptance burn-in of the whole host",) if answer == SUSPECT else ("incidents: trainmaster host history",)
        )
        return Finding(
            unit="host", verdict=answer.verdict, remedy=answer.remedy, rule=LEMON, summary=self.reason.sentence,
            confidence="medium", next_evidence=next_,
        )  # fmt: skip


def survey(history: History, subjects: Sequence[Subject], now: Instant, limits: OffenderLimits) -> tuple[Suspect, ...]:
    """Hosts at or near the limit, the worst first. Walks all incidents of the window: once a day, or when asked."""
    judged = [one for one in subjects if _served(history, one.host, now, limits) >= limits.lemon_exposure]
    if not judged:
        return ()
    table = _Table(history, judged, now, limits)
    found = [table.suspect(one) for one in judged if table.may_be_near(one)]
    near = [each for each in found if each.score >= NEAR * limits.lemon_score]
    return tuple(sorted(near, key=lambda each: (-each.score, each.host)))


def _served(history: History, host: HostId, now: Instant, limits: OffenderLimits) -> Duration:
    first = history.first_seen.get(host)
    return Duration(min(now - first, limits.window)) if first is not None else Duration(0)


class _Table:
    """Features of all hosts, and what is usual."""

    def __init__(self, history: History, judged: Sequence[Subject], now: Instant, limits: OffenderLimits) -> None:
        self._history, self._now, self._limits = history, now, limits
        self._new = {one.host for one in judged if now - history.first_seen[one.host] < limits.early_life}
        self._values = {one.host: features(history, one.host, now, limits.window) for one in judged}
        every = [one.host for one in judged]
        groups: dict[str, list[HostId]] = {"": every, "new": [host for host in every if host in self._new]}
        for one in judged:
            groups.setdefault(f"pod {one.pod}", []).append(one.host)
        names = [each.feature for each in limits.lemon_features]
        self._count = len(every)
        self._sizes = {name: len(its) for name, its in groups.items()}
        told = {group: [values for host in its if (values := self._values[host])] for group, its in groups.items()}
        self._means = {
            (group, name): _trimmed_mean([values.get(name, 0.0) for values in told[group]], len(its))
            for group, its in groups.items()
            for name in names
            if its
        }
        self._medians = {name: _median([values.get(name, 0.0) for values in told[""]], len(every)) for name in names}
        self._bounds: dict[float, int] = {}

    def may_be_near(self, one: Subject) -> bool:
        """Without asking what is usual, which can only take points away: most hosts are far from every limit."""
        values, most = self._values[one.host], 0.0
        if not values:
            return False
        for feature in self._limits.lemon_features:
            value = values.get(feature.feature, 0.0)
            most += feature.weight * (CAP if value >= feature.limit else value / feature.limit)
        return most >= NEAR * self._limits.lemon_score

    def suspect(self, one: Subject) -> Suspect:
        values, is_new = self._values[one.host], one.host in self._new
        measures = []
        for feature in self._limits.lemon_features:
            value = values.get(feature.feature, 0.0)
            if value <= 0:
                continue
            mean, bound = self._usual(one, feature, is_new)
            limit = max(feature.limit, bound)
            points = feature.weight * min((value - mean) / (limit - mean), CAP)
            if points <= 0:
                continue
            measures.append(
                Measure(
                    feature=feature.feature, value=round(value, 4), limit=round(limit, 4),
                    median=self._medians[feature.feature], points=round(points, 4),
                )
            )  # fmt: skip
        measures.sort(key=lambda each: (-each.points, each.feature))
        return Suspect(
            host=one.host,
            score=round(sum(each.points for each in measures), 4),
            limit=self._limits.lemon_score,
            is_new=is_new,
            days=_served(self._history, one.host, self._now, self._limits) / DAY,
            measures=tuple(measures),
        )

    def _usual(self, one: Subject, feature: FeatureLimit, is_new: bool) -> tuple[float, float]:
        """The mean among peers, and what chance gives the worst of so many hosts that fail at that rate."""
        name, pod = feature.feature, f"pod {one.pod}"
        mean = self._means["", name]
        if self._sizes[pod] >= PEERS:
            mean = max(mean, self._means[pod, name])
        if is_new:
            mean = max(mean, self._means["new", name] if self._sizes["new"] >= PEERS else EARLY_FACTOR * mean)
        if name == "single_node_node_failure_rate":
            runs = self._values[one.host]["runs"]
            return mean, self._bound(mean * runs) / runs
        return mean, self._bound(mean)

    def _bound(self, mean: float) -> int:
        key = round(mean, 6)
        if key not in self._bounds:
            self._bounds[key] = poisson_bound(key, CHANCE / self._count)
        return self._bounds[key]


def poisson_bound(mean: float, chance: float) -> int:
    """The smallest count that a Poisson law of this mean reaches with a chance of at most `chance`; at least 1."""
    assert mean >= 0, mean
    assert 0 < chance < 1, chance
    if mean > 500:
        return math.ceil(mean + 5 * math.sqrt(mean))
    term = math.exp(-mean)
    below, count = term, 1
    while 1 - below > chance and count < 10_000:
        term *= mean / count
        below += term
        count += 1
    return count


def features(history: History, host: HostId, now: Instant, window: Duration) -> Mapping[str, float]:
    """The values of a host; what is not there is 0. `runs`: jobs that it ran by itself."""
    start = Instant(now - window)
    its = [each for each in history.incidents.get(host, ()) if start <= each.at <= now and each.rule != LEMON]
    if not its:
        return {}
    repaired = history.repaired.get(host, start)
    kinds: dict[str, list[Incident]] = {}
    for each in its:
        kinds.setdefault(each.kind, []).append(each)
    fresh = {kind: [each for each in some if each.at >= repaired] for kind, some in kinds.items()}
    verdicts = fresh.get("verdict", [])
    times = [each.at for each in verdicts if each.offence]
    failed = fresh.get("job-failed", [])
    values: dict[str, float] = {
        "tickets": len(kinds.get("ticket", ())),
        "out_count": _outs(its),
        "excl_jobid_count": len({each.job for each in fresh.get("excluded", ())}),
        "xid_cnt": len({each.rule for each in verdicts if each.rule.startswith(("xid-", "sxid-"))}),
        "multi_node_node_fails": sum(each.nodes > 1 and _blames(each, times) for each in failed),
        "single_node_node_fails": len({each.job for each in failed if each.nodes == 1}),
        "unit_repeats": _repeats(verdicts),
    }
    if values["single_node_node_fails"]:
        first_day, last_day = max(start, repaired) // DAY, now // DAY
        runs = sum(count for day, count in history.alone.get(host, ()) if first_day <= day <= last_day)
        if runs >= RUNS:
            values["runs"] = runs
            values["single_node_node_failure_rate"] = min(1.0, values["single_node_node_fails"] / runs)
    return values


def _blames(failed: Incident, verdicts: Sequence[Instant]) -> bool:
    """The host killed the job: it was lost, or a verdict of its own came shortly before, or just after."""
    return failed.offence or any(failed.at - BEFORE <= at <= failed.at + AFTER for at in verdicts)


def _outs(its: Sequence[Incident]) -> int:
    """Times that it was away: what lies close together is one absence."""
    last, outs = None, 0
    for each in its:
        if each.kind in ("lost", "remedy", "ticket", "verification") and each.offence:
            outs += last is None or each.at - last > APART
            last = each.at
    return outs


def _repeats(verdicts: Sequence[Incident]) -> int:
    """Cases of the slot that had the most."""
    if len(verdicts) < 2:
        return sum(each.unit != "host" and each.offence for each in verdicts)
    counts: dict[str, int] = {}
    for each in cases(verdicts):
        if each.unit != "host":
            counts[each.unit] = counts.get(each.unit, 0) + 1
    return max(counts.values(), default=0)


def _trimmed_mean(values: Sequence[float], count: int) -> float:
    """Without the largest ones. Of `count` values; those that are not given are 0."""
    left_out = math.ceil(count * TRIMMED)
    some = sorted(value for value in values if value)
    return sum(some[: max(0, len(some) - left_out)]) / max(1, count - left_out)


def _median(values: Sequence[float], count: int) -> float:
    some = sorted(value for value in values if value)
    place = len(some) - 1 - (count - 1 - count // 2)
    return some[place] if place >= 0 else 0.0
