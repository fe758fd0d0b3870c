"""One command of an operation: a process group of its own, a deadline, and nothing that is left behind.

Past its deadline the group gets SIGTERM, `TERM_GRACE_S`, and then everything that the command started gets SIGKILL:
also what left the group (see `processes.tree_of`). The same sweep follows a command that ended by itself. What shall
outlive it is started through the host's service manager, which is a parent of its own.

The leader is not reaped before the sweep, so that its number can't be given to somebody else meanwhile.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from trainmaster.core.agent import steps
from trainmaster.core.agent.steps import StepEnd
from trainmaster.core.base.time import Duration, in_seconds, seconds
from trainmaster.live.agent.attempt import GONE_S, EffectFailed
from trainmaster.live.agent.processes import ProcessName, end_tree, kill_group, name_of
from trainmaster.live.agent.sink import OutputSink

TERM_GRACE_S: Final = 2.0
"""Enough to remove a lock file. What a step needs longer belongs into its deadline."""
OUTPUT_LIMIT: Final = 262_144
"""Bytes of output that are kept of one step, and its last `TAIL_BYTES`."""
HEAD_BYTES: Final = 4_096
_MARKED: Final = (steps.HOST_DIR, steps.OPERATION, steps.STEP)


class BoundedSink(OutputSink):
    """Keeps the first bytes of the output in the log, and its end; says how much is missing between."""

    def __init__(self, descriptor: int, path: Path, limit: int) -> None:
        super().__init__(descriptor, path)
        self.head = b""
        self._room, self._left_out = limit, 0

    def _write(self, data: bytes) -> None:
        self.head += data[: HEAD_BYTES - len(self.head)]
        fits = data[: self._room]
        self._room -= len(fits)
        self._left_out += len(data) - len(fits)
        if fits:
            super()._write(fits)

    def close(self) -> None:
        if self._left_out:
            end = self._tail[-self._left_out :]
            notice = f"\n[trainmaster: {self._left_out - len(end)} bytes of output left out]\n"
            super()._write(notice.encode() + bytes(end))
            self._left_out = 0
        super().close()

    def last_line(self) -> str:
        lines = [line.strip() for line in self.tail().splitlines() if line.strip()]
        return lines[-1] if lines else ""


class Command:
    """Runs once."""

    def __init__(self, words: tuple[str, ...], environment: Mapping[str, str], directory: Path, log: Path) -> None:
        self._words, self._environment, self._directory, self._log = words, environment, directory, log
        self._mark = frozenset(f"{name}={environment[name]}".encode() for name in _MARKED)
        self._readers: list[BoundedSink] = []
        self.output = ""
        """The first bytes of stdout, once it ended."""

    async def run(self, deadline: Duration, apart: bool, started: Callable[[ProcessName], None]) -> StepEnd:
        """`apart`: stderr is not mixed into stdout. `started` is called with the process; what it raises ends the
        command. Raises `EffectFailed` if something does not end after SIGKILL."""
        began_s = asyncio.get_running_loop().time()
        try:
            process = self._start(apart)
        except (OSError, ValueError) as error:
            self._close()
            return StepEnd(took=Duration(0), trouble=f"{self._words[0]}: {getattr(error, 'strerror', None) or error}")
        leader = name_of(process.pid)
        assert leader is not None, "a child that nobody reaped has gone"
        try:
            started(leader)
            overdue = not await self._ends(process.pid, leader, in_seconds(deadline))
            left = await asyncio.to_thread(end_tree, leader, self._mark, GONE_S)
        except BaseException:  # also when we are cancelled because the agent ends: nothing may stay, whoever waits
            if not end_tree(leader, self._mark, GONE_S):
                process.wait()
            self._close()
            raise
        self._close()
        if left:
            pids = ", ".join(str(name.pid) for name in left)
            raise EffectFailed(f"processes {pids} do not end after SIGKILL")
        process.wait()
        took = seconds(asyncio.get_running_loop().time() - began_s)
        return self._end(process.returncode, overdue, took)

    def _start(self, apart: bool) -> "subprocess.Popen[bytes]":
        self._log.parent.mkdir(parents=True, exist_ok=True)
        output = self._pipe(self._log)
        errors = self._pipe(self._log.with_suffix(".err")) if apart else output
        try:
            return subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=self._directory,
                env=dict(self._environment),
                start_new_session=True,
            )
        finally:
            for descriptor in {output, errors}:
                os.close(descriptor)

    def _pipe(self, log: Path) -> int:
        """The writing end of a pipe whose content goes to a sink."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        sink = BoundedSink(reading, log, OUTPUT_LIMIT)
        self._readers.append(sink)
        asyncio.get_running_loop().add_reader(reading, self._copy, sink, reading)
        return writing

    def _copy(self, sink: BoundedSink, reading: int) -> None:
        if not sink.copy():
            asyncio.get_running_loop().remove_reader(reading)

    def _close(self) -> None:
        """Takes what is there; whoever still holds the other end is not waited for."""
        for sink in self._readers:
            assert sink.descriptor is not None
            asyncio.get_running_loop().remove_reader(sink.descriptor)
            sink.copy()
            sink.close()
        if self._readers:
            self.output = self._readers[0].head.decode(errors="replace")

    async def _ends(self, pid: int, leader: ProcessName, deadline_s: float) -> bool:
        """Whether the leader ended within its deadline; else it was asked to end and had its grace."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        handle = os.pidfd_open(pid)
        loop.add_reader(handle, ended.set)
        try:
            try:
                await asyncio.wait_for(ended.wait(), deadline_s)
                return True
            except TimeoutError:
                kill_group(leader, signal.SIGTERM)
            try:
                await asyncio.wait_for(ended.wait(), TERM_GRACE_S)
            except TimeoutError:
                return False
            return False
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    def _end(self, code: int, overdue: bool, took: Duration) -> StepEnd:
        said = [line for sink in reversed(self._readers) if (line := sink.last_line())]
        return StepEnd(
            took=took,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            overdue=overdue,
            last_line=said[0] if said else "",
        )
