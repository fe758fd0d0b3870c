"""Slow ranks and bad hosts from what people measured: times, pairs, campaigns of tests. See `slow.py` for the rules."""

import re
from collections import Counter

from trainmaster.core.diagnosis import slow
from trainmaster.core.diagnosis.answer import Diagnosis, Kind, ranks_text
from trainmaster.core.diagnosis.collectives import Stop
from trainmaster.core.diagnosis.evidence import Evidence
from trainmaster.core.diagnosis.slow import Late

MEASURE_BEFORE = (
    "the time of arrival at the collective, by rank (its start, not its end)",
    "GPU time without communication, by rank",
)


_COUNTS = re.compile(
    r"^(?:num_|n_|total_|local_)?(?:micro_?)?(?:batches|steps|iterations|iters|samples|collectives|ops)(?:_\w+)?$|"
    r"^(?:last_)?(?:seq|collective|op)(?:_?(?:id|num|number|seq))?$"
)


def counts(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """How many batches or collectives each rank had: where they differ, the program went apart."""
    tables = [each for each in evidence.times if each.unit == "rank" and _COUNTS.match(each.metric) and not each.rows]
    table = next((each for each in tables if len({value for _, value in each.values}) > 1), None)
    if table is None or not all(value == int(value) and who.isdigit() for who, value in table.values):
        return None
    usual = Counter(value for _, value in table.values).most_common(1)[0][0]
    most = max(value for _, value in table.values)
    fewer = tuple(sorted(int(who) for who, value in table.values if value < most))
    others = tuple(sorted(int(who) for who, value in table.values if value == most))
    told = f"{ranks_text(fewer)}: fewer {table.metric} than the others have ({int(most)})"
    return Diagnosis(
        kind=Kind.DESYNC,
        summary=f"the ranks do not have the same number of {table.metric}: {told}",
        missing_ranks=fewer,
        waiting_ranks=others,
        ahead_ranks=others if usual != most else (),
        first_cause=told,
        confidence="medium",
        details=tuple(f"rank {who}: {value:g}" for who, value in table.values[:16]),
        next_evidence=("how the data is divided among the ranks", "the stacks of the ranks that ran out"),
        advice=("give all ranks the same number: drop or pad the rest, or join uneven inputs", "drain no host for it"),
    )


def campaign(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """One host on which tests fail that pass everywhere else."""
    if not evidence.trials:
        return None
    bad = slow.bad_hosts(evidence.trials)
    hosts = tuple(trial.host for trial in bad)
    where = _partition(evidence)
    if not hosts:
        return Diagnosis(
            kind=Kind.UNDETERMINED,
            summary="no host fails several different programs that pass on its peers",
            details=tuple(f"{each.host}: {each.failing} of {each.programs} failed" for each in evidence.trials[:8]),
            next_evidence=("the same programs on other hosts",),
            advice=where,
        )
    worst = bad[0]
    return Diagnosis(
        kind=Kind.HARDWARE,
        summary=f"{worst.failing} different programs failed on {worst.host} and none on its peers: it is the host",
        first_cause=f"{worst.host}: {worst.faults} faults in {worst.failing} of {worst.programs} programs",
        hosts=hosts,
        confidence="high",
        details=(f"the rule: {slow.PROGRAMS_LEAST} different programs that fail on one host, with none on its peers",),
        next_evidence=(f"long diagnostics and the kernel's log of {', '.join(hosts)}",),
        advice=(f"exclude {', '.join(hosts)} at the first {slow.PROGRAMS_LEAST} such faults; retry elsewhere", *where),
    )


def _partition(evidence: Evidence) -> tuple[str, ...]:
    """Where whole hosts are free."""
    if not evidence.partitions:
        return ()
    wanted = evidence.wanted_hosts or 1
    idle = [each for each in evidence.partitions if each.up and each.state == "idle" and each.count >= wanted]
    mixed = [each.name for each in evidence.partitions if each.state.startswith("mix")]
    lines = (
        [f"ask for {idle[0].name}: {idle[0].count} hosts are idle"] if idle else ["no partition has enough idle hosts"]
    )
    if mixed:
        lines.append(f"not {', '.join(mixed)}: mix means partly allocated, so no whole host is free there")
    return tuple(lines)


def pairs(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """Tests in pairs, a table a round."""
    if not evidence.rounds:
        return None
    found = slow.of_rounds(evidence.rounds)
    usual = ", ".join(f"{value:g}" for value in found.usual)
    details = (f"a pair is slow above {slow.RATIO:g} times the median of its round (medians: {usual})",)
    if found.slow:
        return Diagnosis(
            kind=Kind.STRAGGLER,
            summary=f"{', '.join(found.slow)} is in the slow pair of every round; its partners are fast with others",
            first_cause=f"{', '.join(found.slow)} is slow with every partner",
            slow_ranks=_ranks(found.slow),
            hosts=found.slow,
            cleared=found.cleared,
            confidence="high",
            details=details,
            next_evidence=(f"a test of {', '.join(found.slow)} alone: compute, then links",),
            advice=(f"take {', '.join(found.slow)} out and test it; {', '.join(found.cleared)} may stay",),
        )
    if found.open:
        return Diagnosis(
            kind=Kind.UNDETERMINED,
            summary=f"both members of a pair show the same time: {', '.join(found.open)} might be slow",
            cleared=found.cleared,
            details=details,
            next_evidence=("another round in which each of them has a partner that was fast",),
            advice=("fence none of them after one round",),
        )
    return Diagnosis(
        kind=Kind.NONE, summary="no pair is slow against the median of its round", cleared=found.cleared,
        confidence="medium", details=details,
    )  # fmt: skip


def times(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """Measures of ranks or hosts."""
    if not evidence.times:
        return None
    judged = [slow.of_times(each) for each in evidence.times]
    named = [each for each in judged if each.who]
    blind = [each for each in judged if not each.who and not each.rotating and each.kind != "local"]
    if named:
        return _straggler(evidence, _plainest(named), blind)
    rotating = [each for each in judged if each.rotating]
    if rotating:
        return _rotating(rotating[0])
    if blind:
        return _cannot_tell(blind)
    return Diagnosis(
        kind=Kind.NONE,
        summary="no rank stands out: " + "; ".join(f"{each.metric} about {each.usual:g}" for each in judged[:4]),
        confidence="medium",
        details=tuple(f"{each.metric}: spread {each.spread:.3g}" for each in judged[:8]),
    )


def _plainest(named: list[Late]) -> Late:
    """Local measures first; then the one that stands out most."""
    return max(named, key=lambda each: (each.kind == "local", abs(each.values[0] - each.usual) / (each.usual or 1.0)))


def _straggler(evidence: Evidence, late: Late, blind: list[Late]) -> Diagnosis:
    phase = slow.phase_of(late.metric)
    ranks = _ranks(late.who) if late.unit == "rank" else ()
    hosts = late.who if late.unit == "host" else ()
    who = ranks_text(ranks) if ranks else ", ".join(late.who)
    shares = f" in {late.slow_steps} of {late.steps} steps" if late.steps else ""
    word = "waits least for the others" if late.kind == "waits" else "is slow"
    return Diagnosis(
        kind=Kind.STRAGGLER,
        summary=f"{who} {word}: {phase}, {late.values[0]:g} against a median of {late.usual:g}{shares}",
        slow_ranks=ranks,
        first_cause=f"{who}: {phase} ({late.metric} {late.values[0]:g}, median {late.usual:g})",
        hosts=hosts,
        confidence="high" if late.kind == "local" else "medium",
        details=tuple(f"{each.metric}: spread {each.spread:.3g}, no rank can be named from it" for each in blind),
        next_evidence=(
            "whether it stays: the same measure over some hundred steps",
            *(MEASURE_BEFORE if blind else ()),
        ),
        advice=(f"look at {phase} of {who}; act only if it persists",),
    )


def _rotating(late: Late) -> Diagnosis:
    return Diagnosis(
        kind=Kind.ROTATING_PAUSES,
        summary=f"slow steps wander over {len(late.rotating)} of the {late.unit}s: a cause that all share, no bad host",
        first_cause=f"pauses that wander over the {late.unit}s ({late.slow_steps} of {late.steps} steps)",
        confidence="high" if late.slow_steps >= 2 * slow.STEPS_LEAST else "medium",
        details=(f"slow at some step: {', '.join(late.rotating[:16])}",),
        next_evidence=("pauses of the garbage collector (gc.callbacks)", "scheduled tasks of the hosts"),
        advice=("switch automatic garbage collection off and collect on all ranks at the same step",
                "fence no host for it"),
    )  # fmt: skip


def _cannot_tell(blind: list[Late]) -> Diagnosis:
    told = "; ".join(f"{each.metric}: spread {each.spread:.3g} around {each.usual:g}" for each in blind[:4])
    return Diagnosis(
        kind=Kind.UNDETERMINED,
        summary=f"no rank can be named: these times span a collective, which makes all ranks equal ({told})",
        confidence="low",
        details=("the largest number is not the slow rank: it is noise", "equal times do not show that all is well"),
        next_evidence=MEASURE_BEFORE,
        advice=("measure before the collective",),
    )


def _ranks(who: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(sorted(int(each) for each in who if each.isdigit()))
