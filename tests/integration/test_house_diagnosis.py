"""A job of four ranks on two hosts gets into every kind of trouble; what holds it up is named, live.

Each trouble falls upon one rank; with TRAINMASTER_HANGS=4 upon each in turn, and more with more. Hangs are only named
here, so that there is time to look at them; `test_house_hangs` sees them end.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.house import SCRIPTS, House, as_json, job, running, wait

from trainmaster.core.diagnosis.answer import Kind
from trainmaster.core.diagnosis.live import LiveDiagnosis
from trainmaster.core.diagnosis.stacks import JobStacks
from trainmaster.core.scheduling.request import HangPolicy

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]
RANKS = range(4)
TURNS = int(os.environ.get("TRAINMASTER_HANGS", "1"))
EVERY = 40
"""Steps between saves."""
PRELOADED = ("torch", "trainmaster.training.runtime")


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with running(hosts=2) as fleet:
        yield fleet


def turns(first: int) -> list[int]:
    """The ranks that have their turn."""
    return [(first + turn) % len(RANKS) for turn in range(TURNS)]


class Trouble:
    """A job that does as it is told, and the alarms that are raised for it."""

    def __init__(self, house: House, directory: Path, *words: str, recover: bool = False) -> None:
        self.house, self.directory = house, directory
        directory.mkdir()
        command = ("python", str(SCRIPTS / "troubled.py"), str(directory), *words)
        hangs = HangPolicy(recover=recover)
        self.name = house.submit(
            job("troubled", command, every=EVERY, ranks_per_host=2, preload=PRELOADED, hangs=hangs)
        )

    def tell(self, word: str, *ranks: int) -> None:
        for rank in ranks:
            (self.directory / str(rank)).write_text(word)

    def forget(self) -> None:
        for rank in RANKS:
            (self.directory / str(rank)).unlink(missing_ok=True)

    def step(self) -> int:
        return self.house.detail(self.name).job.step

    def steps(self, more: int) -> None:
        goal = self.step() + more
        wait(f"step {goal}", lambda: self.step() >= goal)

    def alarm(self) -> str:
        """What the job shows by itself, without being asked."""
        reason = self.house.detail(self.name).job.reason
        return reason.sentence if reason is not None else ""

    def look(self) -> LiveDiagnosis:
        return self.house.get(f"/v1/jobs/{self.name}/diagnosis", LiveDiagnosis)

    def quiet_for(self, seconds: float) -> None:
        """No alarm at all within this time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert not self.alarm(), self.alarm()
            time.sleep(0.05)

    def quiet_until_step(self, step: int) -> None:
        """No alarm at all until this step."""

        def reached() -> bool:
            assert not self.alarm(), self.alarm()
            return self.step() >= step

        wait(f"step {step}", reached)

    def named(self, kind: Kind, since: float) -> LiveDiagnosis:
        """The alarm comes by itself, within twice the bound; then what a look says."""
        wait(f"an alarm of {kind}", lambda: self.alarm().startswith(kind.value))
        took_s = time.monotonic() - since
        found = wait(f"a look says {kind}", lambda: self.seen(kind))  # an agent of a busy machine may be late once
        assert took_s < 2 * found.bound_s, (took_s, found.bound)
        return found

    def seen(self, kind: Kind) -> LiveDiagnosis | None:
        found = self.look()
        return found if found.diagnosis.kind is kind else None

    def told(self) -> dict[str, object]:
        """What the command line says in JSON."""
        return as_json(self.house.cli("job", "diagnose", self.name, "-o", "json").stdout)


@pytest.fixture(autouse=True)
def forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """A trouble ends with its test, also if that fails."""
    yield
    if "trouble" in request.fixturenames:
        request.getfixturevalue("trouble").forget()


@pytest.fixture(scope="module")
def trouble(house: House) -> Trouble:
    return begun(house, "trouble")


def begun(house: House, name: str, *words: str, recover: bool = False) -> Trouble:
    found = Trouble(house, house.state / name, *words, recover=recover)
    wait("it trains", lambda: house.detail(found.name).job.attempt_state == "running")
    return found


def test_no_false_alarm(house: House) -> None:
    """1. A first step of 3.5 s, a save in which rank 0 takes 4 s, an evaluation of 4 s on rank 1, and one of 5 s that
    is told by the mode of the model alone. 2. Nobody is alarmed; whoever asks meanwhile is told that nothing
    hangs. 3. Nobody is ended either."""
    trouble = begun(house, "quiet", recover=True)
    trouble.quiet_until_step(20)
    trouble.tell("save 4", 0)
    trouble.quiet_until_step(EVERY + 5)
    trouble.forget()
    trouble.tell("evaluate 4", 1)
    trouble.quiet_for(2.0)
    assert trouble.look().diagnosis.kind in (Kind.NONE, Kind.SLOW_PHASE)
    trouble.forget()
    trouble.quiet_until_step(trouble.step() + 5)
    trouble.tell("mode 5", 1)
    trouble.quiet_for(4.0)
    trouble.forget()
    trouble.quiet_until_step(trouble.step() + 5)
    assert house.detail(trouble.name).job.epoch == 1
    house.settle()


@pytest.mark.parametrize("rank", turns(2))
def test_a_rank_that_is_slow(trouble: Trouble, rank: int) -> None:
    """1. A rank takes three times as long for its part. 2. It is named, and no other. 3. It is over when it is over."""
    trouble.steps(40)
    since = time.monotonic()
    trouble.tell("slow 3", rank)
    found = trouble.named(Kind.STRAGGLER, since)
    assert found.diagnosis.slow_ranks == (rank,)
    trouble.forget()
    wait("the alarm is taken back", lambda: not trouble.alarm())


def test_a_rank_whose_loader_is_slow(trouble: Trouble) -> None:
    """1. The data of rank 3 comes 0.2 s late in each step. 2. Rank, host and milliseconds are named, live and by
    `job show`; no host is blamed. 3. It is over when it is over."""
    trouble.steps(40)
    since = time.monotonic()
    trouble.tell("data 0.2", 3)
    found = trouble.named(Kind.STRAGGLER, since)
    wait("it is the data", lambda: "rank 3 on h2 waits for data" in trouble.look().diagnosis.summary)
    found = trouble.look()
    assert (found.diagnosis.slow_ranks, found.diagnosis.hosts) == ((3,), ())
    milliseconds = int(re.findall(r"data: (\d+) ms", found.diagnosis.summary)[0])
    assert 200 <= milliseconds < 1000
    wait("it is shown", lambda: "rank 3 on h2 waits for data" in trouble.house.cli("job", "show", trouble.name).stdout)
    trouble.forget()
    wait("the alarm is taken back", lambda: not trouble.alarm())


@pytest.mark.parametrize("rank", turns(1))
def test_a_rank_that_is_stopped(trouble: Trouble, rank: int) -> None:
    """1. A rank gets SIGSTOP. 2. It is named as stopped. 3. Its stack is seen all the same. 4. SIGCONT: it goes on."""
    trouble.steps(20)
    process = trouble.house.worker(trouble.name, rank)
    since = time.monotonic()
    os.kill(process.pid, signal.SIGSTOP)
    try:
        found = trouble.named(Kind.PROCESS_STOPPED, since)
        assert found.diagnosis.missing_ranks == (rank,)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    wait("the alarm is taken back", lambda: not trouble.alarm())


@pytest.mark.parametrize("rank", turns(3))
def test_a_rank_that_stands_in_its_own_code(trouble: Trouble, rank: int) -> None:
    """1. A rank waits in its loop for a file. 2. It is named, the others wait. 3. Its stack stands alone."""
    trouble.steps(20)
    since = time.monotonic()
    trouble.tell("stall", rank)
    found = trouble.named(Kind.USER_CODE_STALL, since)
    others = tuple(other for other in RANKS if other != rank)
    assert (found.diagnosis.missing_ranks, found.diagnosis.waiting_ranks) == ((rank,), others)
    assert found.diagnosis.hosts == ()
    stacks = trouble.house.get(f"/v1/jobs/{trouble.name}/stacks", JobStacks)
    assert stacks.groups[0].ranks == (rank,)
    assert any("troubled.py" in frame for frame in stacks.groups[0].frames)
    wanted = ("user-code-stall", [rank])
    wait("the command says so", lambda: ((told := trouble.told())["kind"], told["missing_ranks"]) == wanted)
    host = trouble.house.detail(trouble.name).job.hosts[rank // 2]
    assert f"rank {rank} on {host}" in trouble.house.cli("job", "stacks", trouble.name).stdout
    trouble.forget()
    wait("the alarm is taken back", lambda: not trouble.alarm())


@pytest.mark.parametrize("rank", turns(0))
def test_a_rank_that_skips_a_collective(house: House, rank: int) -> None:
    """1. A rank leaves out a collective, and goes on to the next one. 2. It is named as out of step. (That job never
    recovers by itself, so each has one of its own.)"""
    house.settle()
    own = begun(house, f"skip-{time.monotonic_ns()}")
    own.steps(20)
    since = time.monotonic()
    own.tell("skip", rank)
    found = own.named(Kind.DESYNC, since)
    assert found.diagnosis.missing_ranks == (rank,)
    house.settle()


def test_a_rank_that_stands_while_others_wait_in_ddp(house: House) -> None:
    """1. Gradients are reduced by DDP, in C++. Rank 2 waits in its loop for a file. 2. It is named, and the others wait
    in the reducer's collective, within twice the bound."""
    ddp = begun(house, "ddp", "ddp")
    ddp.steps(20)
    since = time.monotonic()
    ddp.tell("stall", 2)
    found = ddp.named(Kind.USER_CODE_STALL, since)
    assert (found.diagnosis.missing_ranks, found.diagnosis.waiting_ranks) == ((2,), (0, 1, 3))
    assert found.diagnosis.collective.startswith("all_reduce")
    house.settle()


def test_a_rank_that_is_slow_from_the_first_step_on(house: House) -> None:
    """1. Rank 1 takes three times as long from the first step of its job on, so that no pace changes. 2. It is
    named."""
    slow = Trouble(house, house.state / "slow")
    slow.tell("slow 3", 1)
    wait("an alarm", lambda: slow.alarm().startswith(Kind.STRAGGLER.value))
    assert slow.look().diagnosis.slow_ranks == (1,)
    house.settle()
