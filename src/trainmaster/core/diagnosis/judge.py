"""One judgement from all evidence: what kind of stop, who, what came first.

The order of questions is the order in which a wrong answer would cost most.

1. Did it ever run? The same error at every start, a check that all failed, a port that was taken: no host is to blame.
2. Was the work done? Then what followed is the leaving (`teardown`).
3. What came first, over all ranks, by time? An exception, a fault, a process that was killed explains the time-outs
   that follow it, if it came before them; echoes explain nothing.
4. Who is missing from the first collective that not all completed, and in what state is its process?
5. Who is slow?

Every answer says what it rests on and what would tell more. A longer time-out is advised for slow phases only.
"""

from collections.abc import Callable

from trainmaster.core.diagnosis import first, launch, measured, stopped, stuck
from trainmaster.core.diagnosis.answer import Diagnosis, Kind
from trainmaster.core.diagnosis.collectives import Stop, first_unmatched
from trainmaster.core.diagnosis.evidence import Evidence

Question = Callable[[Evidence, Stop | None], Diagnosis | None]
QUESTIONS: tuple[Question, ...] = (
    launch.attempts,
    launch.check,
    stopped.work_was_done,
    launch.port,
    stopped.first_fault,
    stopped.slow_phase,
    launch.stale_peer,
    stopped.host_lost,
    stuck.unmatched,
    stopped.named_by_checks,
    stopped.transport,
    measured.counts,
    measured.campaign,
    measured.pairs,
    measured.times,
    stopped.only_echoes,
)


def judge(evidence: Evidence) -> Diagnosis:
    """The answer; `undetermined` if nothing that was given decides."""
    stop = first_unmatched(evidence)
    found = next((answer for question in QUESTIONS if (answer := question(evidence, stop)) is not None), None)
    if found is None:
        found = Diagnosis(
            kind=Kind.UNDETERMINED,
            summary="nothing that was given tells of a stop or of a slow rank",
            next_evidence=(
                "flight-recorder dumps or watchdog lines of all ranks",
                "the end of each rank's log, the silent ones first",
            ),
            advice=("change nothing on this evidence",),
        )
    return found.but(details=(*found.details, *_later(evidence, found), *evidence.notes), skipped=evidence.skipped)


def _later(evidence: Evidence, found: Diagnosis) -> tuple[str, ...]:
    """Errors that came after the first time-out, which therefore explain nothing."""
    time_out = first.first_time_out(evidence)
    late = [each for each in first.faults(evidence) if first.is_consequence(each, time_out)]
    texts = [first.told(each, evidence) for each in late[:3]]
    return tuple(f"came later, so it is no cause: {text}" for text in texts if text != found.first_cause)
