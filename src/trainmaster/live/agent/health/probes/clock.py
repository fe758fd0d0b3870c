"""The clock: whether anything keeps it right, how far off it may be, and whether it was set."""

import ctypes
import time
from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Probe, Skipped

PROBE = Probe(
    name="clock",
    what="the clock: synchronised, how far off it may be, set meanwhile",
    unreadable="the state of the clock can't be read",
    module="trainmaster.live.agent.health.probes.clock",
)


class _Timex(ctypes.Structure):
    """The head of `struct timex`, and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def look(root: Path, item: str) -> str:
    if root != Path("/"):
        raise Skipped("the clock is not below the root that is looked at")
    told = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(told))
    if state < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    return "\n".join((
        f"adjtimex state: {state}", f"adjtimex maxerror: {told.maxerror}", f"adjtimex esterror: {told.esterror}",
        f"clock real: {time.time_ns() // 1000}", f"clock monotonic: {time.monotonic_ns() // 1000}",
    ))  # fmt: skip
