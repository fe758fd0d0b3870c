"""Operations on this host: rows of steps that really run.

What comes next is decided by `core.agent.steps`; here are the markers, the processes and the output.

    HOST/operations/OPERATION/LEG-EFFECT/markers.jsonl     what was begun and what ended
                                         0-NAME.log        the output of a step
                                         observe.log       that of the observation

An effect is one request, so its markers are its own: the same effect never runs a completed step twice, whatever
became of the journal, while a new request of the same operation starts from the first step.
"""

import asyncio
import logging
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from trainmaster.core.agent import steps
from trainmaster.core.agent.steps import Numbers, Row, Seen, StepEnd
from trainmaster.core.base.ids import BootId, EffectId, OperationId
from trainmaster.core.effects import RunSteps, StepCommand
from trainmaster.live.agent.attempt import GONE_S, EffectFailed
from trainmaster.live.agent.command import Command
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.agent.processes import ProcessName, end_tree
from trainmaster.live.agent.row_file import MARKERS, Marker, RowFile

_log = logging.getLogger(__name__)
KEPT: Final = 256
"""Operations whose markers and output stay, newest first. A repeat is on its way for seconds, people look for weeks."""
FORGET_EVERY: Final = 32
"""Rows between two looks for what is too old."""


class Operations:
    """The rows of one host. Owned by one agent."""

    def __init__(self, paths: HostPaths, boot: BootId) -> None:
        self._paths, self._boot = paths, boot
        self._running: dict[EffectId, OperationId] = {}
        self._rows = 0

    def running(self) -> tuple[OperationId, ...]:
        return tuple(self._running.values())

    def adopt(self) -> None:
        """Ends what steps of an earlier agent process left running; blocks. Rows go on when they are asked for."""
        leaders: list[ProcessName | None] = [None]
        for path in sorted(self._paths.operations.glob(f"*/*/{MARKERS}")):
            try:
                leaders.append(RowFile(path.parent).left_running(self._boot))
            except OSError as error:
                _log.error("%s can't be read: %s", path, error)
        mark = frozenset({f"{steps.HOST_DIR}={self._paths.host_dir}".encode()})
        for leader in dict.fromkeys(leaders):
            left = end_tree(leader, mark, GONE_S)
            if left:
                _log.error("processes of earlier operations do not end: %s", left)
        self._forget()

    def _forget(self) -> None:
        """Removes the oldest operations. Trouble is logged: it costs space, nothing else."""
        try:
            found = sorted(self._paths.operations.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for path in found[:-KEPT]:
                if path.name not in self._running.values():
                    shutil.rmtree(path)
        except FileNotFoundError:
            return  # nothing was done here yet
        except OSError as error:
            _log.error("%s can't be tidied up: %s", self._paths.operations, error)

    async def run(self, effect: RunSteps) -> tuple[str, Numbers]:
        """(detail, numbers) of a row that is done. Raises `EffectFailed`."""
        if steps.does_nothing(effect):
            end = steps.next_action(effect, steps.skip_nothing(effect, Row()))
        else:
            self._running[effect.id] = effect.operation
            try:
                end = await self._run(effect)
            except OSError as error:
                raise EffectFailed(f"the markers of {effect.operation} can't be read: {error}") from error
            finally:
                del self._running[effect.id]
        assert isinstance(end, steps.End), end
        if end.outcome != "done":
            raise EffectFailed(end.detail, end.numbers)
        return end.detail, end.numbers

    async def _run(self, effect: RunSteps) -> steps.End:
        file = await asyncio.to_thread(RowFile, self._paths.row(effect.operation, effect.leg, effect.id))
        if self._rows % FORGET_EVERY == 0:
            await asyncio.to_thread(self._forget)
        self._rows += 1
        row = steps.known_row(effect, file.begun(), file.ends())
        while True:
            match steps.next_action(effect, row):
                case steps.Run(step=index):
                    row = steps.skip_nothing(effect, row.ended(await self._step(effect, file, index)))
                case steps.Look():
                    row = row.but(seen=await self._look(effect, file.directory))
                case steps.End() as end:
                    return end

    async def _step(self, effect: RunSteps, file: RowFile, index: int) -> StepEnd:
        """Runs a step between its markers. Raises `EffectFailed` if those can't be written."""
        step = effect.steps[index]
        marker = Marker(step=index, name=step.name)
        try:
            await asyncio.to_thread(file.append, marker.but(begun=self._boot), True)
        except OSError as error:
            why = f"its marker can't be written ({error.strerror or error})"
            raise EffectFailed(f"step {step.name} was not started: {why}", {"step": index}) from error

        def started(process: ProcessName) -> None:
            file.append(marker.but(process=process), False)

        command = self._command(effect, step.name, step.command, file.directory / f"{index}-{_as_file(step)}.log")
        try:
            end = await command.run(step.deadline, False, started)
            await asyncio.to_thread(file.append, marker.but(end=end), True)
        except OSError as error:
            why = f"what became of it can't be written ({error.strerror or error})"
            raise EffectFailed(f"step {step.name} may have run, but {why}", {"step": index}) from error
        return end

    async def _look(self, effect: RunSteps, directory: Path) -> Seen:
        assert effect.observe is not None, effect
        observe = effect.observe
        command = self._command(effect, steps.OBSERVATION, observe.command, directory / "observe.log")
        end = await command.run(observe.deadline, True, _nothing)
        return steps.seen(observe, end, command.output)

    def _command(self, effect: RunSteps, name: str, words: tuple[str, ...], log: Path) -> Command:
        host_dir = self._paths.host_dir
        environment = steps.environment(os.environ, host_dir, effect.operation, name, os.getcwd())
        return Command(steps.words_of(words, sys.executable), environment, Path(host_dir), log)


def _as_file(step: StepCommand) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", step.name)[:64]


def _nothing(process: ProcessName) -> None:
    """An observation changes nothing, so nobody has to know its process after a crash."""
