"""The part of the agent that watches the health of its host: the kernel's log as it is written, and probes by the
minute. It reports through the agent's outbox and answers nothing.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trainmaster.core.base.ids import BootId, HostId
from trainmaster.core.base.value import Value
from trainmaster.core.events import AgentReport
from trainmaster.core.health import kmsg
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.part import PartKind
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import UNKNOWN
from trainmaster.live.agent.health.judge import Judge
from trainmaster.live.agent.health.log_source import FileSource, KmsgSource, LogSource, up_us
from trainmaster.live.agent.health.log_watch import LogWatch
from trainmaster.live.agent.health.probes import PROBES
from trainmaster.live.agent.health.round import Rounds, Seen
from trainmaster.live.agent.health.teller import Teller
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.health.policyfile import load

KMSG: Final = "/dev/kmsg"
TOGETHER_S: Final = 1.0
"""Probes that are due within this time share a process."""


class HealthSettings(Value):
    """What an agent looks at."""

    kernel_log: str = KMSG
    """`/dev/kmsg`, or a file that is followed; empty: none."""
    facility: str = "kernel"
    """`user` also takes lines that programs wrote into `/dev/kmsg`. For tests only: any program can write there."""
    policy: str = ""
    """Rows of the site; empty: those that ship."""
    probes: tuple[str, ...] = tuple(PROBES)
    root: str = "/"
    """Below which `sys` and `proc` are looked for: a container has its host's elsewhere."""
    expected: dict[PartKind, int] = {}
    """How many parts of a kind there should be."""


@functools.cache
def policy_index(file: str) -> Index:
    """The policy, once for each process. Takes a tenth of a second. Raises `trainmaster.live.tomlfile.FileError`."""
    return Index(load(Path(file) if file else None))


class Monitor:
    def __init__(
        self, settings: HealthSettings, host: HostId, boot: BootId, paths: HostPaths, add: Callable[[AgentReport], None]
    ) -> None:
        self._settings, self._boot, self._paths = settings, boot, paths
        self._teller = Teller(host, boot, paths.health_told, add)
        self._log: LogWatch | None = None
        self._soon = asyncio.Event()

    def operated(self) -> None:
        """An operation was carried out on the host: events that come now are news, and states are looked at anew."""
        self._soon.set()
        if self._log is not None:
            self._log.settle()

    async def run(self) -> None:
        """Until it is cancelled. What is not expected is logged and told: then nobody looks."""
        try:
            async with asyncio.TaskGroup() as both:
                if self._settings.kernel_log:
                    self._log = LogWatch(self._source(), self._paths.log_place, self._index, self._teller)
                    both.create_task(self._log.run())
                if self._settings.probes:
                    both.create_task(self._look())
        except* Exception as errors:
            self._teller.state("health", [_defect(errors.exceptions[0])])
            raise

    def _index(self) -> Index:
        return policy_index(self._settings.policy)

    async def _look(self) -> None:
        """Runs each probe when it is due; all that are due together, in one round."""
        judge = Judge(await asyncio.to_thread(self._index), self._paths.health_memory, self._settings.expected)
        rounds = Rounds(Path(self._settings.root))
        due_s = dict.fromkeys(self._settings.probes, 0.0)
        while True:
            start_s = asyncio.get_running_loop().time()
            names = [name for name, at_s in due_s.items() if at_s <= start_s + TOGETHER_S]
            await rounds.run(names, functools.partial(self._tell, judge))
            due_s |= {name: start_s + PROBES[name].period_s for name in names}
            wait_s = max(0.0, min(due_s.values()) - asyncio.get_running_loop().time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):  # `wait_for` may take a cancellation for an answer
                    await self._soon.wait()
                self._soon.clear()
                due_s = dict.fromkeys(due_s, 0.0)

    def _tell(self, judge: Judge, name: str, seen: Seen) -> None:
        judged = judge.judge(name, seen, up_us())
        self._teller.state(name, judged.findings, judged.unread)
        if judge.parts is not None:
            self._teller.parts(judge.chassis, judge.parts)

    def _source(self) -> LogSource:
        if self._settings.kernel_log == KMSG:
            admitted = frozenset({kmsg.KERNEL, kmsg.USER} if self._settings.facility == "user" else {kmsg.KERNEL})
            return KmsgSource(KMSG, self._boot, admitted)
        return FileSource(self._settings.kernel_log, self._boot)


def _defect(error: Exception) -> Finding:
    return Finding(
        unit="host",
        verdict=UNKNOWN.verdict,
        remedy=UNKNOWN.remedy,
        rule="health-defect",
        summary=f"the agent does not look at this host any more: {type(error).__name__}: {error}",
        offence=False,
        next_evidence=("the log of the agent",),
    )
