"""A burst in a simulated store: all ranks of a job save at once while readers fetch batches, with admission or without.

Servers are lines: each moves one piece after the other, at its peak while its buffer has room, else at what it sustains
(a buffer empties at that rate). A piece of a save goes to the shorter of two lines that chance names, as clients of
such stores do; a read goes where its data lies. Ranks send a few pieces ahead, each over its own link. Readers want a
piece at fixed intervals, and fall behind if too many of theirs are under way. With admission every piece, of both, is
wanted from and granted by the very policy of live hosts (`core/storage/admission.py`); without it everybody just sends.

Not simulated: the network between, lost messages and tries again (which make a burst without admission worse), the cost
of asking, metadata. Redundancy is not told apart: rates are those that clients see.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import MILLISECOND, Duration, Instant
from trainmaster.core.base.value import Value
from trainmaster.core.storage.admission import Admission
from trainmaster.core.storage.classes import MEBIBYTE, MILLION, Policy
from trainmaster.core.storage.turns import SaveReport, Turn, report
from trainmaster.twin.kernel import Kernel

_SAVE: Final = "save"


class BurstScenario(Value):
    """A store, a job that saves, and readers. Rates are of the whole store, in bytes a second."""

    name: str
    policy: Policy
    seed: int = 1
    servers: int = 7_500
    sustained_bytes_s: int = 2_000_000 * MILLION
    peak_bytes_s: int = 7_000_000 * MILLION
    buffer_bytes: int = 500 * MILLION
    """Of a server: what it takes at its peak rate before it slows down."""
    ranks: int = 16_384
    smallest_bytes: int = MILLION
    largest_bytes: int = 4_000 * MILLION
    """Sizes lie evenly on a scale of logarithms between these two."""
    link_bytes_s: int = 6_250 * MILLION
    """Of a rank."""
    ahead: int = 8
    """Pieces that a rank has under way, or wants, at once."""
    piece_bytes: int = 8 * MEBIBYTE
    readers: int = 2_048
    read_bytes: int = 4 * MEBIBYTE
    reads_ahead: int = 8
    data_bytes_s: int = 400_000 * MILLION
    """What all readers want."""
    before: Duration = Duration(200 * MILLISECOND)
    """Readers read for so long before the save begins."""


class Tail(Value):
    """How long reads took, in microseconds, from the wish to the last byte."""

    reads: int
    median: int
    p99: int
    longest: int


class BurstReport(Value):
    """Simulated."""

    admission: bool
    save_bytes: int
    makespan: int
    """Microseconds."""
    over_sustained: float
    """Makespan over bytes by the sustained rate."""
    over_possible: float
    """Makespan over the least that the store needs for these bytes and those that readers want meanwhile."""
    data_share: float
    """Of the bytes that were moved during the save."""
    data_served: float
    """Of what readers wanted during the save: the part that came in it."""
    reads: Tail
    """Of reads that were wanted during the save."""
    quiet_reads: Tail
    """Of those before it."""
    slowest: str
    phase: str
    events: int


def possible(scenario: BurstScenario, size_bytes: int, beside_bytes_s: int = 0) -> int:
    """Microseconds that the whole store needs for so many bytes, while it gives `beside_bytes_s` to others: at its peak
    until the buffers are full, at what it sustains afterwards."""
    peak, sustained = scenario.peak_bytes_s - beside_bytes_s, scenario.sustained_bytes_s - beside_bytes_s
    assert 0 < sustained <= peak, "readers want more than the store gives"
    if peak == sustained:
        return size_bytes * MILLION // sustained
    fast_bytes = scenario.servers * scenario.buffer_bytes * peak // (peak - sustained)
    fast_bytes = min(fast_bytes, size_bytes)
    return fast_bytes * MILLION // peak + (size_bytes - fast_bytes) * MILLION // sustained


class Burst:
    """The world. One save is one run."""

    def __init__(self, scenario: BurstScenario, admission: bool) -> None:
        self.scenario = scenario
        self._kernel = Kernel(Instant(0))
        self._admission = Admission(scenario.policy, Instant(0)) if admission else None
        self._free_at = [0] * scenario.servers
        self._filled = [0] * scenario.servers
        self._filled_at = [0] * scenario.servers
        self._peak = scenario.peak_bytes_s // scenario.servers
        self._sustained = scenario.sustained_bytes_s // scenario.servers
        self._place = Stream.of(scenario.seed, "burst", "place")
        self._lies = Stream.of(scenario.seed, "burst", "lies")
        self._sizes = _sizes(scenario)
        self._left: list[int] = []
        self._unmoved: list[int] = []
        self._last = 0
        self._link_free_at = [0] * scenario.ranks
        self._writing = 0
        self._interval = scenario.read_bytes * scenario.readers * MILLION // max(scenario.data_bytes_s, 1)
        self._due: list[deque[int]] = [deque() for _ in range(scenario.readers)]
        self._under_way: set[tuple[int, int, int]] = set()
        self._read_number = 0
        self._reading = [0] * scenario.readers
        self._behind = [0] * scenario.readers
        self._began: int = 0
        self._ended: int = 0
        self._quiet: list[int] = []
        self._busy: list[int] = []
        self._wanted_bytes = self._read_bytes = 0
        self._events = 0
        self._turns: list[Turn] = []

    def run(self) -> BurstReport:
        """Lives through it."""
        scenario, kernel = self.scenario, self._kernel
        phases = Stream.of(scenario.seed, "burst", "readers")
        for reader in range(scenario.readers if scenario.data_bytes_s else 0):
            if self._admission is not None:
                self._admission.open(f"reader {reader}", "data", 0, Instant(0))
            kernel.after(phases.integer(self._interval), self._read_due, reader)
        kernel.at(Instant(scenario.before), self._save, None)
        while not self._ended:
            kernel.step()
        return self._report()

    # --- readers ---

    def _read_due(self, reader: int) -> None:
        if self._ended:
            return
        now = self._kernel.now
        self._kernel.after(self._interval, self._read_due, reader)
        if self._began:
            self._wanted_bytes += self.scenario.read_bytes
        if self._reading[reader] >= self.scenario.reads_ahead:
            self._behind[reader] += 1
            return
        self._read(reader, now)

    def _read(self, reader: int, now: Instant) -> None:
        self._reading[reader] += 1
        self._due[reader].append(now)
        if self._admission is None:
            self._fetch(reader)
        else:
            self._admission.want(f"reader {reader}", self.scenario.read_bytes, now)
            self._grant()

    def _fetch(self, reader: int) -> None:
        server = self._lies.integer(self.scenario.servers)
        self._read_number += 1
        read = reader, self._due[reader].popleft(), self._read_number
        self._under_way.add(read)
        self._kernel.at(self._served(server, self._kernel.now, self.scenario.read_bytes), self._fetched, read)

    def _fetched(self, read: tuple[int, int, int]) -> None:
        self._under_way.remove(read)
        reader, due, _ = read
        now = self._kernel.now
        self._events += 1
        (self._busy if self._began and due >= self._began else self._quiet).append(now - due)
        if self._began:
            self._read_bytes += self.scenario.read_bytes
        self._reading[reader] -= 1
        if self._admission is not None:
            self._admission.done(f"reader {reader}", self.scenario.read_bytes, now)
        if self._behind[reader]:
            self._behind[reader] -= 1
            self._read(reader, now)
        else:
            self._grant()

    # --- the save ---

    def _save(self, _: None) -> None:
        now = self._kernel.now
        self._began, self._writing = now, len(self._sizes)
        self._left, self._unmoved = list(self._sizes), list(self._sizes)
        if self._admission is not None:
            for rank, size_bytes in enumerate(self._sizes):
                self._admission.open(f"rank {rank}", "checkpoint", size_bytes, now, _SAVE)
        for rank in range(self.scenario.ranks):
            for _piece in range(self.scenario.ahead):
                self._want(rank)
        self._grant()

    def _want(self, rank: int) -> None:
        piece = min(self._left[rank], self.scenario.piece_bytes)
        if not piece:
            return
        self._left[rank] -= piece
        if self._admission is None:
            self._send(rank, piece)
        else:
            self._admission.want(f"rank {rank}", piece, self._kernel.now)

    def _send(self, rank: int, piece: int) -> None:
        arrives = max(self._kernel.now, self._link_free_at[rank]) + piece * MILLION // self.scenario.link_bytes_s
        self._link_free_at[rank] = arrives
        one, other = self._place.integer(self.scenario.servers), self._place.integer(self.scenario.servers)
        server = one if self._free_at[one] <= self._free_at[other] else other
        self._kernel.at(self._served(server, arrives, piece), self._sent, (rank, piece))

    def _sent(self, sent: tuple[int, int]) -> None:
        rank, piece = sent
        self._events += 1
        if self._admission is not None:
            self._admission.done(f"rank {rank}", piece, self._kernel.now)
        self._want(rank)
        self._unmoved[rank] -= piece
        if not self._unmoved[rank]:
            self._rank_ends(rank)
        self._grant()

    def _rank_ends(self, rank: int) -> None:
        now = self._kernel.now
        if self._admission is None:
            self._last = rank
        else:
            self._turns.append(self._admission.close(f"rank {rank}", now))
        self._writing -= 1
        if not self._writing:
            self._ended = now

    def _grant(self) -> None:
        if self._admission is None:
            return
        for grant in self._admission.grants(self._kernel.now):
            kind, _, number = grant.writer.partition(" ")
            if kind == "rank":
                self._send(int(number), grant.size_bytes)
            else:
                self._fetch(int(number))

    # --- servers ---

    def _served(self, server: int, arrives: int, size_bytes: int) -> Instant:
        """When a server will have moved a piece that arrives then."""
        start = max(arrives, self._free_at[server])
        drained = (start - self._filled_at[server]) * self._sustained // MILLION
        filled = max(0, self._filled[server] - drained)
        fast = filled + size_bytes <= self.scenario.buffer_bytes
        ends = start + size_bytes * MILLION // (self._peak if fast else self._sustained)
        self._filled[server], self._filled_at[server] = filled + size_bytes, start
        self._free_at[server] = ends
        return Instant(ends)

    def _report(self) -> BurstReport:
        scenario = self.scenario
        save_bytes, makespan = sum(self._sizes), self._ended - self._began
        assert self._turns == [] or sum(turn.moved_bytes for turn in self._turns) == save_bytes, "all bytes are moved"
        told: SaveReport | None = report(self._turns) if self._turns else None
        return BurstReport(
            admission=self._admission is not None,
            save_bytes=save_bytes,
            makespan=makespan,
            over_sustained=makespan / max(1, save_bytes * MILLION // scenario.sustained_bytes_s),
            over_possible=makespan / max(1, possible(scenario, save_bytes, scenario.data_bytes_s)),
            data_share=self._read_bytes / (self._read_bytes + save_bytes),
            data_served=self._read_bytes / self._wanted_bytes if self._wanted_bytes else 1.0,
            reads=tail([*self._busy, *self._unread()]),
            quiet_reads=tail(self._quiet),
            slowest=told.slowest if told is not None else f"rank {self._last}",
            phase=told.phase if told is not None else "",
            events=self._events,
        )

    def _unread(self) -> list[int]:
        """How long reads have waited already that were wanted in the save and have not come."""
        dues = [due for _, due, _ in sorted(self._under_way)] + [due for line in self._due for due in line]
        return [self._ended - due for due in dues if due >= self._began]


def tail(durations: Sequence[int]) -> Tail:
    ordered = sorted(durations)
    if not ordered:
        return Tail(reads=0, median=0, p99=0, longest=0)
    last = len(ordered) - 1
    return Tail(
        reads=len(ordered),
        median=ordered[last // 2],
        p99=ordered[min(last, len(ordered) * 99 // 100)],
        longest=ordered[last],
    )


def _sizes(scenario: BurstScenario) -> list[int]:
    """What each rank saves, by chance. Evenly by logarithm, with whole numbers only at the end."""
    stream = Stream.of(scenario.seed, "burst", "sizes")
    ratio = scenario.largest_bytes / scenario.smallest_bytes
    return [round(scenario.smallest_bytes * ratio ** stream.uniform()) for _ in range(scenario.ranks)]


def both(scenario: BurstScenario) -> tuple[BurstReport, BurstReport]:
    """Without admission, and with it: the same sizes, the same readers."""
    return Burst(scenario, admission=False).run(), Burst(scenario, admission=True).run()
