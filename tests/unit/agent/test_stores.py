"""What an agent keeps on disk and in memory: torn lines, full disks, crashes."""

import os
import resource
import signal
from pathlib import Path

from trainmaster.core.agent.journal import Journal
from trainmaster.core.base.ids import AttemptId, BootId, EffectId, HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.effects import ReserveStore
from trainmaster.core.recovery.events import CheckpointPublished
from trainmaster.live.agent.files import tail
from trainmaster.live.agent.journal_file import JournalFile
from trainmaster.live.agent.outbox import Outbox
from trainmaster.live.agent.processes import ProcessName, is_alive, kill_group, name_of, send
from trainmaster.live.agent.sink import TAIL_BYTES, OutputSink

BOOT = BootId("b1")


def reserve(number: int) -> ReserveStore:
    return ReserveStore(id=EffectId(f"e{number}.1"), host=HostId("h1"), attempt=AttemptId("job-1.a1"), epoch=1)


def carry_out(store: JournalFile, number: int) -> None:
    store.append(store.journal.offer(reserve(number), 1).lines, sync=False)
    store.append(store.journal.ended(EffectId(f"e{number}.1"), "done", "", {}), sync=True)


def known(journal: Journal, number: int) -> bool:
    entry = journal.entry(EffectId(f"e{number}.1"))
    return entry is not None and entry.outcome == "done"


def test_journal_survives_a_torn_last_line(tmp_path: Path) -> None:
    """1. Two effects are done. 2. The last line is torn at every place. 3. The first effect is known each time, and
    what is written after the torn line too."""
    path = tmp_path / "journal"
    store = JournalFile(path, BOOT)
    carry_out(store, 1)
    first = path.stat().st_size
    carry_out(store, 2)
    store.close()
    data = path.read_bytes()
    for cut in range(first, len(data), 7):
        path.write_bytes(data[:cut])
        again = JournalFile(path, BOOT)
        assert known(again.journal, 1)
        carry_out(again, 3)
        again.close()
        last = JournalFile(path, BOOT)
        assert known(last.journal, 3)
        last.close()


def test_journal_goes_on_when_the_disk_is_full(tmp_path: Path) -> None:
    """1. The disk takes no more (here: a limit on the size of files), in the middle of a line. 2. The agent goes on. 3.
    When there is room again everything is written, and nothing is lost."""
    path = tmp_path / "journal"
    store = JournalFile(path, BOOT)
    carry_out(store, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 30, before[1]))
        carry_out(store, 2)
        carry_out(store, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    carry_out(store, 4)
    store.close()
    again = JournalFile(path, BOOT)
    assert [known(again.journal, number) for number in (1, 2, 3, 4)] == [True] * 4
    again.close()


def published(step: int, attempt: str = "job-1.a1") -> CheckpointPublished:
    return CheckpointPublished(at=Instant(1), host=HostId("h1"), attempt=AttemptId(attempt), epoch=1, step=step)


def test_outbox_keeps_what_was_not_acknowledged(tmp_path: Path) -> None:
    """1. Three events, the first acknowledged, and the process dies in the middle of a fourth line. 2. The next one has
    two to send and remembers the first, unless it no longer matters."""
    path = tmp_path / "outbox"
    box = Outbox(path, lambda event: True)
    for step in (1, 2, 3):
        box.add(published(step))
    box.acknowledge(1)
    box.close()
    with path.open("ab") as file:
        file.write(b'{"place":4,"ev')
    again = Outbox(path, lambda event: True)
    assert (again.told, again.waiting()) == ([published(1)], (published(2), published(3)))
    again.acknowledge(3)
    assert again.is_empty()
    again.close()
    last = Outbox(path, lambda event: False)
    assert (last.told, last.waiting()) == ([], ())
    last.close()


def test_sink_loses_output_not_workers_on_a_full_disk(tmp_path: Path) -> None:
    """1. The log can't be written. 2. Copying goes on and the end of the output is known. 3. When it can be written
    again, the log says how much is missing."""
    log = tmp_path / "log"
    log.symlink_to("/dev/full")
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    sink = OutputSink(reading, log)
    os.write(writing, b"lost words\n")
    assert sink.copy()
    log.unlink()
    assert sink.log is not None
    os.close(sink.log)
    sink.log = None
    os.write(writing, b"kept words\n")
    os.close(writing)
    assert not sink.copy()
    sink.close()
    assert log.read_text() == "[trainmaster: 11 bytes of output lost: No space left on device]\nkept words\n"
    assert sink.tail() == "lost words\nkept words\n"
    assert TAIL_BYTES >= 4096


def test_tail_of_a_file(tmp_path: Path) -> None:
    """1. A file of five lines, the last without an end. 2. The last two, none, and more than there are."""
    path = tmp_path / "f"
    path.write_bytes(b"1\n2\n3\n4\n5")
    assert (tail(path, 2), tail(path, 0), tail(path, 99)) == (b"4\n5", b"", b"1\n2\n3\n4\n5")
    assert tail(path, 99, limit_bytes=3) == b"4\n5"


def test_recycled_process_id_is_not_killed() -> None:
    """1. A name with our own id and another start time. 2. It is not alive, and neither it nor its group is
    signalled."""
    own = name_of(os.getpid())
    assert own is not None
    assert is_alive(own)
    other = ProcessName(pid=own.pid, started=own.started + 1)
    assert not is_alive(other)
    assert not send(other, signal.SIGKILL)
    assert not kill_group(other)
