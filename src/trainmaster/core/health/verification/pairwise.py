"""Measured pairs into hosts: which one is slow, several, a path, a common cause, or nothing that can be told.

Rules, in this order:

1. A pair's cost is its *best* sample, over all rounds. Disturbance only makes slower, so the best sample is what the
   path can do; a link that is shaped or broken is never fast, not even once.
2. A pair is slow if it is worse than the level of the hosts' best pairs (`level`: by effect and by deviations). That is
   the level of hosts, not of pairs: one bad host of six makes a third of the pairs slow, but a sixth of the hosts.
3. Who is in one pair that is not slow is cleared. A host is *named* if all its pairs are slow, with two partners or
   more, and one of these is cleared: only it can be the reason. Who has slow pairs only and no cleared partner is in
   *doubt*. A slow pair of two cleared hosts is a slow *path*.
4. A pair that is slow only while its ends waited for a processor (others use it) says nothing: it is *busy*. Of one
   sample at least, what is left without the waiting has to be slow by itself.
5. If half of the hosts or more are named or in doubt, or all hosts of one switch (two at least) and they alone, or all
   paths across the edge of a switch, that is a *common cause*: nobody is blamed.

Pairs that are corrupt (what arrived is not what was sent) or dead (nothing came within the time) count as slow ones do,
with other words. Nothing here says that a whole set is as fast as it should be, since a set can only be compared with
itself; `expected_cost` is the measure from outside that can.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from trainmaster.core.base.value import Value
from trainmaster.core.health.verification.level import Level, Limits, level_of
from trainmaster.core.health.verification.outcome import Outcome

Kind = Literal["bandwidth", "latency"]
Cause = Literal["none", "host", "hosts", "path", "common", "unknown"]
HostPair = tuple[str, str]

_TWO_ENDS: Final = 2.0
_TWO_ENDS_S: Final = 0.1
"""Both ends of a pair time the same exchange. If they differ by that factor and by more seconds than a scheduler takes
away, one clock is wrong, or one of them speaks of something else."""


class Measured(Value):
    """What a pair did in a round."""

    round: int
    hosts: HostPair
    costs: tuple[float, ...] = ()
    """Of one unit of work, in seconds: a transfer of given size, or a message and its answer."""
    problem: Literal["", "corrupt", "dead"] = ""
    detail: str = ""
    ends_s: tuple[float, float] | None = None
    """How long the whole exchange took, as each end saw it."""
    waited_shares: tuple[float, ...] = ()
    """Of each sample the part of its time in which an end was ready to go on and had no processor, both together."""


class Judgement(Value):
    """What the pairs say."""

    kind: Kind
    cause: Cause
    outcome: Outcome
    """Of the set as a whole. Of single hosts: `host_outcome`."""
    sentence: str
    named: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    paths: tuple[HostPair, ...] = ()
    common: tuple[str, ...] = ()
    """What all the slow ones share: switches, or `group`."""
    shared_by: tuple[str, ...] = ()
    """The hosts on which the common cause shows."""
    unseen: tuple[str, ...] = ()
    """Hosts of which nothing was measured."""
    numbers: dict[str, int | float] = {}
    evidence: tuple[str, ...] = ()

    def host_outcome(self, host: str) -> Outcome:
        """Only who is named has failed."""
        if host in self.named:
            return Outcome.FAIL
        if host in self.unseen:
            return Outcome.NOT_RUN
        nobody_is_known = self.cause == "unknown" and not self.doubtful
        if nobody_is_known or host in self.shared_by or host in self.doubtful:
            return Outcome.INVALID
        return Outcome.PASS


class Sight(Value):
    """Pairs, folded: who is slow with whom."""

    hosts: tuple[str, ...]
    cost: dict[HostPair, float]
    """The best sample of each pair that works."""
    broken: dict[HostPair, str]
    """Pairs that were corrupt, or dead in every round, with the first detail."""
    busy: tuple[HostPair, ...]
    """Slow pairs that say nothing."""
    level: Level | None
    slow: frozenset[HostPair]
    partners: dict[str, frozenset[str]]

    def of(self, host: str) -> list[HostPair]:
        return [_pair(host, other) for other in sorted(self.partners.get(host, ()))]

    @property
    def cleared(self) -> frozenset[str]:
        return frozenset(host for pair in self.cost if pair not in self.slow for host in pair)


def judge(
    kind: Kind,
    hosts: Sequence[str],
    measured: Sequence[Measured],
    limits: Limits,
    *,
    switches: Mapping[str, str] | None = None,
    expected_cost: float | None = None,
) -> Judgement:
    """`switches`: what each host hangs on, if known. `expected_cost`: what a healthy pair takes, if known."""
    assert len(set(hosts)) == len(hosts), hosts
    assert expected_cost is None or expected_cost > 0.0, expected_cost
    wrong = _contradiction(hosts, measured, limits)
    if wrong:
        return Judgement(kind=kind, cause="unknown", outcome=Outcome.INVALID, sentence=wrong)
    sight = look(hosts, measured, limits)
    unseen = tuple(host for host in hosts if not sight.partners.get(host))
    if len(hosts) - len(unseen) < 2:
        why = _busy(sight) if sight.busy else "there is no partner to measure with"
        return Judgement(kind=kind, cause="unknown", outcome=Outcome.NOT_RUN, sentence=why, unseen=unseen)
    found = _verdict(kind, sight, limits, switches or {}, expected_cost)
    return found.but(unseen=unseen, numbers=_numbers(sight, limits), evidence=_evidence(kind, sight))


def look(hosts: Sequence[str], measured: Iterable[Measured], limits: Limits) -> Sight:
    """The pairs, folded."""
    cost: dict[HostPair, float] = {}
    corrupt: dict[HostPair, str] = {}
    dead: dict[HostPair, str] = {}
    unwaited: dict[HostPair, float] = {}
    for each in measured:
        pair = _pair(*each.hosts)
        if each.problem == "corrupt":
            corrupt.setdefault(pair, each.detail)
        elif each.problem == "dead":
            dead.setdefault(pair, each.detail)
        else:
            cost[pair] = min(*each.costs, cost.get(pair, math.inf))
            waited = each.waited_shares or (0.0,) * len(each.costs)
            left = [value * (1.0 - min(share, 1.0)) for value, share in zip(each.costs, waited, strict=True)]
            unwaited[pair] = max(*left, unwaited.get(pair, 0.0))
    cost = {pair: value for pair, value in cost.items() if pair not in corrupt}
    broken = {**{pair: why for pair, why in dead.items() if pair not in cost}, **corrupt}
    bests: dict[str, float] = {}
    for pair, value in cost.items():
        for host in pair:
            bests[host] = min(value, bests.get(host, math.inf))
    level = level_of(bests.values()) if bests else None
    worse = {pair for pair, value in cost.items() if level is not None and level.is_worse(value, limits)}
    busy = tuple(sorted(pair for pair in worse if level is None or not level.is_worse(unwaited[pair], limits)))
    cost = {pair: value for pair, value in cost.items() if pair not in busy}
    partners: dict[str, set[str]] = {}
    for one, other in (*cost, *broken):
        partners.setdefault(one, set()).add(other)
        partners.setdefault(other, set()).add(one)
    return Sight(
        hosts=tuple(hosts), cost=cost, broken=broken, busy=busy, level=level,
        slow=frozenset((worse - set(busy)) | set(broken)),
        partners={host: frozenset(its) for host, its in partners.items()},
    )  # fmt: skip


def _contradiction(hosts: Sequence[str], measured: Sequence[Measured], limits: Limits) -> str:
    """Why the samples can't be believed; empty: they can."""
    for each in measured:
        name = " - ".join(each.hosts)
        assert set(each.hosts) <= set(hosts), each.hosts
        assert each.hosts[0] != each.hosts[1], each.hosts
        if each.problem:
            continue
        if len(each.costs) < limits.least_samples:
            return f"{name}: {len(each.costs)} samples, at least {limits.least_samples} are needed"
        if any(not math.isfinite(cost) or cost <= 0.0 for cost in each.costs):
            return f"{name}: a sample of {min(each.costs):g} s is none"
        if each.ends_s is not None and max(each.ends_s) > _TWO_ENDS * min(each.ends_s) + _TWO_ENDS_S:
            one, other = each.ends_s
            return f"{name}: the exchange took {one:.3g} s at one end and {other:.3g} s at the other"
    return ""


def _verdict(
    kind: Kind, sight: Sight, limits: Limits, switches: Mapping[str, str], expected_cost: float | None
) -> Judgement:
    seen = [host for host in sight.hosts if sight.partners.get(host)]
    cleared = sight.cleared
    guilty = [host for host in seen if host not in cleared]
    named = [host for host in guilty if len(sight.partners[host]) > 1 and sight.partners[host] & cleared]
    doubtful = [host for host in guilty if host not in named]
    paths = sorted(pair for pair in sight.slow if set(pair) <= cleared)
    verdict = Judgement(
        kind=kind, cause="none", outcome=Outcome.PASS, sentence="", named=tuple(named), doubtful=tuple(doubtful),
        cleared=tuple(host for host in seen if host in cleared), paths=tuple(paths),
    )  # fmt: skip
    late = _behind_expectation(sight, limits, expected_cost)
    if late:
        return _common(verdict, ("group",), seen, late)
    if len(seen) < 3 and sight.slow:
        return _unknown(verdict, f"{' and '.join(seen)} are one pair: which of them it is can't be told")
    if 2 * len(guilty) >= len(seen) and len(guilty) > 1:
        return _common(
            verdict, ("group",), guilty, f"{len(guilty)} of {len(seen)} hosts, which is no accident of single ones"
        )
    shared = _switches(verdict, sight, switches)
    if shared is not None:
        return shared
    if named:
        return _named(verdict, sight)
    if doubtful:
        return _unknown(verdict, f"{', '.join(doubtful)}: slow, and with nobody who is known to be fast")
    if paths:
        shown = ", ".join(f"{one} - {other}" for one, other in paths[:3])
        sentence = f"the path {shown} is {_how(sight, paths)}, while both its ends are fine with others"
        return verdict.but(cause="path", outcome=Outcome.FAIL, sentence=sentence)
    return _nothing(verdict, sight, limits, switches, expected_cost is not None)


def _nothing(
    verdict: Judgement, sight: Sight, limits: Limits, switches: Mapping[str, str], was_expected: bool
) -> Judgement:
    """Nobody is slow; whether that means anything."""
    level = sight.level
    assert level is not None
    if sight.busy:
        return _unknown(verdict, _busy(sight))
    if level.count < 3 and not was_expected:
        return _unknown(verdict, f"{level.count} hosts are too few to compare, and no figure was expected of them")
    if level.is_unsteady(limits):
        return _unknown(
            verdict, f"the peers differ by {100.0 * level.spread:.0f} %: too unsteady for a slow one to stand out"
        )
    fast = [
        pair for pair, cost in sight.cost.items()
        if level.is_better(cost, limits) and switches.get(pair[0], pair[0]) != switches.get(pair[1], pair[1])
    ]  # fmt: skip
    if fast and not was_expected:
        one, other = min(fast, key=sight.cost.__getitem__)
        faster = level.centre / sight.cost[(one, other)]
        return _unknown(
            verdict,
            f"{one} - {other} is {faster:.1f} times as fast as usual: either these two are nearer to each other, or all"
            " others are slow",
        )
    worst = level.ratio(max(sight.cost.values()))
    return verdict.but(sentence=f"{level.count} hosts alike; the slowest pair takes {worst:.2f} times as long as usual")


def _behind_expectation(sight: Sight, limits: Limits, expected_cost: float | None) -> str:
    if expected_cost is None or sight.level is None:
        return ""
    ratio = sight.level.centre / expected_cost
    return f"all together {ratio:.1f} times as slow as expected" if ratio > limits.effect else ""


def _switches(verdict: Judgement, sight: Sight, switches: Mapping[str, str]) -> Judgement | None:
    """A common cause at a switch; the rest of the named keep their names."""
    members: dict[str, list[str]] = {}
    for host in sight.hosts:
        if host in switches and sight.partners.get(host):
            members.setdefault(switches[host], []).append(host)
    guilty = {*verdict.named, *verdict.doubtful}
    whole = [switch for switch, its in members.items() if len(its) > 1 and set(its) <= guilty]
    if whole:
        behind = [host for switch in whole for host in members[switch]]
        rest = tuple(host for host in verdict.named if host not in behind)
        found = _common(verdict, whole, behind, f"all {len(behind)} hosts behind {', '.join(whole)}")
        return found.but(named=rest) if rest else found
    if verdict.named or verdict.doubtful:
        return None
    for switch, its in members.items():
        crossing = [pair for pair in {*sight.cost, *sight.broken} if len(set(pair) & set(its)) == 1]
        ends = {host for pair in crossing for host in pair}
        if crossing and len(ends & set(its)) > 1 and len(ends - set(its)) > 1 and set(crossing) <= sight.slow:
            why = f"all {len(crossing)} paths that leave {switch}, while its hosts are fine among themselves"
            return _common(verdict, [switch], its, why)
    return None


def _named(verdict: Judgement, sight: Sight) -> Judgement:
    shown = []
    for host in verdict.named:
        pairs = sight.of(host)
        partners = ", ".join(sorted({*pairs[0], *(each for pair in pairs for each in pair)} - {host}))
        shown.append(f"{host} is {_how(sight, pairs)} with each of its partners ({partners})")
    cause: Cause = "host" if len(verdict.named) == 1 else "hosts"
    return verdict.but(cause=cause, outcome=Outcome.FAIL, sentence="; ".join(shown))


def _common(verdict: Judgement, what: Sequence[str], hosts: Sequence[str], why: str) -> Judgement:
    sentence = f"a common cause: {why}; look at what they share before at any of them"
    return verdict.but(
        cause="common", outcome=Outcome.FAIL, sentence=sentence, named=(), common=tuple(what), shared_by=tuple(hosts)
    )


def _unknown(verdict: Judgement, why: str) -> Judgement:
    return verdict.but(cause="unknown", outcome=Outcome.INVALID, sentence=f"can't tell: {why}")


def _how(sight: Sight, pairs: Sequence[HostPair]) -> str:
    """In one adjective: what is worst about these pairs."""
    broken = [sight.broken[pair] for pair in pairs if pair in sight.broken]
    if broken:
        return broken[0]
    assert sight.level is not None
    least = min(sight.level.ratio(sight.cost[pair]) for pair in pairs)
    return f"{least:.1f} times as slow as usual"


def _busy(sight: Sight) -> str:
    shown = ", ".join(f"{one} - {other}" for one, other in sight.busy[:3])
    return f"{shown}: slow while others used the processors"


def _numbers(sight: Sight, limits: Limits) -> dict[str, int | float]:
    numbers: dict[str, int | float] = {
        "hosts": len(sight.hosts), "pairs": len(sight.cost) + len(sight.broken), "slow_pairs": len(sight.slow)
    }  # fmt: skip
    if sight.level is not None and sight.cost:
        worst = max(sight.cost.values())
        numbers |= {
            "usual_us": round(1e6 * sight.level.centre, 1),
            "bound_us": round(1e6 * sight.level.bound(limits), 1),
            "spread_percent": round(100.0 * sight.level.spread, 1),
            "worst_us": round(1e6 * worst, 1),
            "worst_ratio": round(sight.level.ratio(worst), 2),
        }
    return numbers


def _evidence(kind: Kind, sight: Sight) -> tuple[str, ...]:
    """The pairs that were slow, and where there are none the slowest, as lines."""
    pairs = sorted(sight.slow) or sorted(sight.cost, key=sight.cost.__getitem__)[-1:]
    lines = []
    for pair in pairs[:16]:
        if pair in sight.broken:
            lines.append(f"{pair[0]} - {pair[1]}: {sight.broken[pair]}")
        else:
            assert sight.level is not None
            cost = sight.cost[pair]
            lines.append(
                f"{pair[0]} - {pair[1]}: {1e3 * cost:.3g} ms, usual {1e3 * sight.level.centre:.3g} ms ({kind})"
            )
    return tuple(lines)


def _pair(one: str, other: str) -> HostPair:
    return (one, other) if one < other else (other, one)
