"""The server is stopped at every single write of a scripted scenario, before and after the commit, and must finish it.

1. Five hosts come up, a job of three hosts with a spare starts. 2. A host dies and comes back. 3. A worker is killed.
4. Another host is drained and resumed. 5. The job finishes. At write n the server dies: before the commit (nothing of
it is in the log) or after it (stored, but no effect was sent and nobody was answered). It comes back on the same log;
agents register again and send what was not acknowledged. Each run must end like the undisturbed one: job finished, no
rank of an epoch launched twice, every resume from the newest published step, all hosts ready.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sim.world import Agent, World
from trainmaster.core.agent.wire import Report
from trainmaster.core.base.ids import HostId, JobId, Owner, SessionId
from trainmaster.core.base.time import Duration, Instant, seconds
from trainmaster.core.effects import AnyEffect
from trainmaster.core.engine import Engine
from trainmaster.core.events import AnyEvent, DrainRequested, FleetDeclared, JobSubmitted, ResumeRequested
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.invariants import broken
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.scheduling.request import CheckpointPolicy, JobSpec
from trainmaster.live.adapters.sqlite_log import SqliteLog
from trainmaster.live.server.runtime import Runtime, SessionOver
from trainmaster.ports.event_log import Batch

HOSTS = tuple(HostId(f"h{n}") for n in range(5))
JOB = JobId("job-1")
STRIDE = int(os.environ.get("TRAINMASTER_STEP_STRIDE", "4"))
"""Every n-th write is tried; 1 tries all."""


class Crash(BaseException):
    """The server process is gone."""


class CrashingLog(SqliteLog):
    """Dies at one write."""

    crash_at: int | None = None
    after_commit: bool = False
    writes: int = 0

    def append(self, batch: Batch) -> None:
        self.writes += 1
        if self.writes == self.crash_at and not self.after_commit:
            raise Crash
        super().append(batch)
        if self.writes == self.crash_at:
            raise Crash


class NumberedWorld(World):
    """Agents number their reports, keep them until acknowledged and send them again after each registration."""

    def __init__(self, server: "Server") -> None:
        super().__init__(7, server.submit, total_steps=30, save_every=5)
        self.server = server
        self.kept: dict[HostId, list[AnyEvent]] = {}
        self.acknowledged: dict[HostId, int] = {}

    def register(self, agent: Agent) -> None:
        if not agent.up or not self.server_up or agent.heard:
            return
        agent.session += 1
        self.acknowledged[agent.host] = 0
        super().register(agent)
        if self.server_up:
            self.server.resend(agent.host)
            self.flush(agent)

    def report(self, agent: Agent, event: AnyEvent) -> None:
        if agent.up:
            self.kept.setdefault(agent.host, []).append(event)
            self.flush(agent)

    def flush(self, agent: Agent) -> None:
        kept = self.kept.get(agent.host, [])
        while kept and self.server_up and agent.heard:
            number = self.acknowledged[agent.host] + 1
            report = Report(
                host=agent.host,
                session=SessionId(f"s{agent.session}"),
                number=number,
                events=(kept[0],),  # type: ignore[arg-type]
            )
            if not self.server.report(report):
                return
            self.acknowledged[agent.host] = number
            kept.pop(0)

    def kill_host(self, host: HostId) -> None:
        super().kill_host(host)
        self.kept[host] = []


class Server:
    """The server's runtime on a real log, and its death."""

    def __init__(self, path: Path, crash_at: int | None, after_commit: bool) -> None:
        self.path, self.crash_at, self.after_commit = path, crash_at, after_commit
        self.crashed = False
        self.sent: list[AnyEffect] = []
        self.world = NumberedWorld(self)
        self.log: CrashingLog
        self.runtime: Runtime
        self.open()

    def now(self) -> Instant:
        return self.world.now

    def elapsed(self) -> Duration:
        return Duration(self.world.now)

    def send(self, host: HostId, lease: int, effect: AnyEffect) -> None:
        self.sent.append(effect)
        self.world.deliver(effect)

    def open(self) -> None:
        self.log = CrashingLog(self.path, self.world.now)
        if not self.crashed:
            self.log.crash_at, self.log.after_commit = self.crash_at, self.after_commit
        self.runtime = Runtime(self.log, Engine, self, self, snapshot_every_events=20)

    def die(self) -> None:
        """As a SIGKILL: nothing is flushed, the lock falls with the process."""
        self.crashed = True
        self.log.close()
        self.world.server_down()
        self.world.at(1.5, self.come_back)

    def come_back(self) -> None:
        self.open()
        self.world.server_back()

    def submit(self, event: AnyEvent) -> None:
        try:
            self.runtime.submit((event,))
            self.check()
        except Crash:
            self.die()

    def report(self, report: Report) -> bool:
        try:
            self.runtime.submit(reports=(report,))
            self.check()
        except Crash:
            self.die()
            return False
        except SessionOver:
            return False
        return True

    def resend(self, host: HostId) -> None:
        self.runtime.resend(host)

    def check(self) -> None:
        engine = self.runtime.engine
        assert isinstance(engine, Engine)
        wrong = broken(engine.state, engine._derived)
        assert not wrong, wrong
        assert not self.log.rejections(1)

    @property
    def engine(self) -> Engine:
        engine = self.runtime.engine
        assert isinstance(engine, Engine)
        return engine


def person(server: Server, event: AnyEvent) -> None:
    """Somebody asks, and asks again if the server died before it answered."""
    if not server.world.server_up:
        server.world.at(0.5, lambda: person(server, event))
        return
    before = server.runtime.engine.index
    server.submit(event)
    if not server.world.server_up:
        server.world.at(2.0, lambda: ask_again(server, event, before))


def ask_again(server: Server, event: AnyEvent, before: int) -> None:
    """The asker looks first whether it was taken."""
    taken = [entry.event for entry in server.runtime.read(before + 1, 1000)]
    if event not in taken:
        person(server, event)


def spec_of(number: int, host: HostId) -> HostSpec:
    return HostSpec(id=host, cluster="c", pod="p", rack=f"r{number // 2}", platform="laptop", gpus=0)  # type: ignore[arg-type]


def drain_a_member(server: Server, by: Owner) -> None:
    """The last member, whoever that is by now; resumed a while later."""
    world = server.world
    if not world.server_up:
        world.at(0.5, lambda: drain_a_member(server, by))
        return
    attempts = list(server.engine.state.attempts.values())
    hosts = (attempts[-1].members[-1],)
    person(server, DrainRequested(at=world.now, hosts=hosts, reason="firmware", by=by))
    world.at(14.0, lambda: person(server, ResumeRequested(at=world.now, hosts=hosts, reason="done", by=by)))


def play(server: Server) -> None:
    world, by = server.world, Owner("person:ops")
    fleet = tuple(spec_of(number, host) for number, host in enumerate(HOSTS))
    job = JobSpec(
        name="demo",
        command=("python", "t.py"),
        hosts=3,
        spares=1,
        checkpoint=CheckpointPolicy(directory="/c", every_steps=5),
    )
    world.at(0.0, lambda: person(server, FleetDeclared(at=world.now, hosts=fleet, by=by)))
    for host in HOSTS:
        world.at(4.0, lambda host=host: world.power_on(host))
    world.at(1.0, lambda: person(server, JobSubmitted(at=world.now, spec=job, by=by)))
    world.at(14.0, lambda: world.kill_host(HOSTS[0]))
    world.at(20.0, lambda: world.power_on(HOSTS[0]))
    world.at(28.0, lambda: world.kill_worker(JOB))
    world.at(36.0, lambda: drain_a_member(server, by))
    world.at(62.0, lambda: None)
    while not done(server):
        assert world.now < seconds(300), server.engine.state
        due, upcoming = server.runtime.engine.next_wake(), world.next_at()
        if world.server_up and due is not None and (upcoming is None or due <= upcoming):
            world.now = max(world.now, due)
            try:
                server.runtime.wake(world.now)
            except Crash:
                server.die()
        else:
            world.step()


def done(server: Server) -> bool:
    state = server.engine.state
    finished = JOB in state.jobs and state.jobs[JOB].state is JobState.FINISHED
    settled = all(host.state is HostState.READY and host.is_free() for host in state.hosts.values())
    return finished and settled and server.world.now > seconds(60)


def run(path: Path, crash_at: int | None, after_commit: bool) -> Server:
    server = Server(path, crash_at, after_commit)
    try:
        play(server)
    finally:
        server.log.close()
    check(server)
    return server


def check(server: Server) -> None:
    state = server.engine.state
    attempt = state.attempts[state.jobs[JOB].attempts[-1]]
    assert state.jobs[JOB].attempts == (attempt.id,), "the job re-forms in place"
    assert [epoch.ended_by for epoch in attempt.epochs][-1] == "finished"
    assert "yielded" in [epoch.ended_by for epoch in attempt.epochs]
    for name, epoch, restored, newest in server.world.resumed_from:
        assert restored == newest, (name, epoch)
    assert attempt.epochs[-1].last_step == server.world.total_steps
    assert not state.pending


def writes_of_undisturbed_run(folder: Path) -> int:
    folder.mkdir()
    return run(folder / "log.db", None, False).log.writes


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> int:
    return writes_of_undisturbed_run(tmp_path_factory.mktemp("undisturbed") / "run")


def crashes(writes: int) -> Sequence[tuple[int, bool]]:
    return [(write, after) for write in range(2, writes + 1, STRIDE) for after in (False, True)]


def test_the_scenario_has_many_writes(writes: int) -> None:
    assert writes > 60


def test_a_crash_at_every_write(writes: int, tmp_path: Path) -> None:
    for write, after in crashes(writes):
        try:
            server = run(tmp_path / f"{write}-{after}.db", write, after)
            assert server.crashed
        except BaseException as error:
            error.add_note(f"the server died {'after' if after else 'before'} the commit of write {write} of {writes}")
            raise
