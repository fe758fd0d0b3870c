"""Booting this host anew.

The order matters: who asks and why is on the disk before the command runs that takes the host down, since nobody is
there afterwards to write it. What decides is in `core.agent.reboot`. The command belongs to whoever installs the agent
(`systemctl reboot`, or what a local fleet has instead); it runs in a session of its own, so that it outlives us.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Final

from trainmaster.core.agent import reboot, steps
from trainmaster.core.agent.contract import PRIVATE_PREFIX
from trainmaster.core.agent.reboot import RebootRecord
from trainmaster.core.agent.steps import Numbers
from trainmaster.core.base.ids import BootId
from trainmaster.core.base.time import SECOND, Duration, in_seconds
from trainmaster.core.base.value import decode, encode
from trainmaster.core.effects import RebootHost
from trainmaster.live.agent.attempt import EffectFailed, NotRun
from trainmaster.live.agent.files import now, read_or_none, write_whole
from trainmaster.live.agent.paths import HostPaths

GOING_DOWN: Final = Duration(60 * SECOND)
"""How long the host may take to end its services, us among them, before the reboot counts as not happening."""


class Rebooter:
    def __init__(
        self, paths: HostPaths, boot: BootId, command: tuple[str, ...], going_down: Duration = GOING_DOWN
    ) -> None:
        self._paths, self._boot, self._command, self._going_down = paths, boot, command, going_down

    async def reboot(self, effect: RebootHost, who_is_busy: Callable[[], str]) -> tuple[str, Numbers]:
        """(detail, numbers) once the host runs under another boot id; in the life of one agent process this returns
        only if the host was booted before. `who_is_busy`: what runs here and would be lost, or nothing.
        Raises `NotRun` or `EffectFailed`."""
        trouble = ""
        while True:
            action = reboot.next_reboot(effect, self._record(), self._boot, now())
            if isinstance(action, steps.End):
                if action.outcome != "done":
                    raise EffectFailed(f"{action.detail}{trouble}", action.numbers)
                return action.detail, action.numbers
            if busy := who_is_busy():
                raise NotRun(f"not rebooted: {busy}")
            if not self._command:
                raise NotRun("this agent has no command that reboots its host (--reboot-command)")
            self._write(action)
            trouble = await self._go_down()

    def _record(self) -> RebootRecord | None:
        """Raises `EffectFailed` if it is there and can't be read: then it is not known whether the host was booted."""
        try:
            data = read_or_none(self._paths.reboot)
            return None if data is None else decode(data, RebootRecord)
        except (OSError, ValueError) as error:
            raise EffectFailed(f"{self._paths.reboot} can't be read: {error}") from error

    def _write(self, record: RebootRecord) -> None:
        try:
            write_whole(self._paths.reboot, encode(record), durable=True)
        except OSError as error:
            why = f"who asks for it can't be written ({error.strerror or error})"
            raise EffectFailed(f"not rebooted: {why}") from error

    async def _go_down(self) -> str:
        """Runs the command and waits for the end of this process. If that does not come: what the command said, to be
        added to a sentence."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE_PREFIX)}
        deadline = asyncio.get_running_loop().time() + in_seconds(self._going_down)
        try:
            with self._paths.reboot_log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *steps.words_of(self._command, sys.executable),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=own,
                    start_new_session=True,
                )
        except OSError as error:
            return f"; {self._command[0]} can't be started: {error.strerror}"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), in_seconds(self._going_down))
        if process.returncode is None:
            process.kill()
            await process.wait()
            return f"; {self._command[0]} did not end within {in_seconds(self._going_down):g} s"
        if process.returncode != 0:
            return f"; {self._command[0]} ended with {process.returncode}, see {self._paths.reboot_log}"
        await asyncio.sleep(max(0.0, deadline - asyncio.get_running_loop().time()))
        return f"; {self._command[0]} ended with 0, and nothing followed"
