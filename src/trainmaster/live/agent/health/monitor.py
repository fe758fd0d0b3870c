"""The part of the agent that watches the health of its host: the kernel's log as it is written, and probes by the
minute. It reports through the agent's outbox and answers nothing.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trainmaster.core.base.ids import BootId, HostId
from trainmaster.core.base.value import Value
from trainmaster.core.events import AgentReport
from trainmaster.core.health import kmsg
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import UNKNOWN
from trainmaster.live.agent.health.log_source import FileSource, KmsgSource, LogSource
from trainmaster.live.agent.health.log_watch import LogWatch
from trainmaster.live.agent.health.teller import Teller
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.health.policyfile import load

KMSG: Final = "/dev/kmsg"


class HealthSettings(Value):
    """What an agent looks at."""

    kernel_log: str = KMSG
    """`/dev/kmsg`, or a file that is followed; empty: none."""
    facility: str = "kernel"
    """`user` also takes lines that programs wrote into `/dev/kmsg`. For tests only: any program can write there."""
    policy: str = ""
    """Rows of the site; empty: those that ship."""


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

    async def run(self) -> None:
        """Until it is cancelled. What is not expected is logged and told: then nobody looks."""
        try:
            if self._settings.kernel_log:
                index = functools.partial(policy_index, self._settings.policy)
                await LogWatch(self._source(), self._paths.log_place, index, self._teller).run()
        except Exception as error:
            self._teller.state("health", [_defect(error)])
            raise

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
