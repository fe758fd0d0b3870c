"""What a running job does right now, from the rings and processes of its ranks.

First it is asked whether it stands still at all: the longest time that a rank has waited in its present collective,
against the bound that the job's own steps set (`pace.py`). Then the same judgement is made as from dumps, with the
state of each process beside it. A process that is stopped is named at once; that needs no bound.

A job that moves may still be held up by one rank. What a rank does *between* collectives is its own: the time of a step
less the time that it was blocked in collectives, on its own clock, so that no two clocks are compared. The ranks that
wait have little of it, the one they wait for has much. It is judged step by step against the peers (`slow.py`), and it
must matter: a fifth of a step at least.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from trainmaster.core.agent.ring import RankState, RingCall, Rings
from trainmaster.core.base.time import in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.diagnosis import data, slow
from trainmaster.core.diagnosis.answer import Diagnosis, Kind, ranks_text
from trainmaster.core.diagnosis.collectives import Stop, first_unmatched
from trainmaster.core.diagnosis.evidence import Evidence, Times, joined
from trainmaster.core.diagnosis.judge import judge
from trainmaster.core.diagnosis.pace import MEDIANS, Bound, bound
from trainmaster.core.diagnosis.ring import of_rings
from trainmaster.core.diagnosis.stuck import surely_stopped
from trainmaster.core.diagnosis.tables import history, median

WINDOW: Final = 12
"""Steps that are looked at for stragglers."""
MATTERS: Final = 0.2
STEPLESS_S: Final = 10.0
STEPLESS_GAPS: Final = 20
"""Of a step."""
METRIC: Final = "arrival_ms"
"""Time of its own that a rank needs to arrive at the collectives of a step."""


class LiveDiagnosis(Value):
    """A diagnosis with what it was measured by."""

    job: str
    attempt: str
    epoch: int
    at: int
    diagnosis: Diagnosis
    standing_s: float
    """How long the ranks that wait have waited."""
    bound_s: float
    """What a step may take; beyond it, standing is a stop."""
    bound: str
    patience_s: float = 0.0
    """What a stop may last that might yet end by itself; beyond it, it is ended."""
    silent_hosts: tuple[str, ...] = ()
    """Hosts whose agents did not answer."""


def diagnose(
    rings: Sequence[Rings], ranks: int, silent: Sequence[str] = (), told_s: float = 0.0
) -> tuple[Diagnosis, float, Bound]:
    """(the answer, how long ranks have waited, the bound) of a job of `ranks` ranks. `told_s`: the bound that its job
    file states; 0: none."""
    evidence = joined(of_rings(each) for each in rings).but(world=ranks)
    steps_s = _steps(rings)
    pace = bound(steps_s, told_s) if steps_s or told_s else _bound_of_gaps(rings)
    stop = first_unmatched(evidence)
    waited_s = _waited(rings, stop)
    frozen = [each for each in evidence.workers if each.state in ("T", "t")]
    if frozen and stop is None:
        return _frozen(evidence), waited_s, pace
    if stop is not None and (frozen or waited_s > pace.bound_s):
        return judge(evidence), waited_s, pace
    step_ms = 1000 * (pace.median_s or 1.0)
    late = data.late_rank(evidence, rings, step_ms) or _straggler(evidence, rings, pace)
    return late or _moving(evidence, stop, silent, waited_s, data.late_store(rings, step_ms)), waited_s, pace


def astray(rings: Sequence[Rings], ranks: int) -> Diagnosis | None:
    """Who went another way than the others, of ranks that have failed by that; None: the recorders do not tell. What
    became of the processes says nothing about it."""
    found = judge(joined(of_rings(each) for each in rings).but(world=ranks, workers=()))
    named = {*found.missing_ranks, *found.differing_ranks}
    return found if found.kind is Kind.DESYNC and named and 2 * len(named) <= ranks else None


def _steps(rings: Sequence[Rings]) -> list[float]:
    """Durations of steps that were all training, as the rank saw them that has most of them."""
    found: list[list[float]] = [[]]
    for host in rings:
        for rank in host.ranks:
            firsts = _firsts(rank)
            steps = sorted(firsts)
            found.append(
                [
                    in_seconds(firsts[step + 1].entered_us - firsts[step].entered_us)
                    for step in steps[1:]
                    if step + 1 in firsts and not firsts[step].slow and not firsts[step + 1].slow
                ]
            )
    return max(found, key=len)


def _bound_of_gaps(rings: Sequence[Rings]) -> Bound:
    """Of a script that tells no steps: from the longest time between two collectives of a rank. A job whose session
    has not come past its first step has a slow phase instead, and no bound of its own yet."""
    longest, gaps = 0.0, 0
    for host in rings:
        for rank in host.ranks:
            calls = rank.ring.calls if rank.ring else ()
            for before, after in pairwise(calls):
                if not before.slow and not after.slow:
                    gaps += 1
                    longest = max(longest, in_seconds(after.entered_us - before.entered_us))
    if gaps < STEPLESS_GAPS:
        return bound(())
    return Bound(bound_s=max(STEPLESS_S, MEDIANS * longest), steps=gaps, median_s=longest, longest_s=longest)


def _firsts(rank: RankState) -> dict[int, RingCall]:
    """The first collective of each step that is in the ring; one that began in a slow phase counts as slow."""
    firsts: dict[int, RingCall] = {}
    for call in rank.ring.calls if rank.ring else ():
        known = firsts.get(call.step)
        if known is None:
            firsts[call.step] = call
        elif call.slow and not known.slow:
            firsts[call.step] = known.but(slow=call.slow)
    return firsts


def _waited(rings: Sequence[Rings], stop: Stop | None) -> float:
    """How long ranks have waited in their present collective: the first of them, where somebody is missing; the last to
    come, where all are there, since until then there was nothing that could end."""
    waits = [
        in_seconds(host.at - call.waited_us)
        for host in rings
        for rank in host.ranks
        if stop is not None and rank.rank in (*stop.waiting, *stop.ahead) and rank.ring
        for call in rank.ring.calls[-1:]
        if call.waited_us and not call.left_us
    ]
    if stop is not None and not stop.missing and not stop.differing:
        return min(waits, default=0.0)
    return max(waits, default=0.0)


def _frozen(evidence: Evidence) -> Diagnosis:
    frozen = [each for each in evidence.workers if each.state in ("T", "t")]
    ranks = tuple(sorted(each.rank for each in frozen))
    told = f"{ranks_text(ranks)} stopped, by SIGSTOP or a debugger"
    return Diagnosis(
        kind=Kind.PROCESS_STOPPED,
        summary=told,
        missing_ranks=ranks,
        first_cause=told,
        confidence=surely_stopped(frozen),
        next_evidence=("who sent the signal: a person, a debugger, a container that was paused",),
        advice=("send SIGCONT, or end the process and let the job re-form", "no host is to blame"),
    )


def own_times(rings: Sequence[Rings]) -> Times | None:
    """Milliseconds between collectives, by step and rank, of the newest steps that all ranks completed."""
    cells: list[tuple[int, str, float]] = []
    for host in rings:
        for rank in host.ranks:
            cells += [(step, str(rank.rank), own_s * 1000) for step, own_s in _own(rank).items()]
    ranks = {who for _, who, _ in cells}
    by_step: dict[int, int] = {}
    for step, _, _ in cells:
        by_step[step] = by_step.get(step, 0) + 1
    whole = sorted(step for step, count in by_step.items() if count == len(ranks))[-WINDOW:]
    kept = [cell for cell in cells if cell[0] in set(whole)]
    return history(METRIC, "rank", kept, "recorder") if len(whole) >= slow.STEPS_LEAST else None


def _own(rank: RankState) -> dict[int, float]:
    """Seconds of each whole step in which the rank was not blocked in a collective, without slow phases."""
    if rank.ring is None:
        return {}
    firsts = _firsts(rank)
    blocked: dict[int, int] = {}
    for call in rank.ring.calls:
        if call.waited_us and call.left_us:
            blocked[call.step] = blocked.get(call.step, 0) + call.left_us - call.waited_us
    steps = sorted(firsts)[1:]
    return {
        step: in_seconds(max(0, firsts[step + 1].entered_us - firsts[step].entered_us - blocked.get(step, 0)))
        for step in steps
        if step + 1 in firsts and not firsts[step].slow and not firsts[step + 1].slow
    }


def _straggler(evidence: Evidence, rings: Sequence[Rings], pace: Bound) -> Diagnosis | None:
    times = own_times(rings)
    if times is None:
        return None
    late = slow.of_times(times)
    if not late.who and not late.rotating:
        return None
    step_ms = 1000 * (pace.median_s or 1.0)
    if late.who and late.values[0] - late.usual < MATTERS * step_ms:
        return None
    found = judge(Evidence(times=(times,), hosts=evidence.hosts))
    if found.kind is Kind.ROTATING_PAUSES and _pause_ms(times) < MATTERS * step_ms:
        return None
    hosts = ", ".join(sorted({evidence.host_of(rank) for rank in found.slow_ranks} - {""}))
    return found.but(details=(*found.details, *((f"it runs on {hosts}",) if hosts else ()), _where(rings, found)))


def _pause_ms(times: Times) -> float:
    values = [value for _, _, value in times.rows]
    return max(values) - median(values)


def _where(rings: Sequence[Rings], found: Diagnosis) -> str:
    """Before which collective of a step a slow rank spends its time."""
    rank = next((each for host in rings for each in host.ranks if each.rank in found.slow_ranks and each.ring), None)
    if rank is None or rank.ring is None:
        return "measured between collectives, on each rank's own clock"
    gaps: dict[tuple[int, str], list[float]] = {}
    place, step, left = 0, -1, 0
    for call in rank.ring.calls:
        place = place + 1 if call.step == step else 1
        step = call.step
        if left:
            gaps.setdefault((place, call.op), []).append((call.entered_us - left) / 1000)
        left = call.left_us or left
    (number, op), values = max(gaps.items(), key=lambda row: median(row[1]), default=((1, "?"), [0.0]))
    return f"most of it before collective {number} of a step ({op}): {median(values):.0f} ms"


def _moving(
    evidence: Evidence, stop: Stop | None, silent: Sequence[str], waited_s: float, slow_store: str
) -> Diagnosis:
    known = {each.rank for each in evidence.workers}
    blind = not evidence.standings
    summary = "the ranks go on" if not blind else "no rank records its collectives; nothing can be said of them"
    phases = sorted({each.phase for each in evidence.workers if each.phase not in ("training",)})
    details = [f"phases: {', '.join(phases)}"] if phases else []
    if stop is not None and stop.missing:
        details.append(f"{ranks_text(stop.missing)} not yet in {stop.name()}, for {waited_s:.1f} s: within the bound")
    if slow_store:
        details.append(slow_store)
    if silent:
        details.append(f"no answer from {', '.join(silent)}")
    return Diagnosis(
        kind=Kind.NONE if not blind and not silent else Kind.UNDETERMINED,
        summary=summary,
        unseen_ranks=tuple(rank for rank in range(evidence.world or 0) if rank not in known),
        confidence="medium" if not blind else "low",
        details=tuple(details),
        next_evidence=("trainmaster job stacks",) if blind else (),
        advice=_advice(blind, slow_store),
    )


def _advice(blind: bool, slow_store: str) -> tuple[str, ...]:
    if blind:
        return ("open the session of trainmaster.training in the script, or call its record()",)
    return ("look at the store of the data, or fetch further ahead",) if slow_store else ()
