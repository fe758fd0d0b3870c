"""Kernel logs and what daemons write between them: from text to folded signals.

Almost all lines of a log say nothing about health, so no line is looked at before one of a hundred literals was found
in it (`finder`). Only lines with a hit get a number, a stamp and patterns, and what a message says is remembered by
what its patterns found in it, so that the next copy costs little although its process has another number.

Three things need more than their line. A message that goes over several lines is joined by what it says, since only the
first line has a stamp and others may stand between. A stack belongs to the report above it by order: the report waits
for the lines after it, and is judged as far as it is known until then. And `Linux version` begins another boot: what a
reboot cures is over then.

A log is read whole or in pieces of whole lines, as it comes; both give the same folds.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from trainmaster.core.health.fold import FIRST_BOOT, Boot, Fold, Folder, Line, Signal
from trainmaster.core.health.policy import OWN, Index, Text
from trainmaster.core.health.source import by_kernel
from trainmaster.core.health.stamp import ALL, Stamp, Stamps
from trainmaster.core.health.unit import function, gpu, of_driver, unit_of
from trainmaster.core.health.xid import Xids, sxid_signal

_XID, _SXID, _LOST_GPU, _LINUX, _BOOT, _REBOOT = OWN
_BOOTS: Final = frozenset({_LINUX, _BOOT, _REBOOT})
_ITS_OWN: Final = frozenset({_XID, _SXID, _LOST_GPU})
_LOST: Final = "fallen off the bus"
_SAMPLE: Final = 400
_FOLLOWING: Final = 20_000
"""Characters after a report in which its stack is looked for."""
_REMEMBERED: Final = 4096
_NCCL: Final = re.compile(r"[\w.-]+:\d+:\d+ \[\d+\] .{0,80}?NCCL [A-Z]+ ")
"""What a job's library writes beside the kernel."""
_JOURNAL_BOOT: Final = re.compile(r"-- Boot ([0-9a-f]{32}) --")

Row = tuple[Text, re.Pattern[str], re.Pattern[str] | None]


class Scan(NamedTuple):
    """What a text of log lines holds."""

    folds: list[Fold]
    lines: int


def scan(text: str, first_line: int, index: Index, file: str = "", host: str = "") -> Scan:
    """Reads a text; its first line has this number in the file. Lines name file and host if they are told to."""
    reader = Reader(index, first_line, host=host, file=file)
    reader.read(text)
    lines = text.count("\n") + (not text.endswith("\n"))
    return Scan(reader.folds(), lines)


class _Waiting:
    """A report whose meaning depends on the lines that follow it."""

    def __init__(self, rows: Sequence[tuple[Text, Signal, re.Pattern[str] | None]], literal: str, lines: int) -> None:
        self.rows, self.literal = rows, literal
        self.lines, self.characters = lines, _FOLLOWING
        """How many more it waits for."""
        self.found = [then is None for _, _, then in rows]
        self.place = 0
        self.line = Line(0, "", Stamp(None, "", "", 0))

    @property
    def signal(self) -> Signal | None:
        """What it says as far as is known: the first row that has all it needs."""
        return next((signal for (_, signal, _), found in zip(self.rows, self.found, strict=True) if found), None)

    def goes_on(self, text: str, start: int) -> bool:
        """Reads the text behind it; whether it waits for more."""
        limit = start + self.characters
        again = text.find(self.literal, start, limit)
        if again >= 0 and text.count("\n", start, again) < self.lines:
            stop = again
        else:
            stop, again = start, -1
            while self.lines and stop < len(text):
                self.lines -= 1
                stop = text.find("\n", stop) + 1 or len(text)
        limit = min(stop, limit)
        self.found = [
            found or (then is not None and then.search(text, start, limit) is not None)
            for found, (_, _, then) in zip(self.found, self.rows, strict=True)
        ]
        self.characters -= stop - start
        return not self.found[0] and self.lines > 0 and self.characters > 0 and again < 0


class Reader:
    """Reads a log in pieces of whole lines. The host and the boot are those of lines that name none themselves."""

    def __init__(self, index: Index, number: int = 1, host: str = "", boot: str = "", file: str = "") -> None:
        self.index, self._file = index, file
        self.number = number
        """Of the next line."""
        self.folder = Folder(index)
        self.boots: dict[str, Boot] = {}
        self.waiting: list[_Waiting] = []
        self._host, self._first = host, Boot(0, boot) if boot else FIRST_BOOT
        self._stamps = Stamps()
        self._xids = Xids(index)
        self._lost: str = ""
        self._signals: dict[tuple[str, tuple[str | None, ...]], Signal] = {}
        self._stamp = Stamp(None, "", "", 0)
        self._marked = False
        """Whether a journal has just said that a boot begins."""

    def read(self, text: str) -> None:
        """Reads some more lines."""
        self._hear(text)
        first = self.number
        for number, line, after, literals in self.index.finder.hits(text):
            self._line(line.rstrip("\r") if line[-1:] == "\r" else line, literals, text, after, first + number)
        self.number += text.count("\n")

    def folds(self) -> list[Fold]:
        """All folds in the order of their first lines; those of reports that wait as far as they are known."""
        more = [(each.signal, each.line, each.place) for each in self.waiting if each.signal is not None]
        folds = sorted(self.folder.with_more(more), key=lambda fold: fold.born)
        for fold in folds:
            fold.past = fold.boot < self.boots.get(fold.host, FIRST_BOOT)
        return folds

    def _hear(self, text: str) -> None:
        still = []
        for each in self.waiting:
            if each.goes_on(text, 0):
                still.append(each)
            elif each.signal is not None:
                self.folder.add(each.signal, each.line, each.place)
        self.waiting = still

    def _line(self, text: str, literals: Sequence[str], whole: str, after: int, number: int) -> None:
        stamp = self._stamps.read(text)
        if stamp.at_us is None and text[:1].isspace():
            last = self._stamp  # it is the rest of the line before
            stamp = Stamp(last.at_us, last.clock, last.host, 0, ALL if last.program else 0)
        if self._host and stamp.host != self._host:
            stamp = stamp._replace(host=self._host)
        self._stamp = stamp
        body = text[stamp.length :]
        if stamp.host not in self.boots or not _BOOTS.isdisjoint(literals):
            self._booted(stamp.host, body, literals)
        line = Line(number, text, stamp, self.boots[stamp.host], self._file)
        place = 0
        for literal in literals:
            for signal in self._of(literal, body, line, whole, after, place):
                self.folder.add(signal, line, place)
                place += 1
            place += 1

    def _of(self, literal: str, body: str, line: Line, whole: str, after: int, place: int) -> Sequence[Signal]:
        """What a message says, as far as this literal of it tells."""
        if literal in _ITS_OWN and not by_kernel(body, body.find(literal), line.stamp, strict=True):
            return ()
        if literal == _XID:
            return self._xids.signals(body)
        if literal == _SXID:
            switch = sxid_signal(body)
            return (switch,) if switch else ()
        if literal == _LOST_GPU:
            self._lost = body.partition(_LOST_GPU)[2].split(" ", 1)[0]
            return ()
        fits: list[tuple[Text, Signal, re.Pattern[str] | None]] = []
        for row, pattern, then in self.index.literals.get(literal, ()):
            found = pattern.search(body)
            if found is None or (row.kernel and not by_kernel(body, found.start(), line.stamp)):
                continue
            signal = self._signal(row, found)
            if then is None and not fits:
                return (signal,)
            fits.append((row, signal, then))
            if then is None:
                break
        if fits:
            return self._wait(fits, literal, line, whole, after, place)
        if literal == _LOST and self._lost and "NVRM" in body and not line.stamp.program:
            lost, self._lost = self._lost, ""
            return (Signal("xid-79", gpu(lost)),)
        return ()

    def _wait(
        self,
        fits: Sequence[tuple[Text, Signal, re.Pattern[str] | None]],
        literal: str,
        line: Line,
        whole: str,
        after: int,
        place: int,
    ) -> Sequence[Signal]:
        """The signal of a report with a stack; nothing, if its lines have not all come yet."""
        report = _Waiting(fits, literal, self.index.limits.near_lines)
        if not report.goes_on(whole, after):
            return (report.signal,) if report.signal else ()
        report.line, report.place = line, place
        self.waiting.append(report)
        return ()

    def _signal(self, row: Text, found: re.Match[str]) -> Signal:
        """Remembered by what the pattern found, so that a copy with other numbers beside it is the same signal."""
        key = (row.id, found.groups())
        signal = self._signals.get(key)
        if signal is None:
            if len(self._signals) >= _REMEMBERED:
                self._signals.clear()
            signal = self._signals[key] = _signal(row, found.groupdict())
        return signal

    def _booted(self, host: str, body: str, literals: Sequence[str]) -> None:
        """Another boot of a host, if the line says so; of all hosts, if a journal does."""
        known = self.boots.setdefault(host, self.boots.get("", self._first))
        if self._first.id:
            return  # whoever gave the boot gives no lines of another one
        if body.startswith((_BOOT, _REBOOT)):
            named = _JOURNAL_BOOT.match(body)
            for each, its in self.boots.items():
                self.boots[each] = Boot(its.order + 1, named.group(1) if named else "")
            self._marked = True
        elif _LINUX in literals and body.startswith(_LINUX):
            self.boots[host] = Boot(known.order + 1, known.id if self._marked else "")
            self._marked = False


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
    found = sum(stamps.read(line[:200]).length > 0 or _NCCL.match(line) is not None for line in lines)
    return found / len(lines) if lines else 0.0
