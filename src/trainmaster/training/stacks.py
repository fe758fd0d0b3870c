"""Stacks of this process on request, without any code of it running: `faulthandler` writes them from a signal handler.

A file beside the board takes them; the agent empties it, sends the signal, and reads. The signal is a real-time one,
which no launcher or library uses. A process that is stopped does not answer before it goes on; a debugger's tool
(py-spy) sees it even then, and the agent prefers it where there is one.
"""

import faulthandler
import os
import sys
from pathlib import Path
from typing import Final

from trainmaster.core.diagnosis.stacks import SIGNAL_ABOVE_RTMIN

_LARGEST_SIGNAL: Final = 64


def answer_for_stacks(board: Path | None) -> None:
    """Lets the agent ask this process for its stacks."""
    if board is None:
        return
    import signal

    number = signal.SIGRTMIN + SIGNAL_ABOVE_RTMIN
    assert number <= _LARGEST_SIGNAL, number
    try:
        handle = os.open(beside(board), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        print(f"trainmaster: stacks of this process can't be asked for: {error}", file=sys.stderr, flush=True)
        return
    faulthandler.register(number, handle, all_threads=True)


def beside(board: Path) -> Path:
    """Where the stacks of a board's rank are written."""
    return board.with_name(board.name.replace("board", "stacks", 1))
