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


_DATED_US: Final = 20 * 365 * 86_400 * 1_000_000
"""Lines without a year get one long before this."""


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
        self.links: list[str] = []
        """NVLinks that the lines name."""
        self.blames_peer = False

    def echoes(self, cause: "Draft") -> None:
        """Makes this an echo. An echo of itself (the same unit) only loses its own demand."""
        if self.echo_of or cause is self:
            return
        self.echo_of = cause.echo_of or cause.unit
        if self.answer.verdict in (Verdict.BAD, Verdict.UNKNOWN, Verdict.WATCH):
            self.answer = WATCH

    def proof(self) -> list[Line]:
        lines = [*(self.fold.proof() if self.fold else ()), *self.more]
        own = self.fold.file if self.fold else ""
        places = {(line.file != own, line.file, line.number): line for line in lines}
        return [line for _, line in sorted(places.items(), key=lambda each: each[0])]

    def finding(self, file: str, section: str) -> Finding:
        lines = self.proof()
        file = self.fold.file if self.fold and self.fold.file else file
        stamps = [line.stamp.at_us for line in lines if line.stamp.at_us is not None]
        needs = self.answer.verdict is Verdict.BAD
        return Finding(
            unit=self.unit,
            verdict=self.answer.verdict,
            remedy=self.answer.remedy,
            rule=self.rule,
            summary=self.summary,
            evidence=tuple(_shown(line, file) for line in lines),
            lines=tuple(line.number for line in lines),
            count=self.fold.count if self.fold else max(1, len(lines)),
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


def _shown(line: Line, file: str) -> str:
    """The line; one of another file names it."""
    return line.text if line.file in ("", file) else f"{line.file}: {line.text}"


def before(cause: Fold, echo: Fold, limits: Limits, within_us: int) -> bool:
    """Whether one came at most so long before the other began, or lies near it where there are no times."""
    if not _one_boot(cause, echo):
        return False
    start, other = echo.first.stamp, cause.first.stamp
    if start.at_us is not None and other.at_us is not None and start.clock == other.clock:
        last = cause.last.stamp.at_us if cause.last.stamp.clock == start.clock else other.at_us
        return other.at_us <= start.at_us + 1_000_000 and start.at_us - max(last or 0, other.at_us) <= within_us
    if cause.file != echo.file:
        return False
    near = limits.near_lines
    return cause.first.number - near <= echo.first.number <= cause.last.number + near


def ends(clear: Fold, fold: Fold) -> bool:
    """Whether the last sign of the one lies behind the last of the other: the last word counts."""
    if clear.file == fold.file and clear.boot != fold.boot:
        return clear.boot > fold.boot
    if not _one_boot(clear, fold):
        return False
    at, last = clear.last.stamp, fold.last.stamp
    if at.at_us is not None and last.at_us is not None and at.clock == last.clock and at.at_us != last.at_us:
        return at.at_us > last.at_us
    return clear.file == fold.file and clear.last.number > fold.last.number


def comparable(one: Fold, other: Fold) -> bool:
    """Whether the times of two folds are on one clock: in the same file, or with the same boot or both with dates."""
    if one.file == other.file:
        return True
    clocks = {one.first.stamp.clock, other.first.stamp.clock}
    dated = [(fold.first.stamp.at_us or 0) >= _DATED_US for fold in (one, other)]
    return clocks == {"boot"} or (clocks == {"wall"} and dated[0] == dated[1])


def _one_boot(one: Fold, other: Fold) -> bool:
    if one.file == other.file:
        return one.boot == other.boot
    same = not one.boot.id or not other.boot.id or one.boot.id == other.boot.id
    return same and one.past == other.past and comparable(one, other)


def by_unit(folds: Iterable[Fold]) -> dict[tuple[str, str], list[Fold]]:
    """Folds by unit and host."""
    found: dict[tuple[str, str], list[Fold]] = {}
    for fold in folds:
        found.setdefault((fold.unit, fold.host), []).append(fold)
    return found
