"""The watch over running jobs: it asks only where a job leaves its own pace, and what it finds stays with the job."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.diagnosis.rings import Run

from trainmaster.core.agent.board import Phase
from trainmaster.core.agent.wire import GroupProgress, Heartbeat, Query, RankProgress
from trainmaster.core.base.ids import AttemptId, HostId, SessionId
from trainmaster.core.base.time import Duration, Instant
from trainmaster.core.base.value import encode
from trainmaster.core.diagnosis.answer import Kind
from trainmaster.core.recovery.attempt import AttemptState
from trainmaster.core.recovery.events import HangFound
from trainmaster.core.scheduling.job import FailureNote
from trainmaster.core.scheduling.request import HangPolicy, JobSpec
from trainmaster.live.server import views
from trainmaster.live.server.diagnosis import Watch
from trainmaster.live.server.liveview import LiveView

ATTEMPT = AttemptId("job-1.a1")
HOSTS = (HostId("h1"), HostId("h2"))


class Fleet:
    """Two hosts that answer with what a simulated run shows, and the service that the watch sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = Run().steps(1)
        self.asked = 0
        self.silent = False
        self.phase = Phase.TRAINING
        self.live = LiveView()
        self.at_s = 0.0
        self.settings = SimpleNamespace(query_timeout_s=1.0)
        self.links = self
        epoch = SimpleNamespace(number=1, restored_step=-1)
        attempt = SimpleNamespace(id=ATTEMPT, epochs=[epoch], epoch=epoch, members=HOSTS, state=AttemptState.RUNNING,
                                  undecided=False, hosts_of=lambda _: HOSTS)  # fmt: skip
        self.attempt = attempt
        spec = JobSpec(name="llama", command=("true",), hosts=2, ranks_per_host=2)
        self.job = job = SimpleNamespace(id="job-1", spec=spec, failures=())
        self.ended: list[HangFound] = []
        self.state = SimpleNamespace(jobs={"job-1": job})
        monkeypatch.setattr(views, "newest_attempt", lambda *_: attempt)
        self.watch = Watch(cast(Any, self))

    def now(self) -> Instant:
        return Instant(self.run.now_us)

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[Any]:
        yield SimpleNamespace(engine=SimpleNamespace(state=self.state))

    async def ask(self, host: HostId, query: Query, timeout_s: float) -> bytes | None:
        self.asked += 1
        assert (query.kind, query.attempt, query.epoch) == ("rings", ATTEMPT, 1)
        return None if self.silent else encode(self.run.rings()[HOSTS.index(host)])

    async def command(self, decide: Callable[[Any], object]) -> object:
        return decide(SimpleNamespace(stage=self.ended.append))

    def beat(self, step_at_us: int) -> None:
        """A heartbeat of each host, and a look of the watch."""
        for index, host in enumerate(HOSTS):
            ranks = tuple(
                RankProgress(rank=rank, phase=int(self.phase), step=self.run.step, step_at=Instant(step_at_us),
                             loss=None, step_s=0.1, published_step=-1)
                for rank in (2 * index, 2 * index + 1)
            )  # fmt: skip
            group = GroupProgress(attempt=ATTEMPT, epoch=1, ranks=ranks)
            beat = Heartbeat(host=host, session=SessionId("s"), at=self.now(), groups=(group,))
            self.live.beat(beat, self.now())
        asyncio.run(self.watch.once())

    def found(self) -> Kind | None:
        known = self.live.diagnosis(ATTEMPT, 1)
        return known.diagnosis.kind if known is not None else None


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet(monkeypatch)
    for _ in range(10):
        made.run.steps(10)
        made.beat(made.run.now_us)
    assert (made.asked, made.found()) == (2, None), "a job that keeps its pace is asked once, at its start"
    made.asked = 0
    return made


def test_a_rank_that_stands(fleet: Fleet) -> None:
    """1. A rank stops. 2. Within the bound nobody is asked; within twice the bound it is named. 3. It goes on: the
    alarm is taken back without another question."""
    last_us = fleet.run.now_us
    fleet.run.hang(1.5, missing=(2,))
    fleet.beat(last_us)
    assert fleet.asked == 0
    for _ in range(5):
        fleet.run.now_us += 500_000
        fleet.beat(last_us)
    assert fleet.found() is Kind.USER_CODE_STALL
    known = fleet.live.diagnosis(ATTEMPT, 1)
    assert known is not None
    assert "rank 2" in views.held_up(known).sentence
    asked = fleet.asked
    fleet.run.step += 1
    fleet.run.now_us += 100_000
    fleet.beat(fleet.run.now_us)
    assert (fleet.found(), fleet.asked) == (None, asked)


def test_a_stop_that_ends_beside_a_look_teaches_nothing(fleet: Fleet) -> None:
    """1. A rank stops for 6.5 s and is named. 2. It goes on; a look sees that before a heartbeat tells of a step, and
    takes the alarm back. 3. However often that comes, the next stop is named as soon as the first: it is no habit."""
    for _ in range(4):
        last_us, stood = fleet.run.now_us, fleet.run.hang(3.6, missing=(2,))
        fleet.beat(last_us)
        assert fleet.found() is Kind.USER_CODE_STALL
        fleet.run = Run()
        fleet.run.step, fleet.run.now_us = stood.step, stood.now_us + 3_000_000
        fleet.run.steps(1).step = stood.step
        fleet.beat(last_us)
        assert fleet.found() is None
        for count in (1, 10, 10):
            fleet.run.steps(count)
            fleet.beat(fleet.run.now_us)


def test_a_save_has_its_time(fleet: Fleet) -> None:
    """1. A save of a minute. 2. Nobody is asked; after ten minutes they are."""
    last_us, fleet.phase = fleet.run.now_us, Phase.SAVING
    fleet.run.hang(60, missing=(0,))
    fleet.beat(last_us)
    assert fleet.asked == 0
    fleet.run.now_us += 600_000_000
    fleet.beat(last_us)
    assert fleet.asked >= 2


def test_a_job_that_becomes_slower(fleet: Fleet) -> None:
    """1. One rank takes three times as long. 2. After two heartbeats it is named, and stays so while it is slow."""
    for number in range(4):
        fleet.run.steps(4, lambda step, rank: 0.3 if rank == 1 else 0.1)
        fleet.beat(fleet.run.now_us)
        assert (fleet.found() is None) == (number < 1)
    assert fleet.found() is Kind.STRAGGLER


def test_a_rank_that_is_slow_from_the_first_step_on(fleet: Fleet) -> None:
    """1. Another epoch, in which rank 3 takes three times as long from its first step on: no pace changes. 2. It is
    named all the same, when some steps are done. 3. It stays named, without a question at each heartbeat."""
    fleet.watch = Watch(cast(Any, fleet))
    fleet.run = Run()
    for _ in range(6):
        fleet.run.steps(5, lambda step, rank: 0.3 if rank == 3 else 0.1)
        fleet.beat(fleet.run.now_us)
    assert fleet.found() is Kind.STRAGGLER
    known = fleet.live.diagnosis(ATTEMPT, 1)
    assert known is not None
    assert known.diagnosis.slow_ranks == (3,)
    assert fleet.asked <= 4


def test_a_job_that_goes_on_between_two_hosts(fleet: Fleet) -> None:
    """1. A long pause has just ended: the second host is read a moment later, when its ranks are far ahead. 2. The next
    look shows that all go on: no alarm."""
    last_us = fleet.run.now_us
    fleet.run.hang(4, missing=(2,))
    before, fleet.run = fleet.run, Run().steps(110)
    fleet.run.now_us = before.now_us + 1000
    told = {0: before.rings(), 1: fleet.run.rings()}
    answers = iter([encode(told[0][0]), encode(told[1][1])])
    later = fleet.ask

    async def ask(host: HostId, query: Query, timeout_s: float) -> bytes | None:
        return next(answers, None) or await later(host, query, timeout_s)

    fleet.ask = ask  # type: ignore[method-assign]
    fleet.beat(last_us)
    assert fleet.found() is None


def test_nobody_answers(fleet: Fleet) -> None:
    """1. The job stands and no agent answers. 2. Nothing is claimed, and the watch goes on."""
    fleet.silent = True
    last_us = fleet.run.now_us
    fleet.run.hang(30, missing=(2,))
    fleet.beat(last_us)
    assert (fleet.asked, fleet.found()) == (2, None)


def test_an_ended_job_is_forgotten(fleet: Fleet) -> None:
    last_us = fleet.run.now_us
    fleet.run.hang(30, missing=(2,))
    fleet.beat(last_us)
    assert fleet.found() is Kind.USER_CODE_STALL
    fleet.attempt.state = AttemptState.FINISHED
    asyncio.run(fleet.watch.once())
    assert fleet.found() is None


def test_stops_that_were_named_teach_nothing(fleet: Fleet) -> None:
    """1. A rank stands for a minute, again and again, and is named each time. 2. The bound stays what it was."""
    for _ in range(4):
        last_us = fleet.run.now_us
        for _ in range(4):
            fleet.run.now_us += 1_500_000
            fleet.run.states[1] = "T"
            fleet.beat(last_us)
        assert fleet.found() is Kind.PROCESS_STOPPED
        fleet.run.states[1] = "R"
        fleet.run.steps(1)
        fleet.beat(fleet.run.now_us)
        assert fleet.found() is None
        fleet.run.steps(5)
        fleet.beat(fleet.run.now_us)
    (pace,) = fleet.watch._paces.values()
    assert pace.bound().bound_s == 3.0


# --- hangs are ended


def stand(fleet: Fleet, last_us: int, seconds: float) -> None:
    """So much time, with two looks a second."""
    for _ in range(round(2 * seconds)):
        fleet.run.now_us += 500_000
        fleet.beat(last_us)


def test_a_stopped_process_is_ended_when_it_was_named_twice(fleet: Fleet) -> None:
    """1. A rank is stopped. 2. Beyond the bound it is named. 3. The next look says the same: it is ended, by rank."""
    last_us = fleet.run.now_us
    fleet.run.states[1] = "T"
    fleet.run.hang(3.1, missing=(1,))
    fleet.beat(last_us)
    assert (fleet.found(), fleet.ended) == (Kind.PROCESS_STOPPED, [])
    stand(fleet, last_us, 1.0)
    first = fleet.ended[0]
    assert (first.attempt, first.epoch, first.kind, first.ranks) == (ATTEMPT, 1, Kind.PROCESS_STOPPED, (1,))
    assert 3.1 < first.still_s < 5.0
    assert first.bound_s == 3.0


def test_code_of_its_own_has_time(fleet: Fleet) -> None:
    """1. A rank stands in code of its own: named, and left alone for half a minute. 2. Then it is ended. 3. After a
    restart that it led to, it has four times as long."""
    last_us = fleet.run.now_us
    fleet.run.hang(3.5, missing=(2,))
    stand(fleet, last_us, 26.0)
    assert (fleet.found(), fleet.ended) == (Kind.USER_CODE_STALL, [])
    stand(fleet, last_us, 8.0)
    assert {event.ranks for event in fleet.ended} == {(2,)}
    fleet.ended.clear()
    note = FailureNote(at=fleet.now(), signature="hang: user-code-stall", at_start=False, host=HOSTS[1], rank=2)
    fleet.job.failures = (note,)
    stand(fleet, last_us, 60.0)
    assert not fleet.ended
    stand(fleet, last_us, 45.0)
    assert fleet.ended


def test_the_job_file_states_the_bound(fleet: Fleet) -> None:
    """1. A step may take eight seconds. 2. Before that nobody is asked; after it the rank is ended."""
    fleet.job.spec = fleet.job.spec.but(hangs=HangPolicy(bound=Duration(8_000_000)))
    last_us = fleet.run.now_us
    fleet.run.hang(3.5, missing=(2,))
    stand(fleet, last_us, 4.0)
    assert fleet.asked == 0
    stand(fleet, last_us, 3.0)
    assert {(event.ranks, event.bound_s) for event in fleet.ended} == {((2,), 8.0)}


def test_it_can_be_switched_off(fleet: Fleet) -> None:
    fleet.job.spec = fleet.job.spec.but(hangs=HangPolicy(recover=False))
    last_us = fleet.run.now_us
    fleet.run.states[1] = "T"
    fleet.run.hang(3.5, missing=(1,))
    stand(fleet, last_us, 60.0)
    assert (fleet.found(), fleet.ended) == (Kind.PROCESS_STOPPED, [])


def test_a_server_that_has_just_started(fleet: Fleet) -> None:
    """1. The job stands when the server starts: it has seen no step. 2. The ranks are asked, and their rings know the
    pace: the rank is named and ended."""
    last_us = fleet.run.now_us
    fleet.run.states[1] = "T"
    fleet.run.hang(3.5, missing=(1,))
    fleet.watch, fleet.live = Watch(cast(Any, fleet)), LiveView()
    stand(fleet, last_us, 2.0)
    assert fleet.ended
