"""The recorder's ring: what a rank's collectives were, in shared memory beside its board.

Like the last lines of a ship's log: each collective has one line of 64 bytes, written when it is entered and completed
when it is left; the newest lines overwrite the oldest. Only the rank writes, and nobody waits: the reader (the agent,
or a person's tool) maps the same file and copies it while the rank hangs, sleeps or is stopped. A line carries its
number at both ends; where they differ, the writer was in the middle of it, and the line is left out.

What is told: group, sequence in the group, operation, bytes, step, phase, when entered, when left. Times are
microseconds since 1970 of the rank's host; only their order within a host, and the differences to the rank's own
history, are used to judge.

Rejected: a file that is written at a time-out (a stopped process writes none, which is the case that matters), a socket
(a rank that hangs answers none), PyTorch's own recorder (under gloo it writes no dump and knows no completion).
Limits: collectives that C++ issues by itself (the reducer of DDP, compiled functional collectives) are not seen; the
one at the end of each step is, so a rank is still placed to a step.
"""

import struct
from enum import IntEnum
from itertools import pairwise
from typing import Final

from trainmaster.core.base.value import Value

MAGIC: Final = 0x746D_7269_6E67_3031  # "tmring01"
RECORD: Final = struct.Struct("<qIhhqqqqihhq")
"""number, seq, group, op, bytes, entered, waited, left, step, phase, flags, number again."""
RECORD_SIZE: Final = RECORD.size
HEADER_SIZE: Final = 4096
CAPACITY: Final = 1024
"""Lines. A reference step has a dozen collectives, a large sharded model some hundred."""
SIZE: Final = HEADER_SIZE + CAPACITY * RECORD_SIZE
LEFT: Final = struct.Struct("<q")
WAITED_OFFSET: Final = 32
LEFT_OFFSET: Final = 40
_HEAD: Final = struct.Struct("<Qqqqqq")
_GROUP: Final = struct.Struct("<32siii12i")
_GROUPS_OFFSET: Final = 256
DATA_WAIT: Final = struct.Struct("<Q")
"""Completed steps and microseconds, 32 bits each, in one store."""
DATA_WAITS_OFFSET: Final = 64
DATA_WAITS: Final = (_GROUPS_OFFSET - DATA_WAITS_OFFSET) // DATA_WAIT.size
"""Steps whose waiting for data is kept."""
GROUPS_MAX: Final = (HEADER_SIZE - _GROUPS_OFFSET) // _GROUP.size
_LISTED: Final = 12

OPS: Final = (
    "?", "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "broadcast",
    "reduce", "gather", "scatter", "all_to_all", "all_to_all_single", "barrier", "all_gather_object",
    "broadcast_object_list", "gather_object", "scatter_object_list", "all_reduce_coalesced", "monitored_barrier",
    "all_gather_coalesced", "reduce_scatter_coalesced",
)  # fmt: skip
"""Names of operations; a record holds an index. New ones are added at the end."""

assert RECORD_SIZE == 64
assert SIZE % HEADER_SIZE == 0


class Slow(IntEnum):
    """Phases in which a rank takes its time for good reasons."""

    NONE = 0
    START = 1
    """Up to the end of the first step: imports, restore, compilation, first kernels."""
    SAVE = 2
    EVALUATION = 3
    COMPILE = 4
    OTHER = 5


class RingCall(Value, array_like=True):
    """A line of the ring."""

    seq: int
    """In its group, from 1."""
    group: int
    op: str
    bytes: int
    entered_us: int
    waited_us: int
    """Since when the rank waits for it; 0: it was issued and nobody waits."""
    left_us: int
    """0: not left."""
    step: int
    """Completed steps when it was entered."""
    slow: int
    """See `Slow`."""
    asynchronous: bool = False
    """Issued by one call, waited for by another."""


class RingGroup(Value, array_like=True):
    name: str
    count: int
    ranks: tuple[int, ...]
    """Empty: they are too many and too irregular to be kept."""


class RingReading(Value):
    """A ring at one moment."""

    pid: int
    written: int
    """Lines ever written."""
    slow: int
    slow_since_us: int
    groups: tuple[RingGroup, ...]
    calls: tuple[RingCall, ...]
    """Oldest first."""
    data_waits: tuple[tuple[int, int], ...] = ()
    """(completed steps, microseconds that the rank waited for the data of the next one), oldest first."""


class RankState(Value):
    """A rank as its agent sees it: process, board and ring."""

    rank: int
    state: str
    """Letter of /proc: R, S, D, T, t, Z; empty: there is no process."""
    wchan: str = ""
    cpu_s: float = 0.0
    """Processor time that it ever used."""
    phase: int = 0
    step: int = -1
    step_at: int = 0
    step_s: float = 0.0
    ring: RingReading | None = None
    note: str = ""


class Rings(Value):
    """The answer of an agent to the question `rings`."""

    schema: str = "trainmaster.rings/v1"
    host: str
    attempt: str
    epoch: int
    at: int
    """Instant of the look, by the clock of that host."""
    ranks: tuple[RankState, ...]


class Ring:
    """A view on the file's memory; see `training/recorder.py` for the writer's fast path."""

    def __init__(self, buffer: memoryview) -> None:
        assert len(buffer) >= SIZE, len(buffer)
        self._buffer = buffer
        self._groups = 0

    def clear(self, pid: int) -> None:
        self._buffer[:SIZE] = bytes(SIZE)
        _HEAD.pack_into(self._buffer, 0, MAGIC, CAPACITY, pid, 0, 0, 0)

    def is_valid(self) -> bool:
        magic, capacity, *_ = _HEAD.unpack_from(self._buffer, 0)
        return bool(magic == MAGIC and capacity == CAPACITY)

    def add_group(self, name: str, ranks: tuple[int, ...]) -> int:
        """Index of a new group; the last one is shared by all that do not fit."""
        if self._groups == GROUPS_MAX:
            return GROUPS_MAX - 1
        stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
        regular = all(right - left == stride for left, right in pairwise(ranks))
        listed = [*ranks[:_LISTED], *([-1] * _LISTED)][:_LISTED]
        start, step = (ranks[0], stride) if regular and ranks else (-1, 0)
        offset = _GROUPS_OFFSET + self._groups * _GROUP.size
        _GROUP.pack_into(self._buffer, offset, name.encode()[:32], len(ranks), start, step, *listed)
        self._groups += 1
        LEFT.pack_into(self._buffer, 24, self._groups)
        return self._groups - 1

    def mark_slow(self, slow: int, now_us: int) -> None:
        LEFT.pack_into(self._buffer, 40, now_us)
        LEFT.pack_into(self._buffer, 32, slow)

    def add_data_wait(self, step: int, wait_us: int) -> None:
        """The wait for the data of the step after `step` completed ones; of several, the last."""
        assert step >= 0
        packed = step % (1 << 32) << 32 | min(max(wait_us, 0), (1 << 32) - 2)
        DATA_WAIT.pack_into(self._buffer, DATA_WAITS_OFFSET + step % DATA_WAITS * DATA_WAIT.size, packed + 1)

    def read(self) -> RingReading:
        """What it says now; lines that are being written are left out."""
        data = bytes(self._buffer[:SIZE])
        _, capacity, pid, groups, slow, since = _HEAD.unpack_from(data, 0)
        assert capacity == CAPACITY
        calls = []
        for offset in range(HEADER_SIZE, SIZE, RECORD_SIZE):
            row = RECORD.unpack_from(data, offset)
            number = row[0]
            if number <= 0 or number != row[11] or (number - 1) % CAPACITY != (offset - HEADER_SIZE) // RECORD_SIZE:
                continue
            _, seq, group, op, size, entered, waited, left, step, phase, flags, _ = row
            name = OPS[op] if 0 <= op < len(OPS) else OPS[0]
            call = RingCall(
                seq=seq,
                group=group,
                op=name,
                bytes=size,
                entered_us=entered,
                waited_us=waited,
                left_us=left,
                step=step,
                slow=phase,
                asynchronous=bool(flags & 1),
            )
            calls.append((number, call))
        calls.sort(key=lambda row: row[0])
        return RingReading(
            pid=pid,
            written=calls[-1][0] if calls else 0,
            slow=slow,
            slow_since_us=since,
            groups=tuple(_group(data, index) for index in range(min(max(groups, 0), GROUPS_MAX))),
            calls=tuple(call for _, call in calls),
            data_waits=_data_waits(data),
        )


def _data_waits(data: bytes) -> tuple[tuple[int, int], ...]:
    """What is there; an empty place holds zero, so values are stored plus one."""
    places = range(DATA_WAITS_OFFSET, _GROUPS_OFFSET, DATA_WAIT.size)
    packed = [value - 1 for place in places if (value := DATA_WAIT.unpack_from(data, place)[0])]
    return tuple(sorted((value >> 32, value & 0xFFFF_FFFF) for value in packed))


def _group(data: bytes, index: int) -> RingGroup:
    name, count, start, step, *listed = _GROUP.unpack_from(data, _GROUPS_OFFSET + index * _GROUP.size)
    ranks: tuple[int, ...] = ()
    if start >= 0 and 0 < count <= 1_000_000:
        ranks = tuple(start + step * place for place in range(count))
    elif 0 < count <= _LISTED:
        ranks = tuple(listed[:count])
    return RingGroup(name=name.rstrip(b"\0").decode(errors="replace"), count=count, ranks=ranks)
