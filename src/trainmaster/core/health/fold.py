"""Folding: a storm of one line becomes one piece of evidence before anything is kept or judged.

A *signal* is one line that a rule knows: which rule, about which unit. Signals of one rule, unit, host and boot fold
into one `Fold`, which counts them, keeps the first lines and the last, and remembers *bursts*: stretches without a
pause. A hung call that is reported every 45 s is one incident; the same three days later is a second one. Sub-parts
(the engine of a GPU, a link, a region of memory) have bursts of their own, because what comes again in one place
means something else than what comes everywhere.

800,000 copies of a line therefore cost what their parsing costs and the memory of a dozen.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from trainmaster.core.health.stamp import Stamp

_PARTS: Final = 64
"""Sub-parts that are told apart; a fold that has more has no favourite place anyway."""
_BURSTS: Final = 4096


class Line(NamedTuple):
    """A line of a capture."""

    number: int
    """From 1, in the file."""
    text: str
    """Whole, as it stands there."""
    stamp: Stamp
    boot: int
    """How many boots the capture has seen before it."""


class Signal(NamedTuple):
    """A line that a rule knows."""

    rule: str
    unit: str
    variant: str = ""
    """What makes it another fold of the same rule: how its registers decode."""
    part: tuple[str, str] | None = None
    """Kind and name of the sub-part: ("engine", "GPC 2 TPC 3")."""
    times: int = 1
    host: str = ""
    fact: str = ""
    """One more thing that the judge needs: what a driver asks for."""


class Bursts:
    """When something was seen, as stretches without a pause longer than the gap."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.last: int | None = None

    @classmethod
    def of(cls, several: Iterable["Bursts"]) -> "Bursts":
        """All bursts of several folds."""
        merged = cls()
        merged.starts = sorted(start for each in several for start in each.starts)
        return merged

    def add(self, at_us: int | None, gap_us: int) -> None:
        """Lines without times are one burst."""
        if at_us is None:
            if not self.starts:
                self.starts.append(-1)
            return
        if (self.last is None or abs(at_us - self.last) > gap_us) and len(self.starts) < _BURSTS:
            self.starts.append(at_us)
        self.last = at_us

    def most_within(self, window_us: int, gap_us: int) -> int:
        """The most incidents in a stretch of this length; bursts closer than the gap are one incident."""
        apart: list[int] = []
        for start in sorted(self.starts):
            if not apart or start - apart[-1] > gap_us:
                apart.append(start)
        best = low = 0
        for high, start in enumerate(apart):
            while start - apart[low] > window_us:
                low += 1
            best = max(best, high - low + 1)
        return best


class Fold:
    """All signals of one rule about one unit of one host in one boot."""

    def __init__(self, signal: Signal, line: Line, host: str) -> None:
        self.rule, self.unit, self.variant, self.host = signal.rule, signal.unit, signal.variant, host
        self.boot = line.boot
        self.count = 0
        self.lines: list[Line] = []
        self.bursts = Bursts()
        self.parts: dict[tuple[str, str], Bursts] = {}
        self.facts: list[str] = []
        self.newest = ""
        """The fact of the latest line, by time where there are times."""
        self.first = self.last = line

    def add(self, signal: Signal, line: Line, gap_us: int, keep: int) -> None:
        self.count += signal.times
        at, last = line.stamp.at_us, self.last.stamp.at_us
        if at is None or last is None or at >= last:
            self.last = line
            self.newest = signal.fact or self.newest
        first = self.first.stamp.at_us
        if at is not None and first is not None and at < first:
            self.first = line
        if len(self.lines) < keep:
            self.lines.append(line)
        self.bursts.add(line.stamp.at_us, gap_us)
        if signal.part is not None and (signal.part in self.parts or len(self.parts) < _PARTS):
            self.parts.setdefault(signal.part, Bursts()).add(line.stamp.at_us, gap_us)
        if signal.fact and (not self.facts or self.facts[-1] != signal.fact) and len(self.facts) < _BURSTS:
            self.facts.append(signal.fact)

    def proof(self) -> list[Line]:
        """The lines kept, and the last one."""
        return self.lines if self.last in self.lines else [*self.lines, self.last]


class Folder:
    """Folds signals as they come."""

    def __init__(self, gap_us: int, keep: int) -> None:
        self._gap, self._keep = gap_us, keep
        self.folds: dict[tuple[str, str, str, str, int], Fold] = {}
        self._signal: Signal | None = None
        self._where = ("", 0)
        self._fold: Fold | None = None

    def add(self, signal: Signal, line: Line) -> None:
        host = signal.host or line.stamp.host
        if signal is self._signal and (host, line.boot) == self._where:
            assert self._fold is not None
            self._fold.add(signal, line, self._gap, self._keep)  # one more copy of the line before
            return
        key = (signal.rule, signal.unit, signal.variant, host, line.boot)
        fold = self.folds.get(key)
        if fold is None:
            fold = self.folds[key] = Fold(signal, line, host)
        fold.add(signal, line, self._gap, self._keep)
        self._signal, self._where, self._fold = signal, (host, line.boot), fold
