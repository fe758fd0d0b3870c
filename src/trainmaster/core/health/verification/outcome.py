"""Outcomes of verification: pass, fail, not-run, invalid.

Only *fail* counts against a host: something was measured, and it was wrong. A device that somebody else uses, memory
that is used up, a partner that never came: *not-run*, for nothing was measured. Samples that contradict themselves or
are too few: *invalid*, for what was measured says nothing. Neither of the two is a pass, so a host does not return on
them; and neither is an offence, so no part is sent back for them.

A tool that has only pass and fail must put these into one of the two. Put into fail, a busy device is returned to its
vendor; put into pass, an allocation that failed is a clean bill of health. Both have happened.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.health.words import OK, SUSPECT, TRIAGE, Answer, Remedy, Verdict


class Outcome(StrEnum):
    """In the order of what wins where several results are one."""

    PASS = "pass"
    NOT_RUN = "not-run"
    INVALID = "invalid"
    FAIL = "fail"


_RANK: Final = {outcome: rank for rank, outcome in enumerate(Outcome)}


class Result(Value):
    """What one part of a task found out about one unit."""

    task: str
    part: str
    unit: str
    """A device (`cpu 3`, `gpu 0`), a host, a path between two, or the whole that was looked at (`host`, `group`)."""
    outcome: Outcome
    sentence: str
    numbers: dict[str, int | float] = {}
    """By name, the unit of measurement last: `tested_mib`, `slowdown_ratio`."""
    evidence: tuple[str, ...] = ()


class TaskReport(Value):
    """A task as a whole."""

    task: str
    outcome: Outcome
    sentence: str
    results: tuple[Result, ...]
    duration_s: float

    @property
    def is_offence(self) -> bool:
        """Whether it counts against the host."""
        return self.outcome is Outcome.FAIL


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """The one that wins. Of nothing, nothing was run."""
    return max(outcomes, key=_RANK.__getitem__, default=Outcome.NOT_RUN)


def report(task: str, results: Sequence[Result], duration_s: float) -> TaskReport:
    """The task's outcome is its worst result; its sentence is that of the first such result."""
    assert all(result.task == task for result in results), task
    assert duration_s >= 0.0, duration_s
    outcome = worst([result.outcome for result in results])
    deciding = [result for result in results if result.outcome is outcome]
    if not deciding:
        sentence = "it has no parts here"
    elif outcome is Outcome.PASS:
        sentence = deciding[0].sentence if len(deciding) == 1 else f"all {len(deciding)} parts passed"
    else:
        more = f"; {len(deciding) - 1} more" if len(deciding) > 1 else ""
        sentence = f"{deciding[0].unit}: {deciding[0].sentence}{more}"
    return TaskReport(
        task=task, outcome=outcome, sentence=sentence, results=tuple(results), duration_s=round(duration_s, 3)
    )


def answer_of(outcome: Outcome) -> Answer:
    """What an outcome means in the words of verdicts. Not to know is `unknown`, with a look as the remedy."""
    if outcome is Outcome.PASS:
        return OK
    if outcome is Outcome.FAIL:
        return TRIAGE
    return SUSPECT.but(verdict=Verdict.UNKNOWN, remedy=Remedy.DIAGNOSE)


def sentence_for_agents(report: TaskReport) -> str:
    """What an agent answers: empty for a pass. What did not run and what says nothing are told apart from a failure by
    their first words."""
    if report.outcome is Outcome.PASS:
        return ""
    lead = {Outcome.NOT_RUN: f"{NOT_RUN_LEAD}: ", Outcome.INVALID: f"{INVALID_LEAD}: "}.get(report.outcome, "")
    return f"{lead}{report.sentence}"


def of_agents_sentence(detail: str) -> Outcome:
    """The inverse, for who reads the detail of an effect that failed: `TASK: could not be run: ...`."""
    if not detail:
        return Outcome.PASS
    words = detail.partition(": ")[2]
    if words.startswith(NOT_RUN_LEAD):
        return Outcome.NOT_RUN
    return Outcome.INVALID if words.startswith(INVALID_LEAD) else Outcome.FAIL


NOT_RUN_LEAD: Final = "could not be run"
INVALID_LEAD: Final = "could not be judged"


_NOT_RUN_WORDS: Final = (
    "out of memory",
    "memoryerror",
    "cannot allocate memory",
    "can't allocate memory",
    "not enough memory",
    "std::bad_alloc",
    "memory_allocation",
    "alloc_failed",
    "device or resource busy",
    "busy or unavailable",
    "devices are busy",
    "resource temporarily unavailable",
    "too many open files",
    "no space left on device",
    "address already in use",
    "no kernel image is available",
    "driver version is insufficient",
    "not compiled with cuda",
    "no module named",
    "operation not permitted",
    "permission denied",
    "not supported",
)
_FAIL_WORDS: Final = (
    "ecc error",
    "hardware error",
    "hardware stack error",
    "fell off the bus",
    "fallen off the bus",
    "gpu is lost",
    "unspecified launch failure",
    "illegal memory access",
    "illegal address",
    "illegal instruction",
    "misaligned address",
    "nvlink error",
    "device-side assert",
    "input/output error",
)
"""Of programs that are ours and the same everywhere: what they can't have caused, the device has."""


def of_error(text: str) -> Outcome:
    """What an error of a library or the system means for the part that raised it.

    An error that nobody knows is *invalid*: the check broke, which is no proof against the host, nor for it.
    """
    low = text.lower()
    if any(word in low for word in _FAIL_WORDS):
        return Outcome.FAIL
    if any(word in low for word in _NOT_RUN_WORDS):
        return Outcome.NOT_RUN
    return Outcome.INVALID
