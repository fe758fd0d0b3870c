"""A job that runs: rings of its ranks as their agents would tell them, from a little simulation of steps.

A step is `own` seconds of each rank's own work, an all-reduce, a barrier, and the all-reduce of the session. Clocks of
hosts differ by minutes, since nothing may rest on them.
"""

from collections.abc import Callable, Sequence

from trainmaster.core.agent.board import Phase
from trainmaster.core.agent.ring import RankState, RingCall, RingGroup, RingReading, Rings, Slow

START_US = 1_796_000_000_000_000
OPS = (("all_reduce", 4096), ("barrier", 0), ("all_reduce", 16))
Own = Callable[[int, int], float]
"""Seconds of own work of a rank in a step."""


def even(step: int, rank: int) -> float:
    return 0.1 + 0.001 * rank


class Run:
    """Steps of `ranks` ranks, two a host."""

    def __init__(self, ranks: int = 4) -> None:
        self.ranks = ranks
        self.now_us = START_US
        self.step = 0
        self.calls: list[list[RingCall]] = [[] for _ in range(ranks)]
        self.states = ["R"] * ranks
        self.slow = [int(Slow.NONE)] * ranks
        self.data_waits: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]

    def skew(self, rank: int) -> int:
        """The clock of a rank's host."""
        return (rank // 2) * 77_000_000

    def steps(self, count: int, own: Own = even, slow: int = 0) -> "Run":
        for _ in range(count):
            ready = [self.now_us + round(own(self.step, rank) * 1e6) for rank in range(self.ranks)]
            for op, size in OPS:
                end = max(ready) + 200
                for rank in range(self.ranks):
                    self._call(rank, op, size, ready[rank], end, slow)
                ready = [end + 50] * self.ranks
            self.now_us = ready[0]
            self.step += 1
        return self

    def fed(self, count: int, wait: Own, own: Own = even) -> "Run":
        """Steps that begin with a wait for data, which is part of each rank's own time."""
        for _ in range(count):
            for rank in range(self.ranks):
                self.data_waits[rank].append((self.step, round(wait(self.step, rank) * 1e6)))
            self.steps(1, lambda step, rank: wait(step, rank) + own(step, rank))
        return self

    def hang(self, for_s: float, missing: Sequence[int] = (), instead: str = "") -> "Run":
        """All but `missing` enter the next collective and stay in it; those do nothing, or something else."""
        for rank in range(self.ranks):
            if rank not in missing:
                self._call(rank, *OPS[0], self.now_us, 0, 0)
            elif instead:
                self._call(rank, instead, 16, self.now_us, 0, 0)
        self.now_us += round(for_s * 1e6)
        return self

    def _call(self, rank: int, op: str, size: int, at_us: int, left_us: int, slow: int) -> None:
        skew = self.skew(rank)
        call = RingCall(
            seq=len(self.calls[rank]) + 1, group=0, op=op, bytes=size, entered_us=at_us + skew, waited_us=at_us + skew,
            left_us=left_us + skew if left_us else 0, step=self.step, slow=slow,
        )  # fmt: skip
        self.calls[rank].append(call)

    def rings(self, kept: int = 300) -> list[Rings]:
        """What the agents tell now."""
        groups = (RingGroup(name="0", count=self.ranks, ranks=tuple(range(self.ranks))),)
        return [
            Rings(
                host=f"h{first // 2 + 1}",
                attempt="job-1.a1",
                epoch=1,
                at=self.now_us + self.skew(first),
                ranks=tuple(
                    RankState(
                        rank=rank, state=self.states[rank], phase=int(Phase.TRAINING), step=self.step,
                        step_at=self.now_us + self.skew(first) - 1000,
                        ring=RingReading(
                            pid=rank + 10, written=len(self.calls[rank]), slow=self.slow[rank], slow_since_us=0,
                            groups=groups, calls=tuple(self.calls[rank][-kept:]),
                            data_waits=tuple(self.data_waits[rank][-24:]),
                        ),
                    )
                    for rank in range(first, min(first + 2, self.ranks))
                ),
            )
            for first in range(0, self.ranks, 2)
        ]  # fmt: skip
