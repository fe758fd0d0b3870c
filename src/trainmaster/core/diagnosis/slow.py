"""Who is slow: from measures of ranks and hosts, from tests in pairs, from campaigns of tests.

In synchronous training a slow rank does not look slow: the others wait for it inside the next collective, and what is
measured across that collective is the same for all. So a measure is first asked what it spans. *Local* ones (waiting
for input, computing, copying, arriving) name a rank. *Levelled* ones (backward, step, iteration) span a collective:
equal values prove nothing, and the answer is "cannot tell; measure before the collective". Measures of *waiting for
others* (all-reduce, communication, barrier) are inverse: the slow rank waits least.

A value stands out when it is half again as large as the median of its peers and beyond their spread, never because it
is the largest. Where a measure has steps, a rank is slow when most of the slow steps are its own; when they wander over
the ranks, the cause is one that all share (garbage collection, a scheduled task of the host), and no host is to blame.

Tests in pairs always show the same time for both members, so one round cannot say which; whoever is in the slow pair of
every round, while its former partners are fast with others, is it.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.diagnosis.evidence import Round, Times, Trial
from trainmaster.core.diagnosis.tables import median

RATIO: Final = 1.5
"""A value this many times the median of its peers stands out."""
SPREADS: Final = 6.0
"""And it must lie so many spreads (median distances from the median) away."""
OWN_SHARE: Final = 0.6
"""So much of the slow steps must be one rank's for it to be the slow one."""
STEPS_LEAST: Final = 3
PROGRAMS_LEAST: Final = 3
"""Different programs that failed on one host, and on no other."""

_WAITS: Final = re.compile(
    r"all_?reduce|all_?gather|comm|nccl|barrier|sync|collective|wait_for_peers|exposed", re.IGNORECASE
)
_INPUT: Final = re.compile(r"input|data|load|fetch|batch", re.IGNORECASE)
_LOCAL: Final = re.compile(
    r"arriv|enter|start|forward|compute_only|gpu_compute|kernel|copy|h2d|d2h|gc|cpu|save|write|load|eval|compile|read",
    re.IGNORECASE,
)
_LEVELLED: Final = re.compile(
    r"backward|step|iter|optim|total|train|compute|time|seconds|duration|ms$|_s$", re.IGNORECASE
)


class Late(Value):
    """What one measure says."""

    metric: str
    unit: str
    who: tuple[str, ...]
    """Who stands out; empty: nobody."""
    values: tuple[float, ...]
    usual: float
    spread: float
    """Between the smallest and the largest."""
    kind: str
    """`local`, `levelled`, `waits`."""
    rotating: tuple[str, ...] = ()
    """Who had slow steps, where they wander."""
    slow_steps: int = 0
    steps: int = 0
    place: str


def kind_of(metric: str) -> str:
    """What a measure spans, by its name."""
    if _INPUT.search(metric):
        return "local"
    if _WAITS.search(metric):
        return "waits"
    return "local" if _LOCAL.search(metric) else "levelled"


def phase_of(metric: str) -> str:
    """The part of a step that a measure is about."""
    for pattern, name in (
        (r"input|data|load|fetch|batch", "input"),
        (r"save|checkpoint|write", "save"),
        (r"eval|valid", "evaluation"),
        (r"compile", "compilation"),
        (r"copy|h2d|d2h", "copy"),
        (r"\bgc|garbage", "garbage collection"),
        (r"backward", "backward"),
        (r"forward", "forward"),
        (r"comm|reduce|gather|nccl|barrier", "communication"),
    ):
        if re.search(pattern, metric, re.IGNORECASE):
            return name
    return metric.rpartition("_")[0] or metric


def outliers(values: Sequence[tuple[str, float]], low: bool = False) -> list[tuple[str, float]]:
    """Those whose value is far above (or, with `low`, below) those of their peers, the farthest first."""
    if len(values) < 3:
        return []
    usual = median([value for _, value in values])
    spread = median([abs(value - usual) for _, value in values])
    if low:
        found = [(who, value) for who, value in values if value * RATIO < usual and usual - value > SPREADS * spread]
        return sorted(found, key=lambda row: row[1])
    found = [(who, value) for who, value in values if value > RATIO * usual and value - usual > SPREADS * spread]
    return sorted(found, key=lambda row: -row[1])


def of_times(times: Times) -> Late:
    """Judges one measure."""
    kind = kind_of(times.metric)
    numbers = [value for _, value in times.values]
    usual, spread = (median(numbers), max(numbers) - min(numbers)) if numbers else (0.0, 0.0)
    late = Late(metric=times.metric, unit=times.unit, who=(), values=(), usual=usual, spread=spread, kind=kind,
                place=times.place)  # fmt: skip
    if times.rows:
        return _of_history(times, late)
    found = outliers(times.values, low=kind == "waits")
    return late.but(who=tuple(who for who, _ in found), values=tuple(value for _, value in found))


def _of_history(times: Times, late: Late) -> Late:
    """Judges step by step: who has the slow steps?"""
    by_step: dict[int, list[tuple[str, float]]] = {}
    for step, who, value in times.rows:
        by_step.setdefault(step, []).append((who, value))
    slow = {step: found for step, row in by_step.items() if (found := outliers(row, low=late.kind == "waits"))}
    owners = Counter(found[0][0] for found in slow.values())
    late = late.but(slow_steps=len(slow), steps=len(by_step))
    if not owners:
        return late
    who, most = owners.most_common(1)[0]
    if most >= max(STEPS_LEAST, OWN_SHARE * len(slow)):
        values = [value for found in slow.values() for name, value in found if name == who]
        steady = {name for found in slow.values() for name, _ in found}
        also = tuple(name for name in sorted(steady) if owners[name] == 0 and _always(name, slow))
        return late.but(who=(who, *also), values=(median(values),))
    if len(owners) > 1:
        return late.but(rotating=tuple(sorted(owners)))
    return late


def _always(name: str, slow: dict[int, list[tuple[str, float]]]) -> bool:
    return sum(any(who == name for who, _ in found) for found in slow.values()) >= OWN_SHARE * len(slow)


class Pairs(Value):
    """What rounds of tests in pairs say."""

    slow: tuple[str, ...]
    """In the slow pair of every round, and in no fast one."""
    open: tuple[str, ...]
    """Might be; another round with other partners would tell."""
    cleared: tuple[str, ...]
    rounds: int
    usual: tuple[float, ...]
    """Median of each round."""


def of_rounds(rounds: Sequence[Round]) -> Pairs:
    """Judges rounds of pairs. A pair is slow against the median of its own round."""
    slow: Counter[str] = Counter()
    cleared: set[str] = set()
    seen: Counter[str] = Counter()
    usual = []
    for one in rounds:
        middle, fast = median([value for _, _, value in one.pairs]), min(value for _, _, value in one.pairs)
        if middle > RATIO * fast:
            middle = fast  # most pairs are slow: the fast ones are the measure
        usual.append(middle)
        for left, right, value in one.pairs:
            seen.update((left, right))
            if value > RATIO * middle:
                slow.update((left, right))
            else:
                cleared |= {left, right}
    suspects = [who for who in slow if who not in cleared]
    sure = [who for who in suspects if slow[who] >= 2]
    cleared_now = cleared & set(slow)
    return Pairs(
        slow=tuple(sorted(sure, key=_order)),
        open=tuple(sorted((who for who in suspects if who not in sure), key=_order)),
        cleared=tuple(sorted(cleared_now, key=_order)),
        rounds=len(rounds),
        usual=tuple(usual),
    )


def bad_hosts(trials: Sequence[Trial]) -> list[Trial]:
    """Hosts on which several different programs failed that fail nowhere else."""
    found = [trial for trial in trials if trial.failing >= PROGRAMS_LEAST]
    clean = [trial for trial in trials if trial.failing == 0 and trial.programs > 0]
    return sorted(found, key=lambda trial: -trial.failing) if len(clean) * 2 >= len(trials) else []


def _order(who: str) -> tuple[int, str]:
    return (int(who), "") if who.isdigit() else (1 << 62, who)
