"""Where an agent begins to read the kernel's log, and what it says of lines that it could not read."""

import asyncio
from pathlib import Path

import pytest

from trainmaster.core.base.ids import BootId, HostId
from trainmaster.core.events import AgentReport
from trainmaster.core.health.events import HealthReported
from trainmaster.core.health.words import Verdict
from trainmaster.live.agent.health import log_source
from trainmaster.live.agent.health.log_source import CHUNK, FileSource, KmsgSource, Place, store, stored
from trainmaster.live.agent.health.log_watch import LogWatch
from trainmaster.live.agent.health.monitor import policy_index
from trainmaster.live.agent.health.teller import Teller

FIRST, SECOND = BootId("first"), BootId("second")
XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=0, GPU has fallen off the bus."


class Ring(KmsgSource):
    """A ring of records that overwrites the oldest, and hands them out as the kernel does."""

    def __init__(self, boot: BootId, size: int, kernel: str = "k1") -> None:
        super().__init__("/dev/kmsg", boot, frozenset({0}))
        self._kernel, self._size = kernel, size
        self.records: list[bytes] = []
        self.at = 0

    def write(self, text: str, facility: int = 0) -> None:
        self.records.append(f"{facility * 8 + 6},{len(self.records)},{len(self.records)},-;{text}\n".encode())

    def open_from_start(self) -> None:
        self.at = max(0, len(self.records) - self._size)

    def _read(self) -> bytes:
        oldest = len(self.records) - self._size
        if self.at < oldest:
            self.at = oldest
            raise BrokenPipeError
        if self.at >= len(self.records):
            raise BlockingIOError
        self.at += 1
        return self.records[self.at - 1]

    async def wait(self) -> None:
        while self.at >= len(self.records):
            await asyncio.sleep(0.001)

    def close(self) -> None:
        pass

    def texts(self) -> list[str]:
        return [line.partition("] ")[2] for line in self.take().lines]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    """Of a kernel that runs for long."""
    monkeypatch.setattr(log_source, "up_us", lambda: 86_400_000_000)
    return Ring(FIRST, 100)


def again(ring: Ring, boot: BootId, kernel: str = "k1") -> Ring:
    """The same ring, as another agent opens it."""
    other = Ring(boot, ring._size, kernel)
    other.records = ring.records
    return other


def test_the_first_time_it_begins_at_the_end(ring: Ring) -> None:
    """1. A kernel that runs for long: what it said was dealt with by somebody. 2. What comes is read."""
    ring.write("old")
    ring.open(None)
    assert ring.texts() == []
    ring.write("new")
    assert ring.texts() == ["new"]


def test_a_young_kernel_is_read_from_its_start(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without a disk of its own has no place after any boot, and lines before the agent's start count."""
    monkeypatch.setattr(log_source, "up_us", lambda: 42_000_000)
    ring.write("at boot")
    ring.open(None)
    assert ring.texts() == ["at boot"]


def test_another_agent_of_the_same_boot_reads_again_what_counts(ring: Ring) -> None:
    """1. Read up to some line. 2. Another agent of the same boot of the host begins where this boot began, so that what
    comes again is seen to come again. 3. One of another boot of the host goes on behind. 4. One of another kernel reads
    from its start."""
    ring.open(None)
    ring.write("one")
    ring.texts()
    place = ring.place()
    ring.write("two")
    same, later, other = again(ring, FIRST), again(ring, SECOND), again(ring, FIRST, "k2")
    for each in (same, later, other):
        each.open(place)
    assert (same.texts(), later.texts(), other.texts()) == (["one", "two"], ["two"], ["one", "two"])


def test_only_the_kernel_speaks(ring: Ring) -> None:
    ring.open(None)
    ring.write(XID, facility=1)
    ring.write("usb 1-1: new device", facility=0)
    assert ring.texts() == ["usb 1-1: new device"]


def test_lines_that_were_overwritten_are_counted(ring: Ring) -> None:
    """1. More lines than the ring holds come between two looks. 2. Those that are left are read; how many are lost is
    known, also to an agent that was away meanwhile."""
    ring.open(None)
    ring.write("before")
    ring.take()
    place = ring.place()
    for number in range(150):
        ring.write(f"line {number}")
    chunk = ring.take()
    assert (len(chunk.lines), chunk.lost) == (100, 50)
    away = again(ring, FIRST)
    away.open(place)
    assert away.take().lost == 50


def test_a_loss_is_unknown(ring: Ring, tmp_path: Path) -> None:
    """What was overwritten may have told of anything: the host is not known to be well."""
    events: list[AgentReport] = []
    teller = Teller(HostId("h1"), FIRST, tmp_path / "told", events.append)
    watch = LogWatch(ring, tmp_path / "place", lambda: policy_index(""), teller)

    async def run() -> None:
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(20):
            while not events:
                await asyncio.sleep(0.001)
            for number in range(150):
                ring.write(f"line {number}")
            ring.write(XID)
            while len(events) < 2:
                await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(run())
    told = [finding for event in events if isinstance(event, HealthReported) for finding in event.findings]
    assert {(each.unit, each.verdict) for each in told} == {("gpu 0000:1b:00", Verdict.BAD), ("host", Verdict.UNKNOWN)}
    assert "51 lines" in next(each.summary for each in told if each.unit == "host")


def test_a_storm_is_read_in_chunks(ring: Ring) -> None:
    """The agent's other work runs between chunks."""
    ring = Ring(FIRST, 10**6)
    ring.open(None)
    for number in range(2 * CHUNK + 5):
        ring.write(f"line {number}")
    assert [len(ring.take().lines) for _ in range(4)] == [CHUNK, CHUNK, 5, 0]


def test_a_file_whose_last_line_is_not_whole(tmp_path: Path) -> None:
    """1. Half a line is not read, and not waited for in a circle. 2. Its rest makes it whole."""
    log = tmp_path / "log"
    log.write_text("")
    source = FileSource(str(log), FIRST)
    source.open(None)
    with log.open("a") as file:
        file.write("one\nhalf")
        file.flush()
        assert source.take().lines == ["one"]
        assert not source._has_more()
        file.write(" a line\n")
    assert source._has_more()
    assert source.take().lines == ["half a line"]
    source.close()


def test_a_place_that_can_not_be_read(tmp_path: Path) -> None:
    """A damaged file is no place; a directory that is gone is only logged."""
    path = tmp_path / "place"
    path.write_text("{")
    assert stored(path) is None
    place = Place(source="/dev/kmsg", agent_boot=FIRST, kernel_boot="k1", began=1, read=2)
    store(path, place)
    assert stored(path) == place
    store(tmp_path / "gone" / "place", place)
