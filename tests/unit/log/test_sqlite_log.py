"""The log in one SQLite file."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.core.base.ids import HostId, Owner, SessionId, effect_id
from trainmaster.core.base.time import Instant
from trainmaster.core.effects import VerifyHost
from trainmaster.core.events import LeaseTaken, TimePassed
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.live.adapters.sqlite_log import SqliteLog
from trainmaster.ports.event_log import Batch, Entry, LogFull, LogUnusable, Rejection, ReportNumber, Snapshot

AT = Instant(1_800_000_000_000_000)
HOST = HostId("n1")


def entry(index: int, effects: int = 1) -> Entry:
    return Entry(
        index=index,
        event=TimePassed(at=Instant(AT + index)),
        effects=tuple(
            VerifyHost(id=effect_id(index, number), host=HOST, tasks=("gpu",)) for number in range(1, effects + 1)
        ),
    )


def batch(first: int, last: int) -> Batch:
    return Batch(entries=tuple(entry(index) for index in range(first, last + 1)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.sqlite"


def test_what_was_appended_is_read_back_after_a_new_opening(path: Path) -> None:
    """1. Three events in two batches, with a report number and a rejection. 2. Close, open. 3. All is there."""
    number = ReportNumber(host=HOST, session=SessionId("s1"), number=4)
    event = EffectEnded(at=AT, host=HOST, effect=effect_id(1, 1), outcome="done")
    rejection = Rejection(at=AT, host=HOST, session=number.session, number=4, event=event, reason="not pending")
    log = SqliteLog(path, AT)
    log.append(batch(1, 2))
    log.append(Batch(entries=(entry(3, effects=0),), numbers=(number,), rejections=(rejection,)))
    log.close()
    log = SqliteLog(path, AT)
    assert log.last_index == 3
    assert list(log.read(1, 10)) == [entry(1), entry(2), entry(3, effects=0)]
    assert list(log.read(2, 1)) == [entry(2)]
    assert list(log.read(4, 10)) == []
    assert list(log.report_numbers()) == [number]
    assert list(log.rejections(10)) == [rejection]
    log.close()


def test_each_opening_takes_a_greater_lease(path: Path) -> None:
    """1. Open three times. 2. Leases 1, 2, 3. 3. Even if the rows of the old leases are deleted, 4 follows."""
    leases = []
    for _ in range(3):
        log = SqliteLog(path, AT)
        leases.append(log.lease)
        log.close()
    assert leases == [1, 2, 3]
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM leases")
    db.close()
    log = SqliteLog(path, AT)
    assert log.lease == 4
    log.close()


def test_a_second_server_on_one_log_is_refused_by_pid(path: Path) -> None:
    """1. A log is open. 2. A second opening names the holder. 3. After the first closes, it succeeds."""
    log = SqliteLog(path, AT)
    with pytest.raises(LogUnusable, match=f"pid {os.getpid()}") as refusal:
        SqliteLog(path, AT)
    assert str(os.getpid()) in refusal.value.fix
    log.close()
    SqliteLog(path, AT).close()


def test_a_gap_is_a_defect_of_the_caller(path: Path) -> None:
    log = SqliteLog(path, AT)
    with pytest.raises(AssertionError, match="gap"):
        log.append(Batch(entries=(entry(2),)))
    assert log.last_index == 0
    log.close()


def test_the_last_two_snapshots_are_kept_and_a_broken_one_is_passed_over(path: Path) -> None:
    """1. Snapshots at 1, 2, 3. 2. Only 3 and 2 are left. 3. A flipped byte in 3 leaves 2, in both leaves none."""
    log = SqliteLog(path, AT)
    log.append(batch(1, 3))
    for index in (1, 2, 3):
        log.save_snapshot(Snapshot(index=index, state=b"state-%d" % index))
    assert [s.index for s in log.snapshots()] == [3, 2]
    log._db.execute("UPDATE snapshots SET state = x'00' WHERE idx = 3")
    assert list(log.snapshots()) == [Snapshot(index=2, state=b"state-2")]
    log._db.execute("UPDATE snapshots SET state = x'00'")
    assert list(log.snapshots()) == []
    log.close()


def test_a_stale_database_is_refused(path: Path) -> None:
    """1. Version 0.0.9 wrote the log. 2. This version refuses, names both and says what to do. 3. 0.0.9 still can."""
    SqliteLog(path, AT, product_version="0.0.9").close()
    with pytest.raises(LogUnusable, match=r"stale database.*0\.0\.9") as refusal:
        SqliteLog(path, AT)
    assert "mv " in refusal.value.fix
    SqliteLog(path, AT, product_version="0.0.9").close()


def test_another_schema_is_stale_too(path: Path) -> None:
    SqliteLog(path, AT).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 7")
    db.close()
    with pytest.raises(LogUnusable, match="schema 7"):
        SqliteLog(path, AT)


def test_a_file_that_is_not_sqlite_is_refused_and_left_alone(path: Path) -> None:
    content = b"dear diary, " * 1000
    path.write_bytes(content)
    with pytest.raises(LogUnusable, match="not a Trainmaster log"):
        SqliteLog(path, AT)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t(x)")
    db.close()
    content = path.read_bytes()
    with pytest.raises(LogUnusable, match="another program"):
        SqliteLog(path, AT)
    assert path.read_bytes() == content


def test_a_torn_file_is_refused(path: Path) -> None:
    """1. A log of many pages. 2. Its second half is lost. 3. Opening says damaged, not half of the history."""
    log = SqliteLog(path, AT)
    log.append(batch(1, 2000))
    log.close()
    os.truncate(path, path.stat().st_size // 8192 * 4096)
    with pytest.raises(LogUnusable, match="damaged") as refusal:
        SqliteLog(path, AT)
    assert "backup" in refusal.value.fix


def test_a_flipped_bit_in_an_event_is_found_when_it_is_read(path: Path) -> None:
    log = SqliteLog(path, AT)
    log.append(batch(1, 3))
    log._db.execute("UPDATE log SET event = CAST(replace(event, '1800', '1801') AS BLOB) WHERE idx = 2")
    assert list(log.read(3, 1)) == [entry(3)]
    with pytest.raises(LogUnusable, match="checksum of event 2"):
        log.read(1, 10)
    log.close()


def test_a_missing_event_is_found_at_opening(path: Path) -> None:
    log = SqliteLog(path, AT)
    log.append(batch(1, 3))
    log._db.execute("DELETE FROM log WHERE idx = 2")
    log.close()
    with pytest.raises(LogUnusable, match="2 events with indices 1 to 3"):
        SqliteLog(path, AT)


def test_a_directory_that_is_not_there_is_an_error_for_people(tmp_path: Path) -> None:
    with pytest.raises(LogUnusable, match="No such file") as refusal:
        SqliteLog(tmp_path / "nowhere" / "log.sqlite", AT)
    assert "--state" in refusal.value.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become nobody")
def test_a_directory_without_permission_is_an_error_for_people(path: Path) -> None:
    os.chmod(path.parent, 0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(LogUnusable, match="Permission denied"):
            SqliteLog(path, AT)
    finally:
        os.seteuid(0)


def test_a_full_disk_writes_nothing_and_heals(path: Path) -> None:
    """1. SQLite may grow to 64 pages. 2. A batch of more fails with LogFull. 3. Nothing of it is there, and a small
    one succeeds. 4. With space, the big one succeeds."""
    log = SqliteLog(path, AT)
    log.append(batch(1, 1))
    log._db.execute("PRAGMA max_page_count = 64")
    with pytest.raises(LogFull, match="disk is full"):
        log.append(batch(2, 4000))
    assert log.last_index == 1
    assert list(log.read(1, 10)) == [entry(1)]
    log.append(batch(2, 2))
    log._db.execute("PRAGMA max_page_count = 100000")
    log.append(batch(3, 4000))
    log.close()
    log = SqliteLog(path, AT)
    assert log.last_index == 4000
    log.close()


WRITER = """
import sys
from pathlib import Path
from tests.unit.log.test_sqlite_log import AT, SqliteLog, batch
log = SqliteLog(Path(sys.argv[1]), AT)
first = log.last_index + 1
while True:
    log.append(batch(first, first + 2))
    first += 3
    print(first - 1, flush=True)
"""


@pytest.mark.real
def test_a_kill_at_any_moment_leaves_whole_batches(path: Path) -> None:
    """1. A process appends batches of three and says so. 2. SIGKILL in the middle. 3. Everything it said is there, and
    only whole batches. 4. Again on the same file, several times."""
    said = 0
    for round_ in range(1, 6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )
        assert process.stdout is not None
        for _ in range(5 * round_):
            said = int(process.stdout.readline())
        process.kill()
        rest = process.stdout.read().split()
        process.stdout.close()
        process.wait()
        said = int(rest[-1]) if rest else said
        log = SqliteLog(path, AT)
        assert log.last_index >= said > 0
        assert log.last_index % 3 == 0
        assert [e.index for e in log.read(1, 1_000_000)] == list(range(1, log.last_index + 1))
        log.close()


def test_a_lease_event_survives_the_round_trip(path: Path) -> None:
    """Types of events are told apart on the way back."""
    log = SqliteLog(path, AT)
    event = LeaseTaken(at=AT, lease=1, by=Owner("policy:server"))
    log.append(Batch(entries=(Entry(index=1, event=event, effects=()),)))
    assert log.read(1, 1)[0].event == event
    log.close()
