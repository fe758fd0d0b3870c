"""Runs a task in a process of its own, under a deadline that grows with the devices, and says how far it is.

A process that gives no answer in time is ended with all that it started, and that it hung is what is known of the host:
a failure. So is one that the processor or the memory ended (SIGILL, SIGBUS, SIGSEGV in a library that is the same
everywhere). One that was killed from outside (memory used up, most likely) was not run.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

import msgspec

from trainmaster.core.base.value import Value, encode
from trainmaster.core.health.verification.outcome import Outcome, Result, TaskReport, of_error, report

Progress = Callable[[float, str], None]
_BY_HARDWARE: Final = {signal.SIGILL, signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE}
_CHUNK: Final = 1 << 16


class Ask(Value):
    """Settings of all tasks; each reads its own."""

    host_dir: str = ""
    memory_dir: str = ""
    jobs_dir: str = ""
    budget_s: float = 0.0
    share: float = 0.05
    ranks: int = 0


class Line(Value):
    """What the child prints."""

    share: float = 0.0
    words: str = ""
    report: TaskReport | None = None


_decoder: Final = msgspec.json.Decoder(Line)


PROGRAM: Final = (sys.executable, "-m", "trainmaster.live.verification")


def run(
    task: str, ask: Ask, deadline_s: float, progress: Progress | None = None, program: Sequence[str] = PROGRAM
) -> TaskReport:
    """The task's report, whatever becomes of its process."""
    start = monotonic()
    process = subprocess.Popen(
        [*program, task, encode(ask).decode()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        found, errors = _read(process, start + deadline_s, progress)
        if found is not None:
            return found
        if process.poll() is None and monotonic() >= start + deadline_s:
            return _instead(task, Outcome.FAIL, f"no answer within {deadline_s:.0f} s", start)
        return _ended(task, process.wait(), errors, start)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def _read(process: "subprocess.Popen[bytes]", until: float, progress: Progress | None) -> tuple[TaskReport | None, str]:
    """The report, if it comes before that time on the monotonic clock, and what was said on stderr."""
    assert process.stdout is not None
    assert process.stderr is not None
    waiting, rest, errors = {process.stdout: b"", process.stderr: b""}, b"", b""
    while waiting and monotonic() < until:
        ready, _, _ = select.select(list(waiting), [], [], max(0.0, until - monotonic()))
        for pipe in ready:
            data = os.read(pipe.fileno(), _CHUNK)
            if not data:
                del waiting[pipe]
            elif pipe is process.stderr:
                errors = (errors + data)[-_CHUNK:]
            else:
                *lines, rest = (rest + data).split(b"\n")
                for text in lines:
                    line = _decoder.decode(text)
                    if line.report is not None:
                        return line.report, ""
                    if progress is not None:
                        progress(line.share, line.words)
    return None, errors.decode(errors="replace")


def _ended(task: str, code: int, errors: str, start: float) -> TaskReport:
    last = errors.strip().splitlines()[-1:] or ["it said nothing"]
    if code >= 0:
        return _instead(task, of_error(last[0]), f"the check ended with {code}: {last[0]}", start)
    name = signal.Signals(-code).name
    outcome = Outcome.FAIL if -code in _BY_HARDWARE else Outcome.NOT_RUN
    return _instead(task, outcome, f"the check was ended by {name}", start)


def _instead(task: str, outcome: Outcome, sentence: str, start: float) -> TaskReport:
    result = Result(task=task, part=task, unit="host", outcome=outcome, sentence=sentence)
    return report(task, [result], monotonic() - start)
