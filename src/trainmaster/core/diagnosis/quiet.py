"""Which lines of a log can tell anything, found at the speed of a search for substrings.

Nearly all lines of a rank's log tell of steps that went well, and asking each of them what it is costs twenty patterns.
So a line is first brought to its *shape*: lower case, without digits. Of the shapes, which are few where a program
prints the same words with other numbers, each is asked once whether it holds a word without which no pattern can match
(`NEEDLES`). Only lines of the others are read.

The rule that keeps answers as they are: whatever a pattern of `remarks` or `watchdog` matches has a needle in its
shape. A test draws texts from the patterns themselves and holds the needles against them. Rejected: one large pattern
for all words, which is slower than looking for each of them, and reading only the end of a file, where the first cause
does not stand.
"""

from collections.abc import Sequence
from typing import Final

CHUNK_LINES: Final = 1 << 16
SHAPES_MAX: Final = 1 << 18
"""Shapes that are remembered; then they are forgotten, and asked again."""
_LOST: Final = (b"closed", b"timeout", b"lost")
_ENDED: Final = (b"complete", b"finished", b"done", b"ended", b"over")
NEEDLES: Final[tuple[tuple[bytes, ...], ...]] = (
    (b"traceback (most recent call last):",),
    (b"watchdog caught",),
    (b"watchdog got stuck",),
    (b"watchdog thread",),
    (b"stack trace of the",),
    (b"last enqueued",),
    (b"mismatch between collectives",),
    (b"monitoredbarrier",),
    (b"stalled ops:",),
    (b"op.preamble",),
    (b"address already in use",),
    (b"eaddrinuse",),
    (b"errno",),
    (b"oom-kill",),
    (b"oomkilled",),
    (b"out of memory",),
    (b"outofmemoryerror",),
    (b"memory cgroup out",),
    (b"connectfullmesh",),
    (b"connection refused",),
    (b"connection closed",),
    (b"connection reset",),
    (b"connection was",),
    (b"so_error:",),
    (b"uncorrectable",),
    (b"xid",),
    (b"fallen off",),
    (b"gpu is lost",),
    (b"gpu has been lost",),
    (b"device unavailable",),
    (b"hardware error",),
    (b"machine check",),
    (b"cuda error",),
    (b"bus error",),
    (b"remap", b"fail"),
    (b"no cuda-capable",),
    (b"got completion",),
    (b"status", b"error"),
    (b"net/ib", b"error", b"fail"),
    (b"net/socket", b"error", b"fail"),
    (b"transport retry",),
    (b"port error",),
    (b"_wc_retry",),
    (b"failed to check the",),
    (b"process group has not",),
    (b"terminate called",),
    (b"has shut down too early",),
    (b"processgroup", b"destruct", b"shutdown", b"abort"),
    (b"destroying process group",),
    (b"rendezvous", b"error"),
    (b"cd store has failed",),
    (b"client socket",),
    (b"tcpstore", b"timed out", b"refused", b"failed"),
    (b"exitcode",),
    (b"exit code",),
    (b"died with",),
    (b"killed by signal",),
    (b"signal", b"received"),
    (b"broken pipe",),
    (b"peer closed",),
    (b"remote process",),
    (b"ncclremoteerror",),
    (b"communicator was aborted",),
    (b"collective operation timeout",),
    (b"pair closure",),
    (b"socket", *_LOST),
    (b"bytes failed",),
    (b"store", *_LOST),
    (b"timed out waiting",),
    (b"lost its peer",),
    (b"distnetworkerror",),
    (b"diststoreerror",),
    (b"distbackenderror",),
    (b"nccl error",),
    (b"nccl timeout",),
    (b"torch_nccl",),
    (b"childfailederror",),
    (b"signalexception",),
    (b"ncclsystemerror",),
    (b"ncclinternalerror",),
    (b"ncclunhandledcudaerror",),
    (b"keyboardinterrupt",),
    (b"systemexit",),
    (b"training", *_ENDED),
    (b"max_", b"reached"),
    (b"reached max",),
    (b"all steps",),
    (b"job", b"complete", b"finished"),
    (b"final", b"saved", b"written"),
    (b"last model", b"saved", b"written"),
    (b"last checkpoint", b"saved", b"written"),
    (b"end of training",),
    (b"train loop", *_ENDED),
    (b"exiting",),
    (b"finished",),
    (b"reached the last step",),
)
"""Of each row the first, and one of the others if there are any, must stand in a shape."""
_DIGITS: Final = b"0123456789"


class Shapes:
    """Remembers which shapes tell something."""

    def __init__(self) -> None:
        self._quiet: set[bytes] = set()
        self._telling: set[bytes] = set()

    def telling(self, lines: Sequence[str]) -> list[int]:
        """The places of the lines that may tell something, in order."""
        found: list[int] = []
        for start in range(0, len(lines), CHUNK_LINES):
            text = "\n".join(lines[start : start + CHUNK_LINES])
            shapes = text.encode("utf-8", "replace").lower().translate(None, _DIGITS).split(b"\n")
            self._judge(set(shapes))
            telling = self._telling
            found += [start + place for place, shape in enumerate(shapes) if shape in telling]
        return found

    def _judge(self, shapes: set[bytes]) -> None:
        if len(self._quiet) + len(self._telling) > SHAPES_MAX:
            self._quiet.clear()
            self._telling.clear()
        new = shapes - self._quiet - self._telling
        whole = b"\n".join(new)
        rows = [row for row in NEEDLES if row[0] in whole]
        telling = {shape for shape in new if _is_summary(shape) or any(_has(shape, row) for row in rows)}
        self._telling |= telling
        self._quiet |= new - telling


def _is_summary(shape: bytes) -> bool:
    """The head of a failure in torchrun's table."""
    return shape.rstrip().endswith(b"[]:")


def _has(shape: bytes, row: tuple[bytes, ...]) -> bool:
    return row[0] in shape and (len(row) == 1 or any(word in shape for word in row[1:]))
