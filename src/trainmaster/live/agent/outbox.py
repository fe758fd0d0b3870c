"""Reports that the server has not acknowledged yet, kept in memory that outlives the agent's process.

A file on the memory file system: one line an event, one line an acknowledgement. It needs no fsync, since it need not
survive a reboot (the new boot id then says more than any event could) and a crash of the process loses nothing that was
written. A new process also learns from it what was told already.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from trainmaster.core.base.ids import EffectId
from trainmaster.core.base.value import Value, encode
from trainmaster.core.events import AgentReport
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.live.agent.files import read_or_none, write_whole

BATCH: int = 200
"""Events in one report at most."""


class OutboxLine(Value):
    """Exactly one of `event` (with its place) and `acknowledged` (up to this place) is set."""

    place: int = 0
    event: AgentReport | None = None
    acknowledged: int = 0


_log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(OutboxLine)


class Outbox:
    def __init__(self, path: Path, keep: Callable[[AgentReport], bool]) -> None:
        """Reads and compacts: of acknowledged events only those stay for which `keep` says so. Raises `OSError`."""
        told, waiting = _read(path)
        self.told = [event for event in told if keep(event)]
        """What earlier processes of this boot told and the server acknowledged, as far as it still matters."""
        self._events: dict[int, AgentReport] = {}
        kept = [*self.told, *waiting]
        self._place = len(kept)
        self._events = {place: event for place, event in enumerate(kept, start=1) if place > len(self.told)}
        lines = [OutboxLine(place=place, event=event) for place, event in enumerate(kept, start=1)]
        lines.append(OutboxLine(acknowledged=len(self.told)))
        write_whole(path, b"".join(encode(line) + b"\n" for line in lines))
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._news = asyncio.Event()

    def waiting(self) -> tuple[AgentReport, ...]:
        """What is not acknowledged, oldest first."""
        return tuple(self._events[place] for place in sorted(self._events))

    def _store(self, line: OutboxLine) -> None:
        try:
            os.write(self._file, encode(line) + b"\n")
        except OSError as error:  # the event is still sent by this process; only a crash would lose it
            _log.error("the outbox can't be written (%s); going on", error.strerror)

    def add(self, event: AgentReport) -> None:
        self._place += 1
        self._events[self._place] = event
        self._store(OutboxLine(place=self._place, event=event))
        self._news.set()

    def waits(self, effect: EffectId) -> bool:
        """Whether the outcome of this effect waits to be sent."""
        return any(isinstance(event, EffectEnded) and event.effect == effect for event in self._events.values())

    def is_empty(self) -> bool:
        return not self._events

    async def next_batch(self) -> tuple[int, tuple[AgentReport, ...]]:
        """Waits until there is something; (place of the last, events), oldest first."""
        while not self._events:
            self._news.clear()
            await self._news.wait()
        places = sorted(self._events)[:BATCH]
        return places[-1], tuple(self._events[place] for place in places)

    def acknowledge(self, place: int) -> None:
        """The server has everything up to this place."""
        for known in [known for known in self._events if known <= place]:
            del self._events[known]
        self._store(OutboxLine(acknowledged=place))

    def close(self) -> None:
        os.close(self._file)


def _read(path: Path) -> tuple[list[AgentReport], list[AgentReport]]:
    """(acknowledged events, waiting ones), oldest first."""
    events: dict[int, AgentReport] = {}
    acknowledged = 0
    for text in (read_or_none(path) or b"").splitlines():
        try:
            line = _decoder.decode(text)
        except msgspec.DecodeError:
            continue  # the last line of a process that was killed while it wrote
        if line.event is not None:
            events[line.place] = line.event
        acknowledged = max(acknowledged, line.acknowledged)
    done = [event for place, event in sorted(events.items()) if place <= acknowledged]
    return done, [event for place, event in sorted(events.items()) if place > acknowledged]
