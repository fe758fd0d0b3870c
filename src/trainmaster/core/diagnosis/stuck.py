"""Jobs that stand in a collective: who is missing, and what its process does. The question `unmatched` of `judge.py`.

A missing rank is told apart by its process where an agent sees it: stopped (T), gone, in the kernel (D), in code of its
own. From dumps and logs alone only this is certain: it did not enter. That is a desync of the program far more often
than anything else, and never a reason to drain a host.
"""

from collections import Counter
from collections.abc import Iterable

from trainmaster.core.diagnosis.answer import Confidence, Diagnosis, Kind, ranks_text
from trainmaster.core.diagnosis.collectives import Stop
from trainmaster.core.diagnosis.evidence import Evidence, Worker

STACK = "the Python stacks of {who} (trainmaster job stacks, or py-spy dump)"
_STOPPED = ("T", "t")


def unmatched(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """The first collective that not all completed."""
    if stop is None:
        return None
    if stop.moved:
        return Diagnosis(
            kind=Kind.NONE,
            summary="ranks differ, and the next look shows that they go on: a job in the middle of a step",
            confidence="medium",
            collective=stop.name(),
            next_evidence=("a third look, if it feels slow",),
        )
    if stop.assumed and len(stop.unseen) > len(stop.waiting):
        return _mostly_unseen(evidence, stop)
    if stop.differing:
        return _differ(evidence, stop)
    if not stop.missing:
        return _in_flight(evidence, stop)
    return _missing(evidence, stop)


def _answer(kind: Kind, stop: Stop, summary: str, cause: str, confidence: Confidence) -> Diagnosis:
    return Diagnosis(
        kind=kind,
        summary=summary,
        missing_ranks=stop.missing,
        ahead_ranks=stop.ahead,
        waiting_ranks=stop.waiting,
        differing_ranks=stop.differing,
        unseen_ranks=stop.unseen,
        collective=stop.name(),
        first_cause=cause,
        confidence=confidence,
    )


def _mostly_unseen(evidence: Evidence, stop: Stop) -> Diagnosis:
    told = f"{ranks_text(stop.waiting)} in {stop.name()}, waiting; of {len(stop.unseen)} ranks nothing was given"
    return _answer(Kind.UNDETERMINED, stop, told, "", "low").but(
        missing_ranks=(),
        details=("who waits is not to blame; who is silent may be",),
        next_evidence=(f"logs or dumps of {ranks_text(stop.unseen)}",),
        advice=("name nobody before the others were looked at",),
    )


def _differ(evidence: Evidence, stop: Stop) -> Diagnosis:
    who = ranks_text(stop.differing)
    told = f"{who}: {stop.how}, in {stop.name()}"
    return _answer(Kind.DESYNC, stop, told, told, "high").but(
        details=_sizes(evidence, stop),
        next_evidence=(f"what is computed before {stop.op} on {who}: shards, batches, branches that depend on the data",
                       STACK.format(who=who)),
        advice=("correct the program: all ranks must issue the same collectives with sizes that agree",
                "it is no fault of the hardware of these ranks; drain nothing, and a longer time-out changes nothing"),
    )  # fmt: skip


def _sizes(evidence: Evidence, stop: Stop) -> tuple[str, ...]:
    """The first size of each rank's call, folded."""
    rows: dict[int, str] = {}
    for standing in evidence.standings:
        for call in standing.calls:
            if standing.group == stop.group and call.seq == stop.seq:
                rows[standing.rank] = f"{call.op} {'x'.join(map(str, call.sizes[0])) if call.sizes else ''}".strip()
    kinds: dict[str, list[int]] = {}
    for rank, text in sorted(rows.items()):
        kinds.setdefault(text, []).append(rank)
    lines = [f"{text}: {ranks_text(ranks)}" for text, ranks in kinds.items()][:8]
    first_rows = [row.rpartition(" ")[2].partition("x")[0] for _, row in sorted(rows.items())]
    if stop.op.startswith("all_to_all") and len(rows) <= 64 and all(row.isdigit() for row in first_rows):
        total, held = sum(map(int, first_rows)), sum(row != "0" for row in first_rows)
        lines.append(f"input rows by rank: [{','.join(first_rows)}]")
        if 0 < held < len(rows):
            chunk = -(-total // len(rows))
            lines.append(f"{total} rows in chunks of {chunk} fill {held} of {len(rows)} ranks; the others are empty")
    return tuple(lines)


def _in_flight(evidence: Evidence, stop: Stop) -> Diagnosis:
    states = _states(evidence, stop.waiting)
    frozen = _frozen(evidence, (*stop.waiting, *stop.ahead))
    if frozen:
        return _stopped(evidence, stop, frozen)
    told = f"all ranks joined {stop.name()}, and it does not end"
    if stop.ahead:
        told = (
            f"{ranks_text(stop.waiting)} can't complete {stop.name()}, which others completed: {ranks_text(stop.ahead)}"
        )
    sure: Confidence = "medium" if stop.timed_out or stop.exact else "low"
    return _answer(Kind.IN_FLIGHT_STALL, stop, told, told, sure).but(
        details=states,
        next_evidence=("state and counters of links and NICs of these hosts", "kernel logs (Xid, NVLink, link down)",
                       "a second look: does anything move?"),
        advice=("look at the transport: links, NICs, GPUs; the program is in step",
                "name no host before one of them shows a fault"),
    )  # fmt: skip


def _missing(evidence: Evidence, stop: Stop) -> Diagnosis:
    who = ranks_text(stop.missing)
    frozen = _frozen(evidence, stop.missing)
    if frozen:
        return _stopped(evidence, stop, frozen)
    gone = [each for each in evidence.workers if each.rank in stop.missing and each.state in ("", "Z", "X")]
    if gone:
        told = f"{ranks_text(tuple(each.rank for each in gone))} ended; the others wait in {stop.name()}"
        return _answer(Kind.KILLED, stop, told, told, "high").but(
            next_evidence=("how it ended: exit record, kernel's log",),
            advice=("start the rank anew; the others follow",),
        )
    living = [each for each in evidence.workers if each.rank in stop.missing]
    if living and len(living) == len(stop.missing):
        return _in_user_code(evidence, stop, living)
    return _never_entered(evidence, stop, who)


def _frozen(evidence: Evidence, ranks: tuple[int, ...]) -> list[Worker]:
    wanted = set(ranks)
    return [each for each in evidence.workers if each.rank in wanted and each.state in _STOPPED]


def _states(evidence: Evidence, ranks: tuple[int, ...]) -> tuple[str, ...]:
    wanted = set(ranks)
    counts = Counter(f"state {each.state}" for each in evidence.workers if each.rank in wanted and each.state)
    return tuple(f"{count} processes in {text}" for text, count in sorted(counts.items()))


def _stopped(evidence: Evidence, stop: Stop, frozen: list[Worker]) -> Diagnosis:
    ranks = tuple(sorted(each.rank for each in frozen))
    hosts = ", ".join(sorted({each.host for each in frozen if each.host}))
    where = f" on {hosts}" if hosts else ""
    told = f"{ranks_text(ranks)}{where} stopped (state {frozen[0].state}), by SIGSTOP or a debugger"
    return _answer(Kind.PROCESS_STOPPED, stop, told, told, surely_stopped(frozen)).but(
        missing_ranks=tuple(sorted({*stop.missing, *ranks})),
        waiting_ranks=tuple(rank for rank in stop.waiting if rank not in ranks),
        details=(f"the others wait in {stop.name()}",),
        next_evidence=("who sent the signal: a person, a debugger, a container that was paused",),
        advice=("send SIGCONT, or end the process and let the job re-form", "no host is to blame"),
    )


def surely_stopped(frozen: Iterable[Worker]) -> Confidence:
    """A tool that takes a stack holds a process (t) for a moment, and lets it go by itself."""
    return "high" if all(each.state == "T" for each in frozen) else "medium"


def _in_user_code(evidence: Evidence, stop: Stop, living: list[Worker]) -> Diagnosis:
    who = ranks_text(stop.missing)
    hosts = ", ".join(sorted({each.host for each in living if each.host}))
    in_kernel = [each for each in living if each.state == "D"]
    doing = (
        "hangs in the kernel" + (f" ({in_kernel[0].wchan})" if in_kernel and in_kernel[0].wchan else "")
        if in_kernel
        else ("runs code of its own" if any(each.state == "R" for each in living) else "sleeps in code of its own")
    )
    told = f"{who}{f' on {hosts}' if hosts else ''} {doing}, before {stop.name()} that the others wait in"
    return _answer(Kind.USER_CODE_STALL, stop, told, told, "high").but(
        details=_since(living),
        next_evidence=(STACK.format(who=who),),
        advice=("look at the stack of that rank: the others only wait", "a longer time-out changes nothing"),
    )


def _since(living: list[Worker]) -> tuple[str, ...]:
    return tuple(
        f"rank {each.rank}: no collective for {each.idle_s:.1f} s, after step {each.step}"
        for each in living[:8] if each.idle_s is not None
    )  # fmt: skip


def _never_entered(evidence: Evidence, stop: Stop, who: str) -> Diagnosis:
    ras = stop.source == "ras"
    many = len(stop.missing) > len(stop.waiting)
    did = f"{who} did not enter {stop.name()}"
    why = ""
    if stop.finished and set(stop.finished) == set(stop.missing):
        why = ", with all that was entered completed: in code of its own before it, or with fewer of them to run"
    sure: Confidence = (
        "high" if stop.timed_out and stop.exact else "medium" if stop.exact or stop.snapshots > 1 else "low"
    )
    details = [f"waiting in it, and not to blame: {ranks_text(stop.waiting)}"]
    if stop.assumed:
        sure = "low" if many else "medium"
        details.append(
            f"no dump and no line of {ranks_text(stop.unseen)}: dead, or too stuck to write, or its file was not given"
        )
    elif stop.unseen:
        sure = "medium"
        details.append(f"of {ranks_text(stop.unseen)} nothing was given: more may be missing")
    details.append("it stalled before it enqueued the collective, which is not the same as being stuck inside of it")
    if ras:
        details.append("one snapshot may also be a healthy job in the middle of a step" if stop.snapshots < 2 else
                       f"{stop.snapshots} snapshots show the same counts")  # fmt: skip
    advice = [
        "look at the program first: a branch, a sample or a batch that only some ranks have; let all ranks run the "
        "same number of steps (keep the sample, zero its mask)",
        "who waits is not to blame; drain no host on this evidence, and a longer time-out changes nothing",
    ]
    next_ = [STACK.format(who=who), f"the log of the data path of {who}"]
    if ras and stop.snapshots < 2:
        next_.insert(0, "a second poll of RAS: only the same counts again show a hang")
    if stop.unseen:
        next_.append(f"dumps or logs of {ranks_text(stop.unseen)}")
    if len(stop.missing) > 64:
        next_ = [text.replace(who, "the late ranks") for text in next_]
    return _answer(Kind.DESYNC, stop, did + why, did + why, sure).but(
        details=tuple(details), next_evidence=tuple(next_), advice=tuple(advice)
    )
