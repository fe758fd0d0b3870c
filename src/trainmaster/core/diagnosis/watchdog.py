"""What the watchdogs of PyTorch's process groups print, of versions 1.12 to 2.13, and checks of the collectives.

    [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=880, OpType=BROADCAST, ...) ran for ...
    [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000)     no number
    [PG 1 Rank 0] Timeout at NCCL work: 5, last enqueued NCCL work: 7, last completed NCCL work: 4.
    [PG ID 0 PG GUID 0(default_pg) Rank 0] failure detected by watchdog at work sequence id: 21937 PG status: last
        enqueued work: 21937, last completed work: 21936
    ... Received a dump signal due to a collective timeout from another rank. PG status: last enqueued work: ...

All ranks that speak are victims, unless their counters say otherwise: who is missing is told by the lowest counter, or
by silence. The line that says "caught" has no group; the next one of the same rank has it. The rank in
`[PG ... Rank n]` is that within the group, so a `[rank7]` before it goes first.
"""

import re
from collections.abc import Sequence
from typing import Final

from trainmaster.core.diagnosis.evidence import Call, Remark, Standing, What
from trainmaster.core.diagnosis.stamp import rank_of, time_of

_CAUGHT: Final = re.compile(
    r"Watchdog caught collective operation timeout: Work\w+\((?:SeqNum=(\d+), )?OpType=(\w+)(?:, NumelIn=(\d+))?"
    r"(?:, NumelOut=(\d+))?.{0,200}?Timeout\(ms\)=(\d+)\)"
)
_COUNTERS: Final = re.compile(
    r"last enqueued (?:NCCL |collective )?work: ?(\d+)[,;] ?last completed (?:NCCL |collective )?work: ?(-?\d+)",
    re.IGNORECASE,
)
_AT: Final = re.compile(r"(?:at (?:NCCL )?work(?: sequence id)?: ?|at work: ?)(\d+)")
_PG: Final = re.compile(r"\[PG (?:ID )?(\d+)(?: PG GUID ([^\s(\]]+))?(?: ?\(([\w-]+)\))?")
_FRAME: Final = re.compile(r"^#\d+ (.{1,300})$")
_STACK: Final = re.compile(r"Stack trace of the (?:failed|timed[- ]out) (?:collective|operation)", re.IGNORECASE)
_BARRIER: Final = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier", re.IGNORECASE)
_ONE_BARRIER: Final = re.compile(r"Rank (\d+) (?:successfully reached|timed out in) monitoredBarrier", re.IGNORECASE)
_FINGER: Final = re.compile(
    r"Detected mismatch between collectives on ranks\. Rank (\d+) is running .{0,60}?OpType=(\w+).{0,300}?"
    r"Rank (\d+) is running .{0,60}?OpType=(\w+)"
)
_STALLED: Final = re.compile(r"Stalled ops:.{0,300}?\[(?:ready ranks?|missing ranks?): ?([\d, ]+)\]", re.IGNORECASE)
_MISSING: Final = re.compile(r"\[missing ranks?: ?([\d, ]+)\]", re.IGNORECASE)
_READY: Final = re.compile(r"\[ready ranks?: ?([\d, ]+)\]", re.IGNORECASE)
_STUCK: Final = "watchdog got stuck for"


class Watchdogs:
    """Collects what the lines of one file say, in order."""

    def __init__(self, place: str, rank: int | None) -> None:
        self._place, self._rank = place, rank
        self._caught: dict[int, tuple[Call, float]] = {}
        self._standings: dict[tuple[int, str], Standing] = {}
        self._stack_of: int | None = None
        self._frames: dict[int, list[str]] = {}
        self.remarks: list[Remark] = []

    def read(self, lines: Sequence[str], telling: Sequence[int]) -> list[int]:
        """Takes what is its own of the lines at the places `telling`, and of those that follow a stack's head; the
        places of what it took."""
        taken, following = [], 0
        for place in telling:
            if place >= following:
                following = place
                while following == place or (self._stack_of is not None and following < len(lines)):
                    if self.line(following + 1, lines[following]):
                        taken.append(following)
                    following += 1
        return taken

    def line(self, number: int, line: str) -> bool:
        """Takes a line; whether it was one of a watchdog."""
        if self._stack_of is not None:
            frame = _FRAME.match(line.strip())
            if frame:
                self._frames.setdefault(self._stack_of, []).append(frame.group(1))
                return True
            self._stack_of = None
        if "atchdog" in line or "work" in line or "collective" in line:
            return self._watchdog(number, line)
        if "anks" in line or "arrier" in line:
            return self._checks(number, line)
        return False

    def _watchdog(self, number: int, line: str) -> bool:
        rank = rank_of(line)
        rank = rank if rank is not None else self._rank
        caught = _CAUGHT.search(line)
        if caught and rank is not None:
            self._take_caught(rank, line, caught)
            return True
        if _STACK.search(line):
            self._stack_of = rank
            return True
        counters = _COUNTERS.search(line)
        if counters and rank is not None:
            self._take_counters(rank, line, counters)
            return True
        if _STUCK in line:
            self._remark(What.WATCHDOG_STUCK, number, line, rank)
            return True
        return self._checks(number, line)

    def _take_caught(self, rank: int, line: str, caught: re.Match[str]) -> None:
        seq, op, numel_in, numel_out, timeout_ms = caught.groups()
        call = Call(
            seq=int(seq) if seq else 0,
            op=op.lower().lstrip("_"),
            done=False,
            sizes=((int(numel_in),),) if numel_in else (),
            outputs=((int(numel_out),),) if numel_out else (),
            at_us=time_of(line),
        )
        known = self._caught.get(rank)
        if known is None or (call.seq and call.seq < known[0].seq):
            self._caught[rank] = (call, int(timeout_ms) / 1000)

    def _take_counters(self, rank: int, line: str, counters: re.Match[str]) -> None:
        group = _PG.search(line)
        name = (group.group(2) or group.group(1)) if group else "0"
        at = _AT.search(line)
        enqueued, completed = int(counters.group(1)), max(int(counters.group(2)), 0)
        known = self._standings.get((rank, name))
        if known is not None and known.timed_out and at is None:
            return
        self._standings[rank, name] = Standing(
            rank=rank,
            group=name,
            enqueued=max(enqueued, completed),
            completed=completed,
            source="watchdog",
            place=self._place,
            timed_out=at is not None,
        )

    def _checks(self, number: int, line: str) -> bool:
        mismatch = _FINGER.search(line)
        if mismatch:
            ranks = (int(mismatch.group(1)), int(mismatch.group(3)))
            self._remark(What.MISMATCH, number, line, None, ranks)
            return True
        barrier = _BARRIER.search(line) or (_MISSING.search(line) if _STALLED.search(line) else None)
        if barrier:
            self._remark(What.NOT_JOINED, number, line, None, _numbers(barrier.group(1)))
            return True
        ready = _READY.search(line) if _STALLED.search(line) else None
        if ready:
            self._remark(What.NOT_JOINED, number, "ready: " + line, None, _numbers(ready.group(1)))
            return True
        return False

    def _remark(self, what: What, number: int, line: str, rank: int | None, ranks: tuple[int, ...] = ()) -> None:
        text = " ".join(line.split())[:300]
        place = f"{self._place}, line {number}"
        self.remarks.append(
            Remark(what=what, text=text, rank=rank, at_us=time_of(line), order=number, place=place, ranks=ranks)
        )

    def standings(self) -> list[Standing]:
        """What is known of each rank and group."""
        found = dict(self._standings)
        for rank, (call, timeout_s) in self._caught.items():
            call = call.but(frames=tuple(self._frames.get(rank, ())))
            names = [name for its, name in found if its == rank]
            fit = [name for name in names if found[rank, name].timed_out] or names
            if fit:
                known = found[rank, fit[0]]
                calls = (call,) if call.seq else (call.but(seq=known.enqueued),)
                found[rank, fit[0]] = known.but(
                    calls=calls, timed_out=True, timeout_s=timeout_s, enqueued=max(known.enqueued, calls[0].seq)
                )
                continue
            completed = call.seq - 1 if call.seq else None
            found[rank, "0"] = Standing(
                rank=rank, group="0", enqueued=call.seq, completed=completed, calls=(call,), source="watchdog",
                place=self._place, timed_out=True, timeout_s=timeout_s,
            )  # fmt: skip
        return list(found.values())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))
