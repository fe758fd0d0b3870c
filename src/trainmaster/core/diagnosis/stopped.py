"""Jobs that stopped: by a fault, in a slow phase, with a host, while leaving. Questions of `judge.py`.

Each function looks at all evidence and answers, or returns None: this is not what happened. Sentences name ranks as
`rank 3` or `ranks 0-2`, folded, since a job may have thousands.
"""

import re
from typing import Final

from trainmaster.core.diagnosis import first, slow
from trainmaster.core.diagnosis.answer import Confidence, Diagnosis, Kind, ranks_text
from trainmaster.core.diagnosis.collectives import Stop
from trainmaster.core.diagnosis.evidence import Evidence, Remark, Times, What, Worker
from trainmaster.core.diagnosis.remarks import is_slow_phase, phase_of
from trainmaster.core.diagnosis.stuck import STACK
from trainmaster.core.diagnosis.tables import median

RECORDERS: Final = "the recorders of all ranks: {who} noticed, and that is no proof against it"
_FOLLOWS: Final = (What.TEARDOWN, What.ECHO, What.KILLED, What.STORE_LOST, What.WATCHDOG_STUCK)


def work_was_done(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """The end of the work was told before the first trouble."""
    done = first.in_order(each for each in evidence.remarks if each.what is What.FINISHED)
    after = first.in_order(each for each in evidence.remarks if each.what in _FOLLOWS)
    own = [each for each in evidence.remarks if each.what in (What.EXCEPTION, What.HARDWARE, What.OUT_OF_MEMORY)]
    late = [each for each in after if each.what is What.TEARDOWN]
    if own or not (after or stop):
        return None
    if not done and (not late or stop is not None or any(each.what is not What.TEARDOWN for each in after)):
        return None
    if done and after and _before(after[0], done[0]):
        return None
    ranks = first.ranks_of(done)
    left: tuple[int, ...] = ()
    if stop is not None:
        left = tuple(rank for rank in ranks if rank not in stop.waiting) if stop.assumed else stop.missing
    said = f": {ranks_text(ranks)} said that it was done" if ranks else ""
    return Diagnosis(
        kind=Kind.TEARDOWN,
        summary=f"the work was done; what failed is the leaving{said}",
        missing_ranks=left,
        waiting_ranks=stop.waiting if stop else (),
        collective=stop.name() if stop else "",
        first_cause=first.told((after or done)[0], evidence) if after else "ranks that left while others still waited",
        confidence="high" if done else "medium",
        details=tuple(first.told(each, evidence) for each in (*done[:2], *after[:2])),
        next_evidence=("whether the last checkpoint is complete", "exit codes of all ranks"),
        advice=(
            "count the job as finished if its last checkpoint is complete; do not run it again, and blame no host",
            "let all ranks meet (a barrier), free model and optimizer, then destroy the group; rank 0 leaves last",
        ),
    )


def _before(left: Remark, right: Remark) -> bool:
    return left.at_us is not None and right.at_us is not None and left.at_us < right.at_us


def first_fault(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """An exception, a fault or a killed process that came before everything else."""
    time_out = first.first_time_out(evidence)
    found = [each for each in first.faults(evidence) if not first.is_consequence(each, time_out)]
    found = [each for each in found if each.what is not What.PORT_TAKEN]
    if not found:
        return None
    chosen = next((each for each in found if each.what is What.HARDWARE and _together(each, found[0])), found[0])
    host = chosen.host or evidence.host_of(chosen.rank)
    same = [each for each in found if each.what is chosen.what]
    answer = Diagnosis(
        kind=Kind.USER_EXCEPTION,
        summary=f"{_who(chosen, host)} failed first: {chosen.text}",
        missing_ranks=stop.missing if stop and not stop.assumed else first.ranks_of([chosen]) if stop else (),
        waiting_ranks=stop.waiting if stop else (),
        ahead_ranks=stop.ahead if stop else (),
        collective=stop.name() if stop else "",
        first_cause=first.told(chosen, evidence),
        confidence=_sure(chosen, time_out, stop),
        details=(*_echoes(evidence), *_others(same, evidence)),
        advice=("correct what the first exception says; the time-outs of the others follow from it",
                "no host is to blame, and a longer time-out changes nothing"),
        next_evidence=("the whole traceback of the first exception",),
    )  # fmt: skip
    if chosen.what is What.HARDWARE:
        return answer.but(
            kind=Kind.HARDWARE,
            hosts=(host,) if host else (),
            summary=f"a fault of {host or 'a host that the log does not name'}: {chosen.text}",
            next_evidence=(f"the kernel's log and GPU state of {host or 'that host'} (trainmaster health read)",),
            advice=(f"take {host or 'that host'} out and check it; the other ranks' errors follow from it",),
        )
    if chosen.what is What.KILLED:
        return answer.but(
            kind=Kind.KILLED,
            summary=f"{_who(chosen, host)} was ended from outside: {chosen.text}",
            next_evidence=("the kernel's log of that host (out of memory?)", "who sends signals: scheduler, person"),
            advice=("find out who killed it: mostly the memory of the host ran out",),
        )
    if chosen.what is What.OUT_OF_MEMORY:
        return answer.but(advice=("lower the memory of that rank (batch, activations); a host is not to blame",))
    return answer


def _together(fault: Remark, earliest: Remark) -> bool:
    """A fault of the hardware within a minute of the first error, in whatever order the logs came."""
    if fault.at_us is None or earliest.at_us is None:
        return True
    return abs(fault.at_us - earliest.at_us) <= 60_000_000


def _who(remark: Remark, host: str) -> str:
    who = f"rank {remark.rank}" if remark.rank is not None else "a rank"
    return f"{who} on {host}" if host else who


def _sure(remark: Remark, time_out: int | None, stop: Stop | None) -> Confidence:
    if remark.rank is None:
        return "medium"
    if stop is not None and stop.missing and not stop.assumed:
        return "high" if remark.rank in stop.missing else "medium"
    return "high" if remark.at_us is not None or time_out is None else "medium"


def _echoes(evidence: Evidence) -> tuple[str, ...]:
    ranks = first.ranks_of([each for each in evidence.remarks if each.what in (What.ECHO, What.TRANSPORT)])
    loud = tuple(sorted({*ranks, *(each.rank for each in evidence.standings if each.timed_out)}))
    return (f"echoes, not causes: {ranks_text(loud)}",) if loud else ()


def _others(same: list[Remark], evidence: Evidence) -> tuple[str, ...]:
    ranks = first.ranks_of(same)
    return (f"the same on {ranks_text(ranks)}",) if len(ranks) > 1 else ()


def slow_phase(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """Most wait while somebody still saves, evaluates or compiles."""
    frame = is_slow_phase(stop.frames) if stop is not None else ""
    timeout_s = (stop.timeout_s if stop else None) or evidence.timeout_s
    tables = [each for each in evidence.times if slow.phase_of(each.metric) in ("save", "evaluation", "compilation")]
    busy = [each for each in evidence.workers if each.phase in ("save", "evaluation", "compile", "start", "other")]
    if stop is not None and stop.missing and busy and not any(each.state in ("T", "t") for each in evidence.workers):
        return _busy(stop, busy)
    if not frame and not (tables and timeout_s and stop is not None):
        return None
    phase = phase_of(frame) if frame else slow.phase_of(tables[0].metric)
    spread = _spread(tables[0], timeout_s) if tables else None
    if spread is None:
        return _phase_by_stack(stop, frame, phase) if stop is not None and frame else None
    last, others, detail = spread
    return Diagnosis(
        kind=Kind.SLOW_PHASE,
        summary=f"not a hang: {ranks_text(last)} still in the {phase}; the others wait in a collective behind it",
        missing_ranks=last,
        waiting_ranks=others,
        slow_ranks=last,
        collective=stop.name() if stop else "",
        first_cause=f"{ranks_text(last)} takes longer for the {phase} than the collective's time-out allows: {detail}",
        confidence="high" if frame else "medium",
        details=((f"the waiting ranks stand in: {frame}",) if frame else ()) + (detail,),
        next_evidence=(f"what {ranks_text(last)} writes, and how fast, during the {phase}",),
        advice=(
            f"take the {phase} out of the step's watchdog, or raise its time-out above the slowest rank",
            f"share the work of {ranks_text(last)} among more ranks",
            "drain no host for it",
        ),
    )


def _busy(stop: Stop, busy: list[Worker]) -> Diagnosis | None:
    ranks = tuple(sorted(each.rank for each in busy if each.rank in stop.missing))
    if not ranks or set(ranks) != set(stop.missing):
        return None
    phase = next(each.phase for each in busy if each.rank == ranks[0])
    return Diagnosis(
        kind=Kind.SLOW_PHASE,
        summary=f"not a hang: {ranks_text(ranks)} in a phase that takes long by nature ({phase})",
        missing_ranks=ranks,
        waiting_ranks=stop.waiting,
        slow_ranks=ranks,
        collective=stop.name(),
        first_cause=f"{ranks_text(ranks)}: {phase}",
        confidence="medium",
        next_evidence=(f"how long the {phase} took before",),
        advice=("wait; the bound of a step does not hold here",),
    )


def _spread(table: Times, timeout_s: float | None) -> tuple[tuple[int, ...], tuple[int, ...], str] | None:
    """(the last ranks, those that waited longer than the time-out, in words)."""
    scale = 0.001 if re.search(r"(?:_|\b)ms$", table.metric) else 60.0 if re.search(r"min", table.metric) else 1.0
    rows = [(int(who), value * scale) for who, value in table.values if who.isdigit()]
    if len(rows) < 2:
        return None
    longest, shortest = max(value for _, value in rows), min(value for _, value in rows)
    limit = timeout_s if timeout_s is not None else 0.5 * shortest
    if longest - shortest <= limit:
        return None
    last = tuple(sorted(rank for rank, value in rows if value > longest - limit / 2))
    others = tuple(sorted(rank for rank, value in rows if rank not in last))
    usual = median([value for rank, value in rows if rank not in last] or [shortest])
    told = f"{ranks_text(last)} {longest:g} s, others {usual:g} s; the spread of {longest - shortest:g} s"
    return last, others, f"{told} is above the time-out of {limit:g} s" if timeout_s else f"{told} is large"


def _phase_by_stack(stop: Stop, frame: str, phase: str) -> Diagnosis:
    missing = stop.missing if not stop.assumed or len(stop.unseen) * 2 <= len(stop.unseen) + len(stop.waiting) else ()
    return Diagnosis(
        kind=Kind.SLOW_PHASE,
        summary=f"the waiting ranks stand in a {phase}; somebody has not ended it yet",
        missing_ranks=missing,
        waiting_ranks=stop.waiting,
        unseen_ranks=stop.unseen,
        collective=stop.name(),
        first_cause=f"a {phase} that outlasts the collective's time-out",
        confidence="medium",
        details=(f"stack: {frame}",),
        next_evidence=(f"how long each rank took in the {phase}", "the stack of the ranks that do not wait"),
        advice=(f"give the {phase} a time-out of its own, or share its work among more ranks", "drain no host for it"),
    )


def host_lost(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """The host of the rendezvous store went away, and the others with it."""
    lost = [each for each in evidence.remarks if each.what is What.STORE_LOST]
    if not lost:
        return None
    victims = tuple(sorted({each.host for each in lost if each.host and each.host != evidence.endpoint}))
    own = [each for each in lost if each.host == evidence.endpoint and evidence.endpoint]
    first_told = first.told(first.in_order(lost)[0], evidence)
    span = evidence.nodes_min_max
    shrinks = span is not None and span[0] < span[1]
    if not evidence.endpoint or (own and not victims):
        return Diagnosis(
            kind=Kind.HOST_LOST,
            summary="the rendezvous store can't be reached",
            first_cause=first_told,
            confidence="low",
            details=(f"it is missed by {', '.join(victims) or 'ranks'}",),
            next_evidence=(
                "the command of the launcher (--rdzv-endpoint): which host has the store",
                "is that host up?",
            ),
            advice=("who misses the store is a victim: drain none of them",),
        )
    store = evidence.endpoint
    details = [f"the store of the rendezvous lives on {store} (rdzv endpoint)"]
    details += [f"{', '.join(victims)} only misses it: a victim, usable, no drain"] if victims else []
    if shrinks:
        details.append(f"losing another host would have been survivable ({span[0]}:{span[1]} hosts)" if span else "")
    return Diagnosis(
        kind=Kind.HOST_LOST,
        summary=f"{store}, which has the rendezvous store, is gone; the others went down with the store",
        first_cause=f"the store's host {store} is gone; {first_told}",
        hosts=(store,),
        cleared=victims,
        confidence="high" if victims else "medium",
        details=tuple(details),
        next_evidence=(f"whether {store} answers, and why it went",),
        advice=(
            "start the whole job anew with an endpoint on another host; it does not heal by itself",
            "keep the store off the hosts that train, or give each attempt a store of its own",
            *((f"{', '.join(victims)} may be used at once",) if victims else ()),
        ),
    )


def named_by_checks(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """Checks of the collectives themselves: monitored barriers, fingerprints, stall reports."""
    mismatch = first.in_order(each for each in evidence.remarks if each.what is What.MISMATCH)
    absent = first.in_order(each for each in evidence.remarks if each.what is What.NOT_JOINED)
    if mismatch:
        named = {rank for each in mismatch for rank in each.ranks}
        ranks = tuple(sorted(named))
        seen = tuple(sorted({each.rank for each in mismatch if each.rank is not None}))
        more = STACK.format(who=ranks_text(ranks)) if ranks else RECORDERS.format(who=ranks_text(seen))
        return Diagnosis(
            kind=Kind.DESYNC, summary=f"ranks run different collectives: {mismatch[0].text}",
            differing_ranks=ranks, first_cause=first.told(mismatch[0], evidence),
            confidence="high" if ranks else "medium", next_evidence=(more,),
            advice=("correct the program: all ranks must issue the same collectives", "drain no host for it"),
        )  # fmt: skip
    if not absent:
        return None
    ranks = absent[0].ranks
    missing = ranks
    if absent[0].text.startswith("ready: "):
        world = evidence.world or max(ranks, default=0) + 1
        missing = tuple(sorted(set(range(world)) - set(ranks)))
    dead = "no data" in absent[0].text
    return Diagnosis(
        kind=Kind.HOST_LOST if dead else Kind.DESYNC,
        summary=f"{ranks_text(missing)} did not join" + (" and does not answer" if dead else ""),
        missing_ranks=missing,
        waiting_ranks=tuple(sorted(ranks)) if missing is not ranks else (),
        first_cause=first.told(absent[0], evidence).replace("ready: ", "", 1),
        confidence="medium",
        next_evidence=(STACK.format(who=ranks_text(missing)),),
        advice=("look at that rank; the others only wait",),
    )


def transport(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """Only NCCL's transport complains."""
    found = first.in_order(each for each in evidence.remarks if each.what is What.TRANSPORT)
    if not found:
        return None
    named: dict[str, set[str]] = {}
    for each in found:
        if each.peer:
            named.setdefault(each.peer, set()).add(each.host or str(each.rank))
    reporters = {each.host or str(each.rank) for each in found}
    most = max(named, key=lambda peer: len(named[peer]), default="")
    alone = most if most and len(named[most]) >= 2 and most not in reporters else ""
    by_whom = f": {alone} is named by {len(named[alone])} reporters" if alone else ""
    return Diagnosis(
        kind=Kind.NETWORK,
        summary=f"the transport gave up on a peer{by_whom}",
        first_cause=first.told(found[0], evidence),
        confidence="medium" if alone else "low",
        details=(f"reported by {len(reporters)} places, which are victims",),
        next_evidence=(f"links and ports of {alone or 'the peers that are named'}: flaps, error counters",
                       "port events in the logs before the first completion error"),
        advice=("look for a port that went down before the first error; error 12 is the time-out that follows",),
    )  # fmt: skip


def only_echoes(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """Everybody lost somebody, and nobody says why."""
    found = first.in_order(each for each in evidence.remarks if each.what in _FOLLOWS)
    if not found:
        return None
    loud = first.ranks_of(found)
    silent = tuple(sorted(set(range(evidence.world)) - set(loud))) if evidence.world else ()
    few = 0 < len(silent) <= len(loud)
    silence = f"; silent: {ranks_text(silent)}" if few else ""
    whose = ranks_text(silent) if few else "the rank that is silent, and exit codes"
    return Diagnosis(
        kind=Kind.UNDETERMINED,
        summary=f"{ranks_text(loud)} lost a peer, and no line says why{silence}",
        unseen_ranks=silent,
        first_cause="",
        confidence="low",
        details=tuple(first.told(each, evidence) for each in found[:4]),
        next_evidence=(f"the log of {whose}",
                       "kernel logs of the hosts"),
        advice=("who complains of a lost peer is a victim: drain none of them",),
    )  # fmt: skip
