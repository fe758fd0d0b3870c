"""Folding: a storm of one line becomes one piece of evidence before anything is kept or judged.

A *signal* is one line that a rule knows: which rule, about which unit. Signals of one rule, unit, host and boot fold
into one `Fold`, which counts them, keeps the first lines and the last, and remembers *bursts*: stretches without a
pause. A hung call that is reported every 45 s is one incident; the same three days later is a second one. Sub-parts
(the engine of a GPU, a link, a region of memory) have bursts of their own, because what comes again in one place
means something else than what comes everywhere.

800,000 copies of a line therefore cost what their parsing costs and the memory of a dozen. What a copy changes is
little, and whether it is more than a count is known when it is folded (`Folder.news`): only then is anything judged
again.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from trainmaster.core.health.policy import Index
from trainmaster.core.health.stamp import Stamp

_PARTS: Final = 64
"""Sub-parts that are told apart; a fold that has more has no favourite place anyway."""
_FACTS: Final = 64
_BURSTS: Final = 256
"""Bursts that are remembered, the newest ones."""


class Boot(NamedTuple):
    """One boot of a host, as far as a capture tells them apart."""

    order: int
    """How many boots the capture has seen before it."""
    id: str
    """As the kernel names it; empty: nothing says so."""


FIRST_BOOT: Final = Boot(0, "")


class Line(NamedTuple):
    """A line of a capture."""

    number: int
    """From 1, in the file."""
    text: str
    """Whole, as it stands there."""
    stamp: Stamp
    boot: Boot = FIRST_BOOT
    file: str = ""
    """Where several files are judged together: which one it stands in."""


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

    __slots__ = ("last", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.last: int | None = None

    @classmethod
    def of(cls, several: Iterable["Bursts"]) -> "Bursts":
        """All bursts of several folds."""
        merged = cls()
        merged.starts = sorted(start for each in several for start in each.starts)
        return merged

    def add(self, at_us: int | None, gap_us: int) -> bool:
        """Whether this begins another burst. Lines without times are one."""
        if at_us is None:
            if self.starts:
                return False
            self.starts.append(-1)
            return True
        last, self.last = self.last, at_us
        if last is not None and -gap_us <= at_us - last <= gap_us:
            return False
        self.starts.append(at_us)
        if len(self.starts) > _BURSTS:
            del self.starts[0]
        return True

    def copy(self) -> "Bursts":
        same = Bursts()
        same.starts, same.last = list(self.starts), self.last
        return same

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

    __slots__ = ("boot", "born", "bursts", "count", "facts", "file", "first", "host", "last", "lines", "newest",
                 "parts", "past", "rule", "seen_ends", "unit", "variant")  # fmt: skip

    def __init__(self, signal: Signal, line: Line, host: str, place: int = 0) -> None:
        self.rule, self.unit, self.variant, self.host = signal.rule, signal.unit, signal.variant, host
        self.boot = line.boot
        self.past = False
        """Whether its host was booted since."""
        self.file = line.file
        self.born = (line.number, place)
        """Folds are judged in this order."""
        self.count = 0
        self.lines: list[Line] = []
        self.bursts = Bursts()
        self.parts: dict[tuple[str, str], Bursts] = {}
        self.facts: list[str] = []
        self.newest = ""
        """The fact of the latest line, by time where there are times."""
        self.first = self.last = line
        self.seen_ends = 0

    def add(self, signal: Signal, line: Line, gap_us: int, keep: int, near: int) -> bool:
        """Whether this tells more than that the same goes on."""
        self.count += signal.times
        at, last = line.stamp.at_us, self.last.stamp.at_us
        news = False
        if at is None or last is None or at >= last:
            news = at is None and line.number - self.last.number > near
            self.last = line
            if signal.fact and signal.fact != self.newest:
                self.newest, news = signal.fact, True
        else:
            first = self.first.stamp.at_us
            if first is not None and at < first:
                self.first, news = line, True
        kept = len(self.lines)
        if kept < keep:
            self.lines.append(line)
            news = news or kept < 2
        began = self.bursts.last
        if began is None or at is None or not began <= at <= began + gap_us:
            news = self.bursts.add(at, gap_us) or news
        else:
            self.bursts.last = at  # most lines: a little later than the one before
        if signal.part is not None or signal.fact:
            news = self._detail(signal, at, gap_us) or news
        return news

    def _detail(self, signal: Signal, at: int | None, gap_us: int) -> bool:
        news, part, fact = False, signal.part, signal.fact
        if part is not None and (part in self.parts or len(self.parts) < _PARTS):
            news = self.parts.setdefault(part, Bursts()).add(at, gap_us)
        if fact and fact not in self.facts and len(self.facts) < _FACTS:
            self.facts.append(fact)
            news = True
        return news

    def proof(self) -> list[Line]:
        """The lines kept, and the last one."""
        return self.lines if self.last in self.lines else [*self.lines, self.last]

    def copy(self) -> "Fold":
        """One that can grow by itself."""
        same = Fold(Signal(self.rule, self.unit, self.variant), self.first, self.host, self.born[1])
        same.boot, same.born, same.count, same.seen_ends = self.boot, self.born, self.count, self.seen_ends
        same.lines, same.facts, same.newest = list(self.lines), list(self.facts), self.newest
        same.bursts, same.parts = self.bursts.copy(), {part: its.copy() for part, its in self.parts.items()}
        same.last = self.last
        return same


Key = tuple[str, str, str, str, int]
OTHERS: Final = "(others)"


class Folder:
    """Folds signals as they come, in bounded memory: a host that has shown very many different faults gets one fold a
    rule for all units that come after, so that nothing is lost but their names."""

    def __init__(self, index: Index) -> None:
        limits = index.limits
        self._gap, self._keep, self._near, self._most = (
            limits.burst_us, limits.evidence_lines, limits.near_lines, limits.folds_per_host
        )  # fmt: skip
        self._enders, self._rules = index.enders, index.rows
        self.folds: dict[Key, Fold] = {}
        self.news: dict[Fold, None] = {}
        """Folds that tell more than they did, until somebody takes them."""
        self._of_host: dict[str, int] = {}
        self._ends: dict[tuple[str, str], int] = {}
        """Signals that end what others say, by unit and host."""
        self._stirred: dict[tuple[str, str], bool] = {}
        """Units of which others spoke since."""
        self._signal: Signal | None = None
        self._where: tuple[str, Boot] = ("", FIRST_BOOT)
        self._fold: Fold | None = None

    def add(self, signal: Signal, line: Line, place: int = 0) -> None:
        """Adds a signal of a line; `place` tells its signals apart."""
        host = signal.host or line.stamp.host
        if signal is self._signal and (host, line.boot) == self._where:
            assert self._fold is not None
            fold = self._fold  # one more copy of the line before
        else:
            key = (signal.rule, signal.unit, signal.variant, host, line.boot.order)
            fold = self.folds.get(key) or self._new(key, signal, line, place)
            self._signal, self._where, self._fold = signal, (host, line.boot), fold
        news = fold.add(signal, line, self._gap, self._keep, self._near)
        if (fold.rule in self._enders or self._ends) and self._order(fold, signal):
            news = True
        if news:
            self.news[fold] = None

    def _order(self, fold: Fold, signal: Signal) -> bool:
        """Whether the last word about a unit is another one now: a fault or its end."""
        place = fold.unit, fold.host
        if fold.rule in self._enders and (fold.rule != "xid-154" or signal.fact == "none"):
            self._ends[place] = self._ends.get(place, 0) + 1
            return self._stirred.pop(place, False) or self._ends[place] == 1
        ends = self._ends.get(place, 0)
        if ends:
            self._stirred[place] = True
        changed, fold.seen_ends = fold.seen_ends != ends, ends
        return changed

    def with_more(self, more: Iterable[tuple[Signal, Line, int]]) -> Iterable[Fold]:
        """The folds as they would be with these signals, which are not kept."""
        folds = self.folds
        for signal, line, place in more:
            host = signal.host or line.stamp.host
            key = (signal.rule, signal.unit, signal.variant, host, line.boot.order)
            fold = folds[key].copy() if key in folds else Fold(signal, line, host, place)
            fold.add(signal, line, self._gap, self._keep, self._near)
            folds = {**folds, key: fold}
        return folds.values()

    def _new(self, key: Key, signal: Signal, line: Line, place: int) -> Fold:
        host = key[3]
        if self._of_host.get(host, 0) >= self._most:
            signal = self._without_a_name(signal)
            key = (signal.rule, signal.unit, signal.variant, host, key[4])
            if key in self.folds:
                return self.folds[key]
        self._of_host[host] = self._of_host.get(host, 0) + 1
        fold = self.folds[key] = Fold(signal, line, host, place)
        return fold

    def _without_a_name(self, signal: Signal) -> Signal:
        """Of which unit is not kept; codes that no row names are one, and registers are what they ask for."""
        rule = signal.rule if signal.rule in self._rules else f"{signal.rule.partition('-')[0]}-unlisted"
        variant = f"|{signal.variant.split('|')[1]}|" if "|" in signal.variant else signal.variant
        return Signal(rule, f"{signal.unit.partition(' ')[0]} {OTHERS}", variant, fact=signal.fact)
