"""Kernel logs and what daemons write between them: from text to folded signals.

Almost all lines of a log say nothing about health, so no line is looked at before one of a few dozen literals was found
in it: each literal is searched through the whole text by `str.find`, which costs less than one call per line would.
Only lines with a hit get a number, a stamp and patterns. (One large pattern for all literals was measured slower: the
engine tries its alternatives at every character.)

Three things need more than their line. A message that goes over several lines is joined by what it says, since only the
first line has a stamp and others may stand between. A stack belongs to the report above it by order. And `Linux
version` begins another boot: what a reboot cures is over then.
"""

from typing import Final, NamedTuple

from trainmaster.core.health.fold import Fold, Folder, Line, Signal
from trainmaster.core.health.policy import Index, Text
from trainmaster.core.health.stamp import Stamp, Stamps
from trainmaster.core.health.unit import function, gpu, of_driver, unit_of
from trainmaster.core.health.xid import sxid_signal, xid_signals

_XID: Final = "NVRM: Xid ("
_SXID: Final = "SXid ("
_LOST_GPU: Final = "NVRM: The NVIDIA GPU "
_LOST: Final = "fallen off the bus"
_BOOT: Final = "Linux version "
_OWN: Final = (_XID, _SXID, _LOST_GPU, _BOOT)
_LONGEST: Final = 4_000
"""Characters of a line that are looked at. Lines of the kernel end at about a thousand."""
_SAMPLE: Final = 400
_REMEMBERED: Final = 4096
"""Messages whose signals are kept for their next copy."""


class Scan(NamedTuple):
    """What a text of log lines holds."""

    folds: list[Fold]
    lines: int
    boots: dict[str, int]
    """How many boots each host has gone through in it."""


def scan(text: str, first_line: int, index: Index) -> Scan:
    """Reads a text; its first line has this number in the file."""
    reader = _Reader(text, first_line, index)
    reader.read()
    lines = text.count("\n") + (not text.endswith("\n"))
    return Scan(list(reader.folder.folds.values()), lines, reader.boots)


class _Reader:
    """One pass over one text."""

    def __init__(self, text: str, first_line: int, index: Index) -> None:
        self.text, self.index, self.number = text, index, first_line
        self.folder = Folder(index.limits.burst_us, index.limits.evidence_lines)
        self.stamps = Stamps()
        self.boots: dict[str, int] = {}
        self._lost: str = ""
        self._known: dict[str, list[Signal]] = {}
        self._stamp = Stamp(None, "", "", 0)

    def read(self) -> None:
        position = 0
        for start, literals in sorted(self._hits().items()):
            self.number += self.text.count("\n", position, start)
            position = start
            end = self.text.find("\n", start)
            end = len(self.text) if end < 0 else end
            self._line(self.text[start : min(end, start + _LONGEST)].rstrip("\r"), literals, end)

    def _hits(self) -> dict[int, list[str]]:
        """Starts of lines, with the literals that they have."""
        text, hits = self.text, {}  # type: str, dict[int, list[str]]
        for literal in (*_OWN, *self.index.literals):
            at = text.find(literal)
            while at >= 0:
                hits.setdefault(text.rfind("\n", 0, at) + 1, []).append(literal)
                end = text.find("\n", at)
                at = text.find(literal, end) if end >= 0 else -1
        return hits

    def _line(self, text: str, literals: list[str], end: int) -> None:
        stamp = self.stamps.read(text)
        if stamp.at_us is None and text[:1].isspace():
            stamp = Stamp(self._stamp.at_us, self._stamp.clock, self._stamp.host, 0)  # the rest of the line before
        self._stamp = stamp
        body = text[stamp.length :]
        if _BOOT in literals and body.startswith(_BOOT):
            self.boots[stamp.host] = self.boots.get(stamp.host, 0) + 1
        line = Line(self.number, text, stamp, self.boots.get(stamp.host, 0))
        for signal in self._known.get(body) or self._signals(literals, body, end):
            self.folder.add(signal, line)

    def _signals(self, literals: list[str], body: str, end: int) -> list[Signal]:
        """What a message says. Remembered for its next copy, unless it depends on what stands around it."""
        signals: list[Signal] = []
        alone = True
        for literal in literals:
            if literal == _XID:
                signals += xid_signals(body, self.index)
            elif literal == _SXID:
                switch = sxid_signal(body)
                signals += [switch] if switch else []
            elif literal == _LOST_GPU:
                self._lost, alone = body.partition(_LOST_GPU)[2].split(" ", 1)[0], False
            elif literal != _BOOT:
                found, by_itself = self._text(literal, body, end)
                signals += [found] if found else []
                alone = alone and by_itself
        if alone and signals:
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            self._known[body] = signals
        return signals

    def _text(self, literal: str, body: str, end: int) -> tuple[Signal | None, bool]:
        """The signal of the first row that fits, and whether the message alone decided."""
        alone = True
        for row, pattern, then in self.index.literals.get(literal, ()):
            alone = alone and then is None
            found = pattern.search(body)
            if found and (then is None or then.search(self._after(end, row.contains))):
                return _signal(row, found.groupdict()), alone
        if literal == _LOST and self._lost and "NVRM" in body:
            lost, self._lost = self._lost, ""
            return Signal("xid-79", gpu(lost)), False
        return None, alone and literal != _LOST

    def _after(self, end: int, literal: str) -> str:
        """The lines that follow, up to the next report of the same kind."""
        stop = end
        for _ in range(self.index.limits.near_lines):
            stop = self.text.find("\n", stop + 1)
            if stop < 0:
                stop = len(self.text)
                break
        following = self.text[end : min(stop, end + 20_000)]
        again = following.find(literal)
        return following if again < 0 else following[:again]


def _signal(row: Text, groups: dict[str, str | None]) -> Signal:
    name = groups.get("unit") or ""
    if row.kind == "driver":
        unit = of_driver(groups.get("driver") or "", name)
    elif row.kind == "job":
        unit = "job"
    else:
        unit = unit_of(row.kind, function(name) if row.kind == "nic" else name)
    count = groups.get("count") or ""
    number = min(int(count), 10**9) if count.isdigit() and len(count) < 12 else 1
    return Signal(
        row.counts_as or row.id,
        unit,
        times=number or 1,
        host=groups.get("host") or "",
        fact=name if row.kind == "job" else "",
    )


def headed(text: str) -> float:
    """Share of the lines that begin as log lines do, among the first of them."""
    stamps = Stamps()
    lines = text[: _SAMPLE * 200].split("\n")[:_SAMPLE]
    lines = [line for line in lines if line.strip()]
    found = sum(stamps.read(line[:200]).length > 0 for line in lines)
    return found / len(lines) if lines else 0.0
