"""Tells the server what probes see, in changes (`core/agent/health_news.py`).

What was told is kept in memory that outlives the process and not the boot, as the outbox is: a new agent of the same
boot tells nothing twice, and the first of a new boot tells everything. The report goes first; a crash between the two
repeats it, which the server bears.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trainmaster.core.agent import health_news
from trainmaster.core.agent.health_news import Known, News
from trainmaster.core.base.ids import BootId, HostId
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.events import AgentReport
from trainmaster.core.health.events import HealthReported, PartsSeen
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.part import Part
from trainmaster.live.agent.files import now, read_or_none, write_whole

_log = logging.getLogger(__name__)


class Told(Value):
    """What the server knows of this boot."""

    probes: dict[str, tuple[Known, ...]] = {}
    chassis: str | None = None
    """None: parts were not told yet."""
    parts: tuple[Part, ...] = ()


class Teller:
    def __init__(self, host: HostId, boot: BootId, path: Path, add: Callable[[AgentReport], None]) -> None:
        self.host, self._boot, self._path, self._add = host, boot, path, add
        self._told = _read(path)

    def events(self, probe: str, findings: Iterable[Finding]) -> None:
        """What a probe of events has seen; those that ask for nothing any more are over."""
        self._tell(probe, health_news.of_events(self._told.probes.get(probe, ()), self._ours(findings)))

    def state(self, probe: str, findings: Iterable[Finding], unread: frozenset[str] = frozenset()) -> None:
        """All that holds now by a probe of states, except for units that it could not look at."""
        self._tell(probe, health_news.of_state(self._told.probes.get(probe, ()), self._ours(findings), unread))

    def settle(self, probe: str, findings: Iterable[Finding]) -> None:
        """An operation was carried out on the host: what comes from now on is told, however often it came before.
        `findings` are all that the probe has seen by now."""
        counts = {(each.unit, each.rule): each.count for each in self._ours(findings)}
        known = health_news.settled(self._told.probes.get(probe, ()), counts)
        self._keep(self._told.but(probes={**self._told.probes, probe: known}))

    def parts(self, chassis: str, parts: Sequence[Part]) -> None:
        """All parts that are here. One that can't tell its serial number now (a lost GPU) is the one that was told of
        its slot in this boot: nothing is swapped in a host that runs."""
        before = {part.slot: part for part in self._told.parts}
        parts = [before[part.slot] if not part.serial and part.slot in before else part for part in parts]
        if (self._told.chassis, self._told.parts) == (chassis, tuple(parts)):
            return
        self._add(PartsSeen(at=now(), host=self.host, boot=self._boot, chassis=chassis, parts=tuple(parts)))
        self._keep(self._told.but(chassis=chassis, parts=tuple(parts)))

    def _ours(self, findings: Iterable[Finding]) -> list[Finding]:
        """A host is told of by its agent: its name in the lines is no part of the unit, so that it may be renamed."""
        names = ("host", f"host {self.host}")
        return [each.but(unit="host" if each.unit in names else each.unit, host="", file="") for each in findings]

    def _tell(self, probe: str, news: News) -> None:
        if news.findings or news.gone or not self._told.probes:  # the first look of a boot says that somebody looks
            event = HealthReported(
                at=now(), host=self.host, boot=self._boot, probe=probe, findings=news.findings, gone=news.gone
            )
            self._add(event)
            self._keep(self._told.but(probes={**self._told.probes, probe: news.known}))

    def _keep(self, told: Told) -> None:
        self._told = told
        try:
            write_whole(self._path, encode(told))
        except OSError as error:
            _log.error("%s can't be written (%s); a new agent tells again", self._path, error.strerror)


def _read(path: Path) -> Told:
    data = read_or_none(path)
    try:
        return Told() if data is None else decode(data, Told)
    except ValueError:
        _log.warning("%s is damaged; everything is told again", path)
        return Told()
