"""A round of probes in a process of its own, which may be left behind.

The process says what it begins before it touches it. If that takes longer than `PATIENCE_S`, the rest goes on in
another process, so that nobody waits for a slow neighbour; if it takes longer than its deadline, the process group is
killed and the thing has not been read. A process that the kernel does not let go (it sleeps in a driver, or in a dead
mount) is a *corpse*: it is left where it is, looked at again before each round, and what it hangs on is not touched
while it is there, so that a host collects one of them for each thing that hangs and not one a minute.

Rejected: threads (one that hangs can't be ended, nor can its process), a pool of processes that live on (each would
hold 10 MiB at rest and keep libraries of drivers open; a start costs 20 ms of a core a minute).
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from trainmaster.live.agent.health.probes import PROBES

PATIENCE_S: Final = 1.0
START_S: Final = 20.0
"""A process that has not begun anything by then can't be started."""
KILL_S: Final = 1.0
"""So long after SIGKILL a process is waited for."""
LANES: Final = 8
"""Processes at a time. With more things that hang, what comes later waits for deadlines."""
_LINE_BYTES: Final = 32 * 1024 * 1024

Plan = list[tuple[str, list[str] | None]]
"""Names of probes, with the items that are left; None: all."""


class Unread(NamedTuple):
    """Something that is there and was not read."""

    how: Literal["deadline", "corpse", "died", "error"]
    why: str
    last_s: float | None
    """How long ago it was read last; None: never."""


class Seen:
    """What a round saw of one probe."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        """By item; of a probe without items, that of the empty one."""
        self.skipped = ""
        """Why there was nothing to look at."""
        self.unread: dict[str, Unread] = {}
        """By item; the empty one: the whole probe."""


class _Say(msgspec.Struct):
    """A line of the process."""

    begin: str = ""
    end: str = ""
    item: str = ""
    items: list[str] | None = None
    of: str = ""
    text: str | None = None
    skipped: str = ""
    unreadable: str = ""
    done: bool = False


_decoder = msgspec.json.Decoder(_Say)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def is_gone(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the process and everything that it started has ended."""
    if process.poll() is None:
        return False
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return True
    return False


class Rounds:
    """Runs rounds, one at a time; remembers what hangs."""

    def __init__(
        self,
        root: Path,
        kill: Callable[["subprocess.Popen[bytes]"], None] = kill_group,
        patience_s: float = PATIENCE_S,
        deadline_s: float | None = None,
    ) -> None:
        """`deadline_s` takes the place of the probes' own, if it is shorter."""
        self._root, self._kill, self._patience_s, self._shortest_s = root, kill, patience_s, deadline_s
        self._corpses: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._last: dict[tuple[str, str], float] = {}
        self._seen: dict[str, Seen] = {}
        self._open: dict[str, set[str]] = {}
        """Items of each probe of this round that are not done; the empty one: they are not listed yet."""
        self._finished: Callable[[str, Seen], None] = lambda name, seen: None
        self._lanes: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(LANES)

    def seen(self, name: str) -> Seen:
        """What was seen of a probe in a round that was cut short."""
        return self._seen[name]

    def corpses(self) -> list[int]:
        """Process ids of those that did not end."""
        return [process.pid for process in self._corpses.values()]

    async def run(
        self, names: Iterable[str], finished: Callable[[str, Seen], None] = lambda name, seen: None
    ) -> dict[str, Seen]:
        """Looks once; `finished` is called with each probe as it is done, so that none waits for others. Cancelled, it
        ends what it started."""
        names = list(names)
        self._finished = finished
        self._open = {name: {""} for name in names}
        self._corpses = {key: process for key, process in self._corpses.items() if not is_gone(process)}
        self._seen = {name: Seen() for name in names}
        for name, item in self._corpses:
            if name in self._seen:
                self._unread(name, item, "corpse", "an earlier look still hangs in it")
        plan: Plan = [(name, None) for name in names if (name, "") not in self._corpses]
        self._lane(plan)
        try:
            while self._lanes:
                done, _ = await asyncio.wait(self._lanes, return_when=asyncio.FIRST_COMPLETED)
                for lane in done:
                    lane.result()
        finally:
            for lane in self._lanes:
                lane.cancel()
            await asyncio.gather(*self._lanes, return_exceptions=True)
        return self._seen

    def _lane(self, plan: Plan) -> None:
        if plan:
            lane = asyncio.create_task(self._work(plan))
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def _work(self, plan: Plan) -> None:
        while plan:
            async with self._room:
                plan = await _Process(self, plan).read()

    def _unread(self, name: str, item: str, how: Literal["deadline", "corpse", "died", "error"], why: str) -> None:
        last = self._last.get((name, item))
        now = asyncio.get_running_loop().time()
        self._seen[name].unread[item] = Unread(how, why, None if last is None else now - last)
        if how != "corpse" or not item:
            self._done(name, item)

    def listed(self, name: str, items: list[str]) -> None:
        self._open[name] = {"", *items}
        self._done(name, "")

    def _done(self, name: str, item: str) -> None:
        self._open[name].discard(item)
        if not item and self._seen[name].unread.get("") is not None:
            self._open[name].clear()
        if not self._open[name]:
            self._finished(name, self._seen[name])

    def arguments(self, plan: Plan) -> str:
        """The plan as the process reads it."""
        left_out = {name: [item for of, item in self._corpses if of == name and item] for name, _ in plan}
        return msgspec.json.encode([(name, items, left_out[name]) for name, items in plan]).decode()

    def ended(self, say: _Say) -> None:
        seen = self._seen[say.end]
        if say.text is not None:
            seen.texts[say.item] = say.text
            self._last[say.end, say.item] = asyncio.get_running_loop().time()
        elif say.skipped:
            seen.skipped = say.skipped
        else:
            self._unread(say.end, say.item, "error", say.unreadable or "it says nothing")
            return
        self._done(say.end, say.item)

    def deadline_s(self, name: str) -> float:
        own = PROBES[name].deadline_s
        return own if self._shortest_s is None else min(own, self._shortest_s)


class _Process:
    """One process of a round, and what is left for it to look at."""

    def __init__(self, rounds: Rounds, plan: Plan) -> None:
        self._rounds, self._left = rounds, [(name, items) for name, items in plan]
        self._current: tuple[str, str] | None = None
        self._handed_over = False

    async def read(self) -> Plan:
        """Reads until the process has done its part; what is left for another one."""
        loop = asyncio.get_running_loop()
        command = [sys.executable, "-m", "trainmaster.live.agent.health.probes", str(self._rounds._root)]
        process = subprocess.Popen(
            [*command, self._rounds.arguments(self._left)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        reader = asyncio.StreamReader(limit=_LINE_BYTES)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
        try:
            return await self._follow(reader)
        finally:
            transport.close()
            await self._end(process)

    async def _follow(self, reader: asyncio.StreamReader) -> Plan:
        loop = asyncio.get_running_loop()
        since = loop.time()
        while True:
            limit_s = self._limit_s()
            try:
                async with asyncio.timeout_at(since + limit_s):
                    line = await reader.readline()
            except TimeoutError:
                if not self._overdue(loop.time() - since):
                    continue
                return [] if self._handed_over else self._rest()
            if not line.endswith(b"\n"):
                return self._died()
            say = _decoder.decode(line)
            since = loop.time()
            if self._heard(say) or say.done:
                return []

    def _limit_s(self) -> float:
        """How long the next line may take before something is done about it."""
        if self._current is None:
            return START_S
        deadline_s = self._rounds.deadline_s(self._current[0])
        return deadline_s if self._handed_over or not self._rest() else min(self._rounds._patience_s, deadline_s)

    def _overdue(self, waited_s: float) -> bool:
        """Whether it is over; else the rest was handed to another process."""
        if self._current is None:
            self._fail_all(f"its process did not start within {START_S:.0f} s")
            return True
        name, item = self._current
        deadline_s = self._rounds.deadline_s(name)
        if waited_s < deadline_s:
            self._rounds._lane(self._rest())
            self._handed_over = True
            return False
        self._rounds._unread(name, item, "deadline", f"no answer within {deadline_s:g} s")
        return True

    def _fail_all(self, why: str) -> None:
        for name, _ in self._left:
            self._rounds._unread(name, "", "died", why)
        self._left = []

    def _died(self) -> Plan:
        if self._current is None:
            self._fail_all("its process ended at once")
            return []
        self._rounds._unread(*self._current, "died", "the process that looked at it died")
        return [] if self._handed_over else self._rest()

    def _heard(self, say: _Say) -> bool:
        """Takes a line in. Whether the process is done, since the rest is another's."""
        if say.begin:
            self._current = say.begin, say.item
        elif say.of:
            items = say.items or []
            self._rounds.listed(say.of, items)
            if self._handed_over:  # it took long to list them, and what comes behind is another's
                self._rounds._lane([(say.of, items)] if items else [])
                return True
            self._left[0:1] = [(say.of, items)] if items else []
            self._current = None
        elif say.end:
            self._rounds.ended(say)
            self._left = self._rest()
            self._current = None
            return self._handed_over
        return False

    def _rest(self) -> Plan:
        """What is left without what is looked at now."""
        if self._current is None:
            return list(self._left)
        name, item = self._current
        assert self._left[0][0] == name, (self._left, self._current)
        items = [each for each in self._left[0][1] or () if each != item] if item else []
        return [*([(name, items)] if items else []), *self._left[1:]]

    async def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Kills what is left of the process, and leaves it behind if it does not go."""
        self._rounds._kill(process)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + KILL_S
        while not is_gone(process):
            if loop.time() > deadline:
                self._rounds._corpses[self._current or ("", "")] = process
                return
            await asyncio.sleep(0.005)


def round_once(rounds: Rounds, names: Sequence[str]) -> dict[str, Seen]:
    """One round, for callers without a loop."""
    found: Any = asyncio.run(rounds.run(names))
    return dict(found)
