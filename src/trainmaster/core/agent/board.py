"""The board: one page of shared memory between an agent and a worker.

The worker writes where it is (phase, step, loss, seconds spent), the agent writes what it asks for (checkpoint, yield).
Neither waits for the other, no socket is touched in a training step, and the page outlives a dead worker, so the last
step is known after a SIGKILL. A page is a file of `SIZE` bytes on a memory file system, made by the agent before the
launch and mapped by both; this module holds the layout and works on any writable buffer, so it does no I/O itself.

Single fields of eight bytes are written in one store and read in one load on every platform that we run on; there is
exactly one writer a field. `SEQUENCE` is raised after the worker's other fields, so a reader that sees it move sees at
least the values of that move.
"""

import struct
from enum import IntEnum
from typing import Final

from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value

SIZE: Final = 4096
MAGIC: Final = 0x746D_626F_6172_6431  # "tmboard1"


class Phase(IntEnum):
    """Where a worker is. Only a script that uses `trainmaster.training` moves past SPAWNED."""

    CREATED = 0  # the agent made the page; no process yet
    SPAWNED = 1  # the process exists
    ATTACHED = 2  # the script opened a training session
    GROUPED = 3  # the process group stands
    RESTORED = 4  # state is restored (or fresh)
    TRAINING = 5  # the first step of this epoch is done
    SAVING = 6  # inside a checkpoint save
    YIELDED = 7  # saved on request and leaving; exit code 0 follows
    FINISHED = 8  # the script says that the job is done; exit code 0 follows


class Request(IntEnum):
    """What the agent asks of the worker; looked at once a step, agreed by all ranks."""

    NONE = 0
    CHECKPOINT = 1  # save at the next step boundary and go on
    YIELD = 2  # save at the next step boundary and leave


class Origin(IntEnum):
    """Where the state of an epoch came from: the farthest place that a rank took its state from."""

    NOWHERE = 0  # it began anew, or is not restored yet
    OWN_MEMORY = 1  # most of it from snapshots of this host's ranks
    PEER_MEMORY = 2  # most of it was sent by another host, or is a copy that this one kept
    STORAGE = 3


# name -> (offset, struct format). Fields of the worker first, then fields of the agent.
_FIELDS: Final[dict[str, tuple[int, str]]] = {
    "magic": (0, "<Q"),
    "sequence": (8, "<Q"),
    "pid": (16, "<q"),
    "phase": (24, "<q"),
    "step": (32, "<q"),  # last completed step, counted from 1; 0 = none of this job; -1 = unknown
    "step_at": (40, "<q"),  # instant of its end, microseconds
    "restored_step": (48, "<q"),  # step that this epoch started from; -1 until RESTORED
    "published_step": (56, "<q"),  # newest checkpoint that this rank saw published; -1 = none
    "failed_saves": (64, "<q"),  # saves that ended without a publish
    "loss": (72, "<d"),
    "step_s": (80, "<d"),  # duration of the last step without saves
    "save_s": (88, "<d"),  # seconds spent in saves in this epoch
    "samples": (96, "<q"),  # global samples consumed so far
    "spawned_at": (104, "<q"),  # instants of the phases, microseconds, 0 = not reached
    "attached_at": (112, "<q"),
    "grouped_at": (120, "<q"),
    "restored_at": (128, "<q"),
    "first_step_at": (136, "<q"),
    "last_save_s": (144, "<d"),  # how long the newest save held the steps up
    "last_lag_s": (2024, "<d"),  # of a save from a snapshot: from that until it was published; 0 = the ranks wrote it
    "origin": (152, "<q"),
    "every_steps": (2040, "<q"),  # written by the agent: save every so many steps; 0 = as the environment says
    "request": (2048, "<q"),  # written by the agent
    "request_number": (2056, "<q"),  # written by the agent; a new number is a new request
    "note_length": (2064, "<q"),  # worker: bytes of the UTF-8 note that follows (last save error, fallback, ...)
}
_NOTE_OFFSET: Final = 2072
NOTE_LIMIT: Final = SIZE - _NOTE_OFFSET


class Reading(Value):
    """What a board says at one moment."""

    pid: int
    phase: Phase
    step: int
    step_at: Instant
    restored_step: int
    published_step: int
    failed_saves: int
    loss: float
    step_s: float
    save_s: float
    samples: int
    spawned_at: Instant
    attached_at: Instant
    grouped_at: Instant
    restored_at: Instant
    first_step_at: Instant
    last_save_s: float
    last_lag_s: float
    origin: Origin
    every_steps: int
    request: Request
    request_number: int
    note: str


class Board:
    """A view on a page. `buffer` is any writable buffer of at least `SIZE` bytes (an mmap, a bytearray)."""

    def __init__(self, buffer: memoryview) -> None:
        assert len(buffer) >= SIZE, len(buffer)
        self._buffer = buffer

    def clear(self) -> None:
        """Makes a fresh page (the agent, before the launch)."""
        self._buffer[:SIZE] = bytes(SIZE)
        for name in ("restored_step", "published_step"):
            self.put(name, -1)
        self.put("magic", MAGIC)

    def is_valid(self) -> bool:
        return self.get("magic") == MAGIC

    def put(self, name: str, value: int | float) -> None:
        offset, form = _FIELDS[name]
        struct.pack_into(form, self._buffer, offset, value)

    def get(self, name: str) -> int | float:
        offset, form = _FIELDS[name]
        value: int | float = struct.unpack_from(form, self._buffer, offset)[0]
        return value

    def integer(self, name: str) -> int:
        return int(self.get(name))

    def publish(self) -> None:
        """The worker calls it after a group of puts."""
        self.put("sequence", self.integer("sequence") + 1)

    def put_note(self, text: str) -> None:
        data = text.encode()[:NOTE_LIMIT]
        self._buffer[_NOTE_OFFSET : _NOTE_OFFSET + len(data)] = data
        self.put("note_length", len(data))

    def note(self) -> str:
        length = min(max(self.integer("note_length"), 0), NOTE_LIMIT)
        return bytes(self._buffer[_NOTE_OFFSET : _NOTE_OFFSET + length]).decode(errors="replace")

    def ask(self, request: Request) -> int:
        """The agent's side: asks for something; returns the number of the request."""
        number = self.integer("request_number") + 1
        self.put("request", int(request))
        self.put("request_number", number)
        return number

    def read(self) -> Reading:
        values = {name: self.get(name) for name in _FIELDS if name not in ("magic", "sequence", "note_length")}
        values["phase"] = Phase(int(values["phase"]))
        values["origin"] = Origin(int(values["origin"]))
        values["request"] = Request(int(values["request"]))
        return Reading(**values, note=self.note())  # type: ignore[arg-type]
