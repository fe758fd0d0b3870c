"""Finding the first error of a worker in what it left behind: an error record, or the end of its output.

A record is better: it has the type, the message, the line and the time. Ours is written by a forked worker; torch's
(`@record`, TORCHELASTIC_ERROR_FILE) is understood too. Without one, the last Python traceback in the output is read:
its last line is `Type: message`, the frame above is where it happened. Frames of libraries are passed over for the
location if a frame of the user's own code lies above them, since that is the line that the user can change.

Limit: a program that prints tracebacks of errors which it handled and then ends otherwise is blamed on the last one.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from trainmaster.core.base.time import Instant
from trainmaster.core.recovery.events import Failure

MESSAGE_LIMIT: Final = 500
_FRAME: Final = re.compile(r'\s*File "([^"]+)", line (\d+)')
_RAISED: Final = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
_PREFIX: Final = re.compile(r"^\[?rank\d+\]?:\s?")  # torch prints "[rank0]: " before each line of a traceback
_LIBRARY: Final = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>")
_START: Final = "Traceback (most recent call last):"


def is_library(path: str) -> bool:
    """Whether a source file belongs to an installed library rather than to the user."""
    return any(mark in path for mark in _LIBRARY)


def location(frames: Sequence[tuple[str, int]]) -> str:
    """FILE:LINE of the innermost frame of the user's code; of the innermost of all if there is none."""
    own = [frame for frame in frames if not is_library(frame[0])]
    chosen = own or list(frames)
    return f"{chosen[-1][0]}:{chosen[-1][1]}" if chosen else ""


def first_line(text: str) -> str:
    """The first line that says something, cut to `MESSAGE_LIMIT` characters."""
    stripped = text.strip()
    return stripped.splitlines()[0].strip()[:MESSAGE_LIMIT] if stripped else ""


def from_output(text: str, at: Instant) -> Failure | None:
    """The failure that the last traceback in the output tells; None if there is no whole traceback."""
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    starts = [index for index, line in enumerate(lines) if line.strip() == _START]
    if not starts:
        return None
    frames: list[tuple[str, int]] = []
    for line in lines[starts[-1] + 1 :]:
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append((frame.group(1), int(frame.group(2))))
        elif line and not line[0].isspace():
            raised = _RAISED.fullmatch(line.strip())
            if raised is None:
                return None
            name = raised.group(1).rpartition(".")[2]
            return Failure(
                at=at, exception=name, message=(raised.group(2) or "")[:MESSAGE_LIMIT], location=location(frames)
            )
    return None


def from_record(data: bytes, at: Instant) -> Failure | None:
    """The failure in an error record of ours or of torch's; None if the record is torn or of another kind."""
    try:
        record: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    if not isinstance(record, dict):
        return None
    if "exception" in record:
        try:
            return msgspec.convert(record, Failure)
        except msgspec.ValidationError:
            return None
    return _from_torch(record.get("message"), at)


def _from_torch(message: Any, at: Instant) -> Failure | None:
    if isinstance(message, str):
        return Failure(at=at, message=first_line(message))
    if not isinstance(message, dict) or not isinstance(message.get("message"), str):
        return None
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    told = from_output(stack, at) if isinstance(stack, str) else None
    raised = _RAISED.fullmatch(first_line(message["message"]))
    name, text = (raised.group(1), raised.group(2) or "") if raised else ("", first_line(message["message"]))
    return Failure(at=at, exception=name, message=text, location=told.location if told else "")


_ABORT: Final = 6
_THROWN: Final = "what():"
_SIGNALS: Final = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    16: "SIGSTKFLT",
    17: "SIGCHLD",
    18: "SIGCONT",
    19: "SIGSTOP",
    20: "SIGTSTP",
    21: "SIGTTIN",
    22: "SIGTTOU",
    23: "SIGURG",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    26: "SIGVTALRM",
    27: "SIGPROF",
    28: "SIGWINCH",
    29: "SIGIO",
    30: "SIGPWR",
    31: "SIGSYS",
}
"""Numbers as on Linux; the core does not import `signal`."""


def signal_name(number: int) -> str:
    """SIGKILL for 9; SIG34 style for numbers without a name."""
    return _SIGNALS.get(number, f"SIG{number}")


def of_exit(record: bytes | None, output: str, exit_code: int | None, signal: int | None, at: Instant) -> Failure:
    """The failure of a worker that ended badly, from the best evidence that there is."""
    told = from_record(record, at) if record is not None else None
    if told is not None:
        return told
    if signal is not None and signal != _ABORT:
        return Failure(at=at, exception=signal_name(signal), message=f"killed by {signal_name(signal)}")
    told = from_output(output, at)
    words = _last_words(output)
    if told is not None and not (signal is not None and words.startswith(_THROWN)):
        return told
    if signal is not None:  # an abort says why in its last line ("terminate called ...", a failed assertion)
        return Failure(at=at, exception=signal_name(signal), message=words or "aborted")
    return Failure(at=at, message=words or f"exit code {exit_code} without a word")


def _last_words(output: str) -> str:
    """The last line; of a C++ exception that ended the process what it says, whatever other threads print after it."""
    spoken = [line.strip() for line in output.splitlines() if line.strip()]
    thrown = [line for line in spoken if line.startswith(_THROWN)]
    return (thrown or spoken)[-1][:MESSAGE_LIMIT] if spoken else ""
