"""Logs that are replayed: equal ones, ones that differ, ones that are broken, and ones that somebody writes."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.twin.logs import entries_of, hours, lived, write
from trainmaster.cli.main import main
from trainmaster.cli.scenariofile import load
from trainmaster.core.accounting.goodput import account
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import decode, encode
from trainmaster.core.effects import VerifyHost
from trainmaster.core.engine import Engine
from trainmaster.core.events import TimePassed
from trainmaster.core.maintenance import maintain
from trainmaster.live.adapters.sqlite_log import entry_row
from trainmaster.ports.event_log import Entry, Snapshot
from trainmaster.twin.replay import Replay, ReplayReport, lost_by_cause
from trainmaster.twin.run import Run
from trainmaster.twin.scenario import START

SMALL = Path(__file__).with_name("small.toml")


@pytest.fixture(scope="module")
def run() -> Run:
    return lived(load(SMALL).but(duration=hours(2.5), seed=5))


@pytest.fixture(scope="module")
def file(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.sqlite"
    snapshot = Snapshot(index=run.world.engine.index, state=run.world.engine.snapshot())
    write(path, entries_of(run), snapshot).close()
    return path


def replayed(entries: list[Entry], look_every: int = 0) -> ReplayReport:
    replay = Replay(START, entries[-1].event.at, look_every)
    for entry in entries:
        if not replay.apply(entry.index, entry.event, encode(entry.effects)):
            break
    return replay.report(0.0)


def test_a_log_comes_out_as_it_was(file: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A log of 2.5 hours, with a snapshot at its end. 2. Its replay meets every effect and the snapshot. 3. The
    figures are those of the run itself."""
    assert main(["twin", "replay", str(file), "--watch-every", "500", "-o", "json"]) == 0
    tree = decode(capsys.readouterr().out, dict[str, object])
    assert tree.pop("schema") == "trainmaster.twin-replay/v1"
    report = decode(encode(tree), ReplayReport)
    assert report.difference is None
    assert report.events == len(entries_of(run)) > 1000
    assert report.snapshots_equal == 1
    assert report.invariants_looked == report.events // 500
    assert report.invariants_broken == 0
    maintenance = run.world.engine.state.maintenance
    assert report.operations_done == maintenance.counts["done"] > 100
    assert report.operations_requested == maintenance.requested
    assert report.visits == sum(maintenance.visited.values())
    assert report.hosts_visited + report.hosts_missed == 64
    assert set(report.waits_by_reason) & {"resource-busy", "notice-given"}
    assert sum(report.jobs.values()) == len(run.world.engine.state.jobs)


def test_causes_are_what_is_not_productive(run: Run) -> None:
    """1. Every job of a run. 2. Its causes together are its wall time without the productive time."""
    state = run.world.engine.state
    for job in state.jobs.values():
        attempts = [state.attempts[name] for name in job.attempts]
        told = account(job, attempts, state.now)
        lost = lost_by_cause(told)
        assert abs(sum(lost.values()) - (told.wall_s - told.productive_s) * told.gpus) < 1e-3 * told.gpus, job.id
    report = replayed(entries_of(run))
    assert report.interruptions
    assert set(report.interruptions) <= set(report.lost_gpu_s_by_cause)


def test_the_first_difference_is_named(
    file: Path, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1. An effect in the middle of a log asks for one task more than was decided. 2. The replay ends there with exit
    code 1, and says which event, what it was, and both effects. 3. Up to the event before, all is well."""
    entries = entries_of(run)
    changed = next(entry for entry in entries[500:] if any(isinstance(one, VerifyHost) for one in entry.effects))
    place = next(at for at, one in enumerate(changed.effects) if isinstance(one, VerifyHost))
    other = list(changed.effects)
    other[place] = other[place].but(tasks=("dance",))
    path = Path(shutil.copy(file, tmp_path))
    with sqlite3.connect(path) as db:
        row = entry_row(changed.but(effects=tuple(other)))
        db.execute("UPDATE log SET effects = ?, crc = ? WHERE idx = ?", (row[3], row[4], changed.index))
    db.close()
    assert main(["twin", "replay", str(path), "--watch-every", "0"]) == 1
    told = capsys.readouterr()
    assert f"event {changed.index:,} comes out otherwise" in told.err
    assert f"effect {place + 1}: the log has VerifyHost" in told.err
    assert '"dance"' in told.err
    assert f"--until {changed.index - 1}" in told.err
    assert f"replayed:       {changed.index:,} events" in told.out
    assert main(["twin", "replay", str(path), "--watch-every", "0", "--until", str(changed.index - 1)]) == 0


def test_another_policy_shows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. An engine that does nothing for maintenance after events. 2. The replay finds where that shows first."""
    monkeypatch.setattr(maintain, "settle", lambda step, signals: None)
    found = replayed(entries_of(run)).difference
    assert found is not None
    assert found.logged
    assert found.event


def test_an_event_that_cannot_be_is_a_difference(run: Run) -> None:
    """1. A log that misses its beginning. 2. The difference is that the engine finds an event impossible."""
    entries = [entry.but(index=place) for place, entry in enumerate(entries_of(run)[4:], 1)]
    found = replayed(entries).difference
    assert found is not None
    assert "impossible" in found.sentence


def test_a_snapshot_of_another_state_is_a_difference() -> None:
    """1. An event; the log has a snapshot of something else. 2. That is a difference, with both sides around it."""
    replay = Replay(START, START)
    assert replay.apply(1, TimePassed(at=START), b"[]")
    assert not replay.met(1, Engine().snapshot())
    assert replay.difference is not None
    assert "snapshot" in replay.difference.sentence
    assert replay.difference.logged != replay.difference.caused


def test_broken_invariants_end_with_1(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1. An invariant that never holds. 2. The replay counts it, tells the first ones, and ends with 1."""
    monkeypatch.setattr("trainmaster.twin.replay.broken", lambda state, derived: ["8: nothing is ever right"])
    assert main(["twin", "replay", str(file), "--until", "300", "--watch-every", "2"]) == 1
    told = capsys.readouterr()
    assert "150 times an invariant was broken" in told.err
    assert "event 2: 8: nothing is ever right" in told.err


def test_what_an_event_may_not_do_is_looked_at_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A policy leaves a sound state by a way that is not: it lifts the hold of somebody else. 2. Looking after every
    event finds that; looking now and then does not look for it."""
    wrong = lambda self, state, derived, event, effects: ["7: somebody else's hold was lifted"]  # noqa: E731
    monkeypatch.setattr("trainmaster.twin.replay.Watcher.after", wrong)
    assert main(["twin", "replay", str(file), "--until", "40", "--watch-every", "1"]) == 1
    assert main(["twin", "replay", str(file), "--until", "40", "--watch-every", "2"]) == 0


def test_a_log_is_read_while_it_is_written(run: Run, tmp_path: Path) -> None:
    """1. A server has the log open, with events that are in the journal only. 2. The replay reads them all. 3. Nothing
    in the directory has changed."""
    entries = entries_of(run)[:400]
    log = write(tmp_path / "log.sqlite", entries)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
    assert {"log.sqlite", "log.sqlite-wal"} <= before.keys()
    assert main(["twin", "replay", str(tmp_path / "log.sqlite"), "-o", "json"]) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name in before} == before
    log.close()


def test_a_copy_is_left_alone(file: Path, tmp_path: Path) -> None:
    """1. A copy in a directory of its own. 2. After the replay the copy is alone there, and the same."""
    path = Path(shutil.copy(file, tmp_path))
    assert main(["twin", "replay", str(path), "--until", "50", "-o", "json"]) == 0
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == file.read_bytes()


def test_files_that_are_no_logs(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. No file, a directory, text, another program's database, a log without events, a log with a flipped bit, one
    with a hole, one of another schema. 2. Each is refused with its reason and what to do; no traceback."""

    def refused(path: Path, *more: str) -> str:
        code = main(["twin", "replay", str(path), *more])
        told = capsys.readouterr().err
        assert "Traceback" not in told
        assert "try: " in told
        assert code in (1, 2)
        return told

    def altered(name: str, statement: str) -> Path:
        path = Path(shutil.copy(file, tmp_path / name))
        with sqlite3.connect(path) as db:
            db.execute(statement)
        db.close()
        return path

    assert "there is no such file" in refused(tmp_path / "absent.sqlite")
    assert "it is a directory" in refused(tmp_path)
    text = tmp_path / "text"
    text.write_text("no log at all " * 100)
    assert "is not a Trainmaster log" in refused(text)
    with sqlite3.connect(tmp_path / "other.sqlite") as db:
        db.execute("CREATE TABLE log(idx)")
    db.close()
    assert "another program" in refused(tmp_path / "other.sqlite")
    write(tmp_path / "empty.sqlite", []).close()
    assert "nothing to replay" in refused(tmp_path / "empty.sqlite")
    assert "checksum of event 7" in refused(altered("flipped", "UPDATE log SET crc = crc + 1 WHERE idx = 7"))
    assert "is damaged" in refused(altered("hole", "DELETE FROM log WHERE idx = 7"))
    assert "schema 99" in refused(altered("schema", "PRAGMA user_version = 99"))
    assert "the log has no event 999,999,999" in refused(file, "--until", "999999999")
    cut = tmp_path / "cut"
    cut.write_bytes(file.read_bytes()[: 64 * 1024])
    assert "is damaged" in refused(cut)


def test_another_version_is_told(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A log that another version wrote. 2. It is replayed, with a note of the version."""
    path = Path(shutil.copy(file, tmp_path))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '0.0.1' WHERE key = 'product'")
    db.close()
    assert main(["twin", "replay", str(path), "--until", "20"]) == 0
    assert "trainmaster 0.0.1 wrote this log" in capsys.readouterr().err


def test_waits_are_sampled_evenly(run: Run) -> None:
    """1. A log. 2. The hours that operations waited are the samples' share of the span."""
    report = replayed(entries_of(run))
    span_h = report.span_s / 3600
    for wait in report.waits_by_reason.values():
        assert abs(wait.hours - wait.operations * span_h) < 0.02 * span_h * max(wait.operations, 1)
    assert Instant(START) == report.first_at
