"""The kernel's log, from the line to the report.

A line is judged as it comes: its chunk goes to the stream of verdicts, and what changed is told at once. What only
counts (copies, a second incident of the same) is looked at once a second, while lines come. A storm is read in chunks
with the agent's other work between; at rest nothing runs.

A log that is not there is nobody's fault (a container, a host whose journal is forwarded) and is said in our own log. A
log that is there and cannot be read is `unknown`: a host that nobody listens to has not been seen to be healthy.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from trainmaster.core.agent.health_news import aged
from trainmaster.core.base.time import Duration
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.stream import LogStream
from trainmaster.core.health.words import UNKNOWN
from trainmaster.live.agent.files import now
from trainmaster.live.agent.health.log_source import LogSource, store, stored, up_us
from trainmaster.live.agent.health.teller import Teller

_log = logging.getLogger(__name__)
PROBE: Final = "kernel-log"
STATE: Final = "kernel-log-state"
"""Whether it can be read: a state, where its lines are events."""
COUNT_EVERY_S: Final = 1.0
RETRY_S: Final = 30.0


class LogWatch:
    def __init__(self, source: LogSource, place: Path, index: Callable[[], Index], teller: Teller) -> None:
        """`index` gives the policy, which takes a while the first time."""
        self._source, self._place, self._index, self._teller = source, place, index, teller
        self._lost = self._inode = 0
        self._stream: LogStream | None = None

    def settle(self) -> None:
        """An operation was carried out on the host."""
        if self._stream is not None:
            self._take(self._stream)
            self._teller.settle(PROBE, self._stream.findings())

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._watch()
            except FileNotFoundError as error:
                _log.info("no kernel log: %s", error)
                return
            except OSError as error:
                _log.error("the kernel's log can't be read: %s", error)
                self._teller.state(STATE, [_unreadable(error)])
            await asyncio.sleep(RETRY_S)

    async def _watch(self) -> None:
        self._source.open(stored(self._place))
        try:
            self._store()
            self._stream = LogStream(await asyncio.to_thread(self._index), host=self._teller.host, boot="this")
            self._teller.events(PROBE, [])
            self._teller.state(STATE, [])
            await self._follow(self._stream)
        finally:
            self._stream = None
            self._source.close()

    async def _follow(self, stream: LogStream) -> None:
        loop = asyncio.get_running_loop()
        due_s: float | None = None
        while True:
            try:
                async with asyncio.timeout_at(due_s):
                    await self._source.wait()
            except TimeoutError:
                assert due_s is not None
            else:
                self._take(stream)
                due_s = loop.time() + COUNT_EVERY_S if due_s is None else due_s
            if due_s is not None and loop.time() >= due_s:
                due_s = None
                self._teller.events(PROBE, self._told(stream.findings()))
                self._store()
            await asyncio.sleep(0)

    def _take(self, stream: LogStream) -> None:
        chunk = self._source.take()
        findings = stream.feed(chunk.lines) if chunk.lines else []
        self._lost += chunk.lost
        if chunk.lost:
            findings.append(_lost(self._lost))
        self._teller.events(PROBE, self._told(findings))
        if self._source.place().inode != self._inode:
            self._store()  # at once: after another rotation it would be another file that is gone on with

    def _store(self) -> None:
        place = self._source.place()
        self._inode = place.inode
        store(self._place, place)

    def _told(self, findings: Iterable[Finding]) -> list[Finding]:
        return [aged(finding, Duration(up_us()), now()) for finding in findings]


def _lost(count: int) -> Finding:
    return Finding(
        unit="host",
        verdict=UNKNOWN.verdict,
        remedy=UNKNOWN.remedy,
        rule="kernel-log-lost",
        summary=f"{count} lines of the kernel's log were overwritten before they could be read",
        count=count,
        last_us=up_us(),
        offence=False,
        next_evidence=("the journal of this boot: journalctl -k -b; a larger buffer: log_buf_len",),
    )


def _unreadable(error: OSError) -> Finding:
    return Finding(
        unit="host",
        verdict=UNKNOWN.verdict,
        remedy=UNKNOWN.remedy,
        rule="kernel-log-unreadable",
        summary=f"the kernel's log is there and can't be read: {error.strerror or error}",
        offence=False,
        next_evidence=("rights of the agent: it needs to be root, or CAP_SYSLOG",),
    )
