"""The vocabulary of health: five verdicts, nine remedies, and how the words of other tools map onto them.

A *verdict* says what is known about a unit, a *remedy* what has to be done about it. They are separate because a job's
own fault is `ok` for the host and still asks for something (restart-app), and because a suspect is watched and
diagnosed before anybody calls it bad. An *answer* is both, written `bad, reset-gpu`.

The worst wins, and `unknown` is worse than `watch`: what cannot be seen may be anything. `skipped` is what nobody asked
about (a host in planned maintenance).
"""

from enum import StrEnum
from typing import Final

from trainmaster.core.base.value import Value


class Verdict(StrEnum):
    """In the order of how bad they are."""

    SKIPPED = "skipped"
    OK = "ok"
    WATCH = "watch"
    UNKNOWN = "unknown"
    BAD = "bad"


class Remedy(StrEnum):
    """In the order of how much they take."""

    NONE = "none"
    RESTART_APP = "restart-app"
    CONFIG = "config"
    RESET_GPU_LATER = "reset-gpu-later"
    DIAGNOSE = "diagnose"
    RESET_GPU = "reset-gpu"
    REBOOT = "reboot"
    TRIAGE = "triage"
    RMA = "rma"


_VERDICT_RANK: Final = {verdict: rank for rank, verdict in enumerate(Verdict)}
_REMEDY_RANK: Final = {remedy: rank for rank, remedy in enumerate(Remedy)}

EXIT_CODES: Final = {Verdict.OK: 0, Verdict.SKIPPED: 0, Verdict.WATCH: 1, Verdict.BAD: 2, Verdict.UNKNOWN: 3}
"""As Nagios and Slurm's health checks have it."""


class Answer(Value):
    """A verdict and its remedy."""

    verdict: Verdict
    remedy: Remedy

    @property
    def rank(self) -> tuple[int, int]:
        """Grows with how bad it is, then with how much it takes."""
        return _VERDICT_RANK[self.verdict], _REMEDY_RANK[self.remedy]

    def __str__(self) -> str:
        return f"{self.verdict}, {self.remedy}"


OK: Final = Answer(verdict=Verdict.OK, remedy=Remedy.NONE)
APP: Final = Answer(verdict=Verdict.OK, remedy=Remedy.RESTART_APP)
SKIPPED: Final = Answer(verdict=Verdict.SKIPPED, remedy=Remedy.NONE)
WATCH: Final = Answer(verdict=Verdict.WATCH, remedy=Remedy.NONE)
UNKNOWN: Final = Answer(verdict=Verdict.UNKNOWN, remedy=Remedy.NONE)
SUSPECT: Final = Answer(verdict=Verdict.WATCH, remedy=Remedy.DIAGNOSE)
CONFIG: Final = Answer(verdict=Verdict.WATCH, remedy=Remedy.CONFIG)
RESET_LATER: Final = Answer(verdict=Verdict.WATCH, remedy=Remedy.RESET_GPU_LATER)
RESET: Final = Answer(verdict=Verdict.BAD, remedy=Remedy.RESET_GPU)
REBOOT: Final = Answer(verdict=Verdict.BAD, remedy=Remedy.REBOOT)
TRIAGE: Final = Answer(verdict=Verdict.BAD, remedy=Remedy.TRIAGE)
RMA: Final = Answer(verdict=Verdict.BAD, remedy=Remedy.RMA)


def parse_answer(text: str) -> Answer | None:
    """The inverse of `str(answer)`; None if it is none."""
    verdict, comma, remedy = (part.strip() for part in text.partition(","))
    if not comma or verdict not in set(Verdict) or remedy not in set(Remedy):
        return None
    return Answer(verdict=Verdict(verdict), remedy=Remedy(remedy))


def contradicts_itself(answer: Answer) -> bool:
    """Whether the remedy takes more than its verdict allows: nothing that is ok is reset."""
    allowed = {
        Verdict.SKIPPED: (Remedy.NONE,),
        Verdict.OK: (Remedy.NONE, Remedy.RESTART_APP),
        Verdict.WATCH: (Remedy.NONE, Remedy.RESTART_APP, Remedy.CONFIG, Remedy.RESET_GPU_LATER, Remedy.DIAGNOSE),
        Verdict.UNKNOWN: (Remedy.NONE, Remedy.DIAGNOSE),
    }
    return answer.remedy not in allowed.get(answer.verdict, tuple(Remedy)) or answer == Answer(
        verdict=Verdict.BAD, remedy=Remedy.NONE
    )


_FOREIGN: Final[dict[str, Answer | None]] = {
    "IGNORE_APP": APP, "APP": APP, "NONE": OK, "HEALTHY": OK, "OK": OK, "PASS": OK,
    "WATCH": WATCH, "WARN": WATCH, "WARNING": WATCH,
    "CRITICAL": TRIAGE, "FAIL": TRIAGE, "FAILURE": TRIAGE,
    "CONFIG": CONFIG, "CONFIG_FIX": CONFIG, "DIAG": SUSPECT,
    "RESET_LATER": RESET_LATER, "RESET_GPU": RESET, "DRAIN_RESET_GPU": RESET,
    "REBOOT": REBOOT, "DRAIN_REBOOT": REBOOT, "DRAIN_FABRIC": REBOOT,
    "TRIAGE": TRIAGE, "DRAIN_TRIAGE": TRIAGE, "HOLD": TRIAGE, "RMA": RMA, "UNKNOWN": UNKNOWN,
    "FOLLOW": None, "DECODE": None,
}  # fmt: skip


def of_another_tool(word: str) -> Answer | None:
    """What a word of another catalogue means here. None: another record decides. Raises `KeyError` for other words."""
    return _FOREIGN[word.strip().upper().replace(" ", "_").replace("-", "_")]
