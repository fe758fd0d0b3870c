"""Drafts: findings while they are still being related to each other."""

from collections.abc import Iterable
from typing import Final

from trainmaster.core.health.finding import Confidence, Finding
from trainmaster.core.health.fold import Fold, Line
from trainmaster.core.health.policy import Limits
from trainmaster.core.health.words import WATCH, Answer, Remedy, Verdict

_SCOPES: Final = {
    Remedy.RESET_GPU: "gpu", Remedy.RESET_GPU_LATER: "gpu", Remedy.REBOOT: "host", Remedy.TRIAGE: "host",
    Remedy.RMA: "host", Remedy.DIAGNOSE: "host",
}  # fmt: skip


class Draft:
    """A finding to be. `fold` is None where several lines that no rule counts were put together."""

    def __init__(self, rule: str, unit: str, answer: Answer, summary: str, fold: Fold | None = None) -> None:
        self.rule, self.unit, self.answer, self.summary = rule, unit, answer, summary
        self.fold = fold
        if unit == "host" and fold is not None and fold.host:
            self.unit = f"host {fold.host}"
        self.more: list[Line] = []
        """Lines of other folds that belong to the proof."""
        self.host = fold.host if fold else ""
        self.part = self.unit
        """The unit at which it was seen, when the verdict is about another (a job)."""
        self.next: tuple[str, ...] = ()
        self.confidence: Confidence = "high"
        self.offence = True
        self.scope = ""
        self.echo_of = ""
        self.cause_of: list[str] = []
        self.links: list[str] = []
        """NVLinks that the lines name."""
        self.blames_peer = False

    def echoes(self, cause: "Draft") -> None:
        """Makes this an echo. An echo of itself (the same unit) only loses its own demand."""
        if self.echo_of or cause is self:
            return
        self.echo_of = cause.echo_of or cause.unit
        if self.part != cause.unit and self.part not in cause.cause_of:
            cause.cause_of.append(self.part)
        if self.answer.verdict in (Verdict.BAD, Verdict.UNKNOWN, Verdict.WATCH):
            self.answer = WATCH

    def proof(self) -> list[Line]:
        lines = [*(self.fold.proof() if self.fold else ()), *self.more]
        return sorted({line.number: line for line in lines}.values(), key=lambda line: line.number)

    def finding(self, file: str, section: str) -> Finding:
        lines = self.proof()
        stamps = [line.stamp.at_us for line in lines if line.stamp.at_us is not None]
        needs = self.answer.verdict is Verdict.BAD
        return Finding(
            unit=self.unit,
            verdict=self.answer.verdict,
            remedy=self.answer.remedy,
            rule=self.rule,
            summary=self.summary,
            evidence=tuple(line.text.strip("\r") for line in lines),
            lines=tuple(line.number for line in lines),
            count=self.fold.count if self.fold else max(1, len(lines)),
            cause_of=tuple(self.cause_of),
            echo_of=self.echo_of,
            confidence=self.confidence,
            next_evidence=self.next,
            offence=self.offence and needs and not self.echo_of,
            scope=(self.scope or _SCOPES.get(self.answer.remedy, "")) if needs else "",
            at=self.part if self.part != self.unit else "",
            host=self.host,
            boot=self.fold.boot.id if self.fold else "",
            section=section,
            file=file,
            first_us=min(stamps, default=None),
            last_us=max(stamps, default=None),
        )


def before(cause: Fold, echo: Fold, limits: Limits, within_us: int) -> bool:
    """Whether one came at most so long before the other began, or lies near it where there are no times."""
    if cause.boot != echo.boot:
        return False
    start, other = echo.first.stamp, cause.first.stamp
    if start.at_us is not None and other.at_us is not None and start.clock == other.clock:
        last = cause.last.stamp.at_us if cause.last.stamp.clock == start.clock else other.at_us
        return other.at_us <= start.at_us + 1_000_000 and start.at_us - max(last or 0, other.at_us) <= within_us
    near = limits.near_lines
    return cause.first.number - near <= echo.first.number <= cause.last.number + near


def ends(clear: Fold, fold: Fold) -> bool:
    """Whether the last sign of the one lies behind the last of the other: the last word counts."""
    if clear.boot != fold.boot:
        return clear.boot > fold.boot
    at, last = clear.last.stamp, fold.last.stamp
    if at.at_us is not None and last.at_us is not None and at.clock == last.clock and at.at_us != last.at_us:
        return at.at_us > last.at_us
    return clear.last.number > fold.last.number


def by_unit(folds: Iterable[Fold]) -> dict[tuple[str, str], list[Fold]]:
    """Folds by unit and host."""
    found: dict[tuple[str, str], list[Fold]] = {}
    for fold in folds:
        found.setdefault((fold.unit, fold.host), []).append(fold)
    return found
