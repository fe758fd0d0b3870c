"""The life of an event: stage, store, publish; and what a crash in each place leaves."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakes.decider import FakeEngine
from tests.fakes.edge import FakeClock, FakeSender

from trainmaster.core.agent.wire import Report
from trainmaster.core.base.ids import BootId, EffectId, HostId, SessionId
from trainmaster.core.base.time import SECOND, Instant
from trainmaster.core.events import AgentReport, LeaseTaken, TimePassed
from trainmaster.core.fleet.events import AgentRegistered, AgentSilent
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.live.adapters.sqlite_log import SqliteLog
from trainmaster.live.server import runtime
from trainmaster.live.server.runtime import EventRefused, Runtime, SessionOver
from trainmaster.ports.event_log import Batch, Entry, LogFull, LogUnusable

N1, N2 = HostId("n1"), HostId("n2")
S1, S2 = SessionId("s1"), SessionId("s2")


class House:
    """A runtime on a real log; `again` is what a restart of the server does."""

    def __init__(self, path: Path, snapshot_every_events: int = 5) -> None:
        self.path = path / "log.sqlite"
        self.clock = FakeClock()
        self.snapshot_every_events = snapshot_every_events
        self.start(SqliteLog(self.path, self.clock.now()))

    def start(self, log: SqliteLog) -> None:
        self.log, self.sender = log, FakeSender()
        self.runtime = Runtime(log, FakeEngine, self.sender, self.clock, self.snapshot_every_events)

    def again(self) -> None:
        """Without any goodbye: only the kernel gives up the lock."""
        self.log.close()
        self.start(SqliteLog(self.path, self.clock.now()))

    def event(self, host: HostId, session: SessionId = S1) -> AgentRegistered:
        return AgentRegistered(
            at=self.clock.now(), host=host, session=session, boot=BootId("b"), address="::1", attempts=()
        )

    def register(self, host: HostId = N1, session: SessionId = S1) -> EffectId:
        self.runtime.submit((self.event(host, session),))
        return self.runtime.engine.pending(host)[-1].id

    def ended(self, effect: EffectId, host: HostId = N1) -> EffectEnded:
        return EffectEnded(at=self.clock.now(), host=host, effect=effect, outcome="done")

    def report(self, number: int, *events: AgentReport, host: HostId = N1, session: SessionId = S1) -> Report:
        return Report(host=host, session=session, number=number, events=events)

    def replayed(self) -> bytes:
        engine = FakeEngine()
        for entry in self.log.read(1, 10_000):
            assert engine.handle(entry.event) == entry.effects
        return engine.snapshot()


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_effects_go_out_only_after_they_are_stored(house: House) -> None:
    """1. A host registers. 2. Staged, nothing is sent. 3. Stored, nothing is sent. 4. Published, the effect is."""
    entry = house.runtime.stage(house.event(N1))
    assert house.log.last_index == 1
    house.runtime.store()
    assert house.log.last_index == 2
    assert house.sender.sent == []
    house.runtime.publish()
    assert house.sender.sent == [(N1, 1, entry.effects[0])]


def test_a_report_counts_once_however_often_it_comes(house: House) -> None:
    """1. Report 1 ends the effect. 2. The same number again is acknowledged and changes nothing. 3. Nor after a crash,
    even with other content."""
    effect = house.register()
    first = house.runtime.submit(reports=(house.report(1, house.ended(effect)),))[0]
    assert (first.number, first.repeated, first.rejected) == (1, False, 0)
    index = house.runtime.engine.index
    assert house.runtime.submit(reports=(house.report(1, house.ended(effect)),))[0].repeated
    assert house.runtime.engine.index == index
    house.again()
    other = house.register()
    again = house.runtime.submit(reports=(house.report(1, house.ended(other)),))[0]
    assert (again.number, again.repeated) == (1, True)
    assert house.runtime.engine.state.done == {N1: 1}


def test_the_same_report_twice_in_one_batch_counts_once(house: House) -> None:
    report = house.report(1, house.ended(house.register()))
    results = house.runtime.submit(reports=(report, report))
    assert [result.repeated for result in results] == [False, True]
    assert house.runtime.engine.state.done == {N1: 1}


def test_a_new_session_counts_from_one_and_the_old_one_is_over(house: House) -> None:
    """1. Session s1 reports up to 7. 2. s2 registers. 3. Its report 1 counts, s1's report 8 is refused."""
    house.register()
    house.runtime.submit(reports=(house.report(7, house.ended(house.runtime.engine.pending(N1)[0].id)),))
    effect = house.register(session=S2)
    with pytest.raises(SessionOver):
        house.runtime.submit(reports=(house.report(8),))
    assert not house.runtime.submit(reports=(house.report(1, house.ended(effect), session=S2),))[0].repeated
    assert house.runtime.engine.state.done == {N1: 2}


def test_an_agent_must_register_under_each_lease(house: House) -> None:
    """1. Registered, then the server restarts. 2. A report is refused. 3. After registering the same session, the
    numbers go on."""
    house.register()
    house.runtime.submit(reports=(house.report(3),))
    house.again()
    assert not house.runtime.is_registered(N1, S1)
    with pytest.raises(SessionOver):
        house.runtime.submit(reports=(house.report(4),))
    house.register()
    assert house.runtime.is_registered(N1, S1)
    assert house.runtime.submit(reports=(house.report(3),))[0].repeated
    assert not house.runtime.submit(reports=(house.report(4),))[0].repeated


def test_an_impossible_event_of_an_agent_is_put_aside_and_acknowledged(house: House) -> None:
    """1. A report with a good, an impossible and another good event. 2. The good ones count; the impossible one is in
    no log and in the rejected ones, with the reason. 3. The state is that of the log. 4. The next report counts."""
    first, second = house.register(N1), house.register(N2)
    bad = house.ended(EffectId("e999.1"))
    result = house.runtime.submit(reports=(house.report(1, house.ended(first), bad),))[0]
    assert (result.number, result.rejected) == (1, 1)
    [rejection] = house.runtime.rejections(10)
    assert rejection.event == bad
    assert "e999.1 is not pending" in rejection.reason
    assert house.runtime.engine.snapshot() == house.replayed()
    third = house.register(N1)
    house.runtime.submit(reports=(house.report(2, bad, house.ended(third)),))
    assert house.runtime.engine.state.done == {N1: 2}
    assert [effect.id for effect in house.runtime.engine.pending()] == [second]
    assert house.runtime.engine.snapshot() == house.replayed()


def test_an_agent_does_not_answer_for_another_host(house: House) -> None:
    """1. n1 claims an outcome of an effect of n2. 2. It is put aside; the effect of n2 is still pending."""
    house.register(N1)
    effect = house.register(N2)
    assert house.runtime.submit(reports=(house.report(1, house.ended(effect)),))[0].rejected == 1
    assert house.runtime.rejections(1)[0].reason == "n1 answers for n2"
    assert house.runtime.engine.pending(N2)[0].id == effect


def test_a_clock_that_runs_ahead_carries_nobody_into_the_future(house: House) -> None:
    """1. An agent's clock is a day ahead. 2. Its event is logged with the time of its arrival."""
    effect = house.register(N1)
    event = house.ended(effect).but(at=Instant(house.clock.now() + 86_400 * SECOND))
    house.runtime.submit(reports=(house.report(1, event),))
    assert house.log.read(house.log.last_index, 1)[0].event.at == house.clock.now()


def test_time_never_stands_or_steps_back(house: House) -> None:
    """1. The wall clock steps back an hour while a second passes. 2. The server's time goes on by a second. 3. So it
    does over a restart."""
    before = house.runtime.now()
    house.clock.wall_offset = -3600 * SECOND
    house.clock.at += SECOND
    house.runtime.submit((TimePassed(at=house.runtime.now()),))
    assert house.log.read(house.log.last_index, 1)[0].event.at == before + SECOND
    house.again()
    assert house.log.read(house.log.last_index, 1)[0].event.at >= before + SECOND


def test_an_impossible_event_of_the_server_is_refused_and_leaves_no_trace(house: House) -> None:
    house.register()
    before = house.runtime.engine.snapshot()
    with pytest.raises(EventRefused, match="AssertionError"):
        house.runtime.submit((TimePassed(at=house.clock.now()), LeaseTaken(at=house.clock.now(), lease=0, by="x")))
    assert house.runtime.engine.snapshot() == before == house.replayed()


def test_a_restart_takes_a_greater_lease_and_pending_effects_keep_their_ids(house: House) -> None:
    effect = house.register()
    house.again()
    assert house.runtime.lease == 2
    assert house.runtime.engine.state.lease == 2
    assert house.sender.sent == []
    assert house.runtime.resend(N1) == 1
    assert [(host, lease, sent.id) for host, lease, sent in house.sender.sent] == [(N1, 2, effect)]
    assert house.runtime.resend(N2) == 0


def test_a_fleet_is_drawn_an_id_once(house: House, tmp_path: Path) -> None:
    """1. The first start draws it. 2. Restarts keep it. 3. Another fleet has another one."""
    drawn = house.runtime.engine.state.fleet
    assert re.fullmatch("[0-9a-f]{8}", drawn)
    house.again()
    assert house.runtime.engine.state.fleet == drawn
    (tmp_path / "other").mkdir()
    other = House(tmp_path / "other")
    assert other.runtime.engine.state.fleet not in ("", drawn)
    other.log.close()


def test_the_engine_is_woken_when_it_asked(house: House) -> None:
    """1. Nobody asked: no event. 2. A wake-up in a second: too early, no event; due, one event."""
    assert not house.runtime.wake(house.clock.now())
    house.runtime.submit((AgentSilent(at=house.clock.now(), host=N1, session=S1, silent_s=3.0),))
    assert not house.runtime.wake(Instant(house.clock.now() + SECOND - 1))
    assert house.runtime.wake(Instant(house.clock.now() + SECOND))
    assert house.runtime.engine.state.counts["TimePassed"] == 1
    assert not house.runtime.wake(Instant(house.clock.now() + 2 * SECOND))


def test_watchers_see_every_entry_once_and_in_order(house: House) -> None:
    seen: list[Entry] = []
    house.runtime.watchers.append(seen.extend)
    house.register(N1)
    house.register(N2)
    assert [entry.index for entry in seen] == [2, 3]
    assert seen == list(house.runtime.read(2, 10))


def test_snapshots_shorten_the_replay_and_a_broken_one_only_lengthens_it(house: House) -> None:
    """1. Events past two snapshots. 2. A restart reads only the rest. 3. With the newest snapshot broken, and with all
    broken, the state is the same."""
    for _ in range(12):
        house.register()
    live = house.runtime.engine.snapshot()
    newest = next(house.log.snapshots())
    assert 0 < newest.index <= house.log.last_index
    for broken in ("SELECT max(idx) FROM snapshots", "SELECT idx FROM snapshots"):
        house.log._db.execute(f"UPDATE snapshots SET state = x'00' WHERE idx IN ({broken})")
        house.runtime.reload()
        assert house.runtime.engine.snapshot() == live


def test_a_large_state_waits_until_the_log_has_grown_by_as_much(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Five events suffice for a small state. 2. With a snapshot as large as many events, they do not any more. 3. A
    restart, which reads the size of the snapshot that it finds, asks for as many. 4. As many events do."""
    while not list(house.log.snapshots()):
        house.register()
    first = next(house.log.snapshots())
    least = 20
    monkeypatch.setattr(runtime, "EVENT_BYTES", len(first.state) // least)
    house.again()
    house.again()
    while house.log.last_index < first.index + least - 1:
        house.register()
        assert next(house.log.snapshots()).index == first.index
    house.register()
    house.register()
    assert next(house.log.snapshots()).index > first.index


def test_another_program_on_the_same_log_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A log. 2. The code changes so that a registration has no effects. 3. A replay says so and stops."""
    house.register()
    house.log.close()
    monkeypatch.setattr(FakeEngine, "handle", lambda self, event: setattr(self.state, "index", self.index + 1) or ())
    with pytest.raises(LogUnusable, match="event 2 of the log can't be replayed"):
        house.start(SqliteLog(house.path, house.clock.now()))
    house.log.close()


def test_a_full_disk_is_told_and_then_forgotten(house: House) -> None:
    """1. No space. 2. The submission fails with LogFull, nothing is sent, the state is that of the log, and the host is
    not registered. 3. With space again the next one succeeds."""
    pages = house.log._db.execute("PRAGMA page_count").fetchone()[0]
    house.log._db.execute(f"PRAGMA max_page_count = {pages}")
    before = house.runtime.engine.snapshot()
    many = [house.event(HostId(f"n{number}")) for number in range(200)]
    with pytest.raises(LogFull):
        house.runtime.submit(many)
    assert house.sender.sent == []
    assert not house.runtime.is_registered(HostId("n1"), S1)
    assert house.runtime.engine.snapshot() == before == house.replayed()
    house.log._db.execute("PRAGMA max_page_count = 100000")
    house.register()
    assert len(house.sender.sent) == 1


class Crash(Exception):
    """The process is gone."""


class CrashingLog(SqliteLog):
    """Dies at the n-th write, before or after it is durable."""

    writes_left = 1_000_000
    after_commit = False

    def append(self, batch: Batch) -> None:
        self._write(lambda: SqliteLog.append(self, batch))

    def save_snapshot(self, snapshot: object) -> None:
        self._write(lambda: SqliteLog.save_snapshot(self, snapshot))

    def _write(self, write: object) -> None:
        self.writes_left -= 1
        if self.writes_left > 0:
            write()
            return
        if self.after_commit:
            write()
        raise Crash


class Agent:
    """Keeps its reports until they are acknowledged, and does what it is sent once per id."""

    def __init__(self, host: HostId, session: SessionId) -> None:
        self.host, self.session = host, session
        self.journal: set[EffectId] = set()
        self.unacknowledged: list[Report] = []
        self.number = 0

    def carry_out(self, sent: Sequence[tuple[HostId, int, object]], at: Instant) -> None:
        for host, _, effect in sent:
            if host == self.host and effect.id not in self.journal:
                self.journal.add(effect.id)
                self.number += 1
                outcome = EffectEnded(at=at, host=self.host, effect=effect.id, outcome="done")
                self.unacknowledged.append(
                    Report(host=self.host, session=self.session, number=self.number, events=(outcome,))
                )

    def talk(self, house: House) -> None:
        """Register, receive what is pending, report; as after a reconnect."""
        house.register(self.host, self.session)
        house.runtime.resend(self.host)
        for _ in range(2):
            self.carry_out(house.sender.sent, house.clock.now())
            while self.unacknowledged:
                house.runtime.submit(reports=(self.unacknowledged[0],))
                self.unacknowledged.pop(0)


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("crash_at", range(1, 16))
def test_a_crash_at_any_write_loses_and_doubles_nothing(tmp_path: Path, crash_at: int, after_commit: bool) -> None:
    """1. Two agents register, carry out what they are sent and report, three times over. 2. The server dies at its n-th
    write, before or after the commit, and starts again; the agents reconnect. 3. At the end every effect was carried
    out once and reported once, and the state is that of the log."""
    house = House(tmp_path)
    house.log.close()
    agents = [Agent(N1, S1), Agent(N2, S2)]
    crashed = False
    rounds = 0
    log = CrashingLog(house.path, house.clock.now())
    log.writes_left, log.after_commit = crash_at, after_commit
    while rounds < 3:
        try:
            if log is not None:
                house.log, log = log, None
                house.start(house.log)
            for agent in agents:
                agent.talk(house)
            rounds += 1
        except Crash:
            assert not crashed
            crashed = True
            house.log.close()
            log = CrashingLog(house.path, house.clock.now())
    for agent in agents:
        agent.talk(house)
    assert crashed
    assert house.runtime.engine.pending() == ()
    assert house.runtime.engine.state.done == {agent.host: len(agent.journal) for agent in agents}
    assert house.runtime.rejections(10) == []
    assert house.runtime.engine.snapshot() == house.replayed()
    house.runtime.reload()
    assert house.runtime.engine.snapshot() == house.replayed()


def test_several_events_are_applied_or_none(house: House) -> None:
    """1. Something is staged. 2. Of two events that belong together the second is impossible. 3. Neither is left, what
    was staged before is, and the log gets just that."""
    house.register()
    before = house.runtime.engine.index
    house.runtime.stage(TimePassed(at=house.runtime.now()))
    bad = EffectEnded(at=house.runtime.now(), host=N1, effect=EffectId("e999.1"), outcome="done")
    with pytest.raises(EventRefused):
        house.runtime.stage_all(lambda: (TimePassed(at=house.runtime.now()), bad))
    assert house.runtime.engine.index == before + 1
    house.runtime.store()
    house.runtime.publish()
    assert [entry.index for entry in house.runtime.read(before + 1, 10)] == [before + 1]
