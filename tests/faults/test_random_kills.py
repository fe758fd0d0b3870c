"""A fleet is shot at, again and again, in one run of a job; it ends as if nothing had happened.

`TRAINMASTER_RANDOM_KILLS` says how many shots, `TRAINMASTER_KILL_SEED` which ones. What a failed run said, its logs and
the events of its server are kept below `build/kills/seed-N`.
"""

import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.kills import draw, ledger
from tests.faults.kills.aim import Eye, Steps
from tests.faults.kills.shoot import IDLE_S, Range
from tests.integration.house import ENDED, SCRIPTS, TINY, House, job, running
from trainmaster.core.base.value import encode
from trainmaster.core.events import AnyEvent
from trainmaster.core.scheduling.request import RestartBudget
from trainmaster.live.adapters import local
from trainmaster.live.server.resources import Events, JobDetail

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]

KILLS = int(os.environ.get("TRAINMASTER_RANDOM_KILLS", "5"))
SEED = int(os.environ.get("TRAINMASTER_KILL_SEED", str(draw.SEED)))
RANKS, SPARES = 4, 2
EVERY = 10
"""Steps between two saves to storage. What is lost at most is twice that: one may still have been on its way."""
STEPS = 60 + 24 * KILLS
HEARTBEAT_S, HEARTBEAT_STEPS = 1.0, 50
"""A machine that has much else to do keeps an agent waiting, and three heartbeats are all that a host may miss. What
the job can do between two of them."""
END_S = 60.0 + STEPS * 0.5
KEPT = Path(__file__).resolve().parents[2] / "build" / "kills" / f"seed-{SEED}"


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Shows progress while the test runs, and keeps it."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)

    def told(text: str) -> None:
        with (KEPT / "progress.txt").open("a") as stream:
            stream.write(f"{text}\n")
        with capfd.disabled():
            sys.stderr.write(f"seed {SEED}: {text}\n")

    return told


@pytest.mark.timeout(3600)
def test_a_run_outlives_random_kills(say: Callable[[str], None]) -> None:
    """1. A job of four hosts with two spares trains. 2. Workers, keepers, agents, hosts, spares and the server are
    killed, one or two at once, at random moments and at aimed ones; each time a step is finished in time. 3.
    The job ends in its one attempt: losses equal to the bit to an undisturbed run, every step accounted for, no
    process and no memory left, no traceback in any log but those of ranks that lost a peer."""
    shots = draw.draw(SEED, KILLS, RANKS, SPARES)
    try:
        with running(hosts=RANKS + SPARES, heartbeat_s=HEARTBEAT_S) as house:
            say(f"{KILLS} kills in {house.state}")
            _run(house, shots, say)
        _nothing_is_left(house.state)
    except BaseException:
        say(f"failed; again with: TRAINMASTER_KILL_SEED={SEED} TRAINMASTER_RANDOM_KILLS={KILLS} {_command()}")
        say(f"logs are in {KEPT}")
        raise


def _command() -> str:
    return "python -m pytest tests/faults/test_random_kills.py"


def _run(house: House, shots: tuple[draw.Shot, ...], say: Callable[[str], None]) -> None:
    expected = house.reference(STEPS, RANKS, END_S)
    pace = house.state / "pace"
    pace.write_text(f"{IDLE_S} 0.0")
    command = ("python", str(SCRIPTS / "throttled.py"), str(pace), *TINY[3:], f"--steps={STEPS}")
    spec = job("kills", command, spares=SPARES, every=EVERY, hosts=RANKS)
    name = house.submit(spec.but(restart=RestartBudget(max_restarts=10 * KILLS, standby=True)))
    since = house.index()
    house.until(name, "it has its spares", lambda detail: len(detail.job.spares) == SPARES)
    attempt, directory = house.detail(name).job.attempt, house.directory(name)
    plan = local.plan_of(house.state)
    assert attempt is not None
    assert plan is not None
    eye = Eye(house.state, plan, attempt, RANKS, directory / "checkpoints")
    shooting = Range(house, name, eye, Steps(directory), pace, say)
    try:
        shooting.rest()
        for shot in shots:
            _still_runs(house, name)
            shooting.fire(shot, len(shots))
        shooting.rest()
        shooting.set_pace(0.0)
        told = house.finish(name, END_S)
    finally:
        _keep(house, since)
    _judge(house, told, shooting, expected, since, say)


def _still_runs(house: House, name: str) -> None:
    detail = house.detail(name)
    assert detail.job.state not in ENDED, f"{name} has ended: {detail.job.reason}"
    steps = detail.job.step
    assert steps < STEPS - 40, f"only {STEPS - steps} steps are left"


def _judge(
    house: House, told: JobDetail, shooting: Range, expected: dict[int, str], since: int, say: Callable[[str], None]
) -> None:
    steps = shooting.steps
    steps.look()
    run = ledger.Run(
        total=STEPS,
        every=2 * EVERY,
        unheard=HEARTBEAT_STEPS,
        lines={epoch: tuple(lines) for epoch, lines in steps.lines.items()},
        expected=expected,
        events=tuple(_events(house, since)),
        account=told.account,
        epochs=told.job.epoch,
    )
    step_s = statistics.median(line.step_s for lines in steps.lines.values() for line in lines)
    by_kind: dict[str, list[float]] = {}
    for hit in shooting.hits:
        by_kind.setdefault(hit.shot.label(), []).append(hit.back_s)
    by_moment = {moment: [hit for hit in shooting.hits if hit.shot.moment is moment] for moment in draw.Moment}
    for row in ledger.ways(by_kind):
        say(row)
    for moment, hits in by_moment.items():
        say(f"{moment.value}: {sum(hit.aimed for hit in hits)} of {len(hits)} met it")
    account = told.account
    say(
        f"{len(shooting.hits)} kills, {told.job.epoch} epochs, {account.steps_lost_unplanned} steps done again, "
        f"goodput {account.goodput:.2f} of {account.wall_s:.0f} s, a step is {step_s:.3f} s"
    )
    (KEPT / "figures.json").write_bytes(encode({"seed": SEED, "hits": shooting.hits, "account": account}))
    assert told.job.attempt == shooting.eye.attempt, "the job began anew"
    assert ledger.complaints(run) == ()
    assert _tracebacks(house.state) == {}


def _events(house: House, since: int) -> Iterator[AnyEvent]:
    while (page := house.get("/v1/events", Events, since=since, limit=500)).items:
        yield from (item.event for item in page.items)
        since = page.next


def _logs(state: Path) -> Iterator[tuple[Path, bool]]:
    """Every log, and whether it is what a rank said."""
    for path in sorted([*(state / "run").glob("*.log"), *(state / "hosts").rglob("*.log")]):
        yield path, "-rank-" in path.name


def _tracebacks(state: Path) -> dict[str, list[str]]:
    found = {
        str(path.relative_to(state)): ledger.tracebacks(path.read_text(errors="replace"), of_rank)
        for path, of_rank in _logs(state)
    }
    return {name: ends for name, ends in found.items() if ends}


def _keep(house: House, since: int) -> None:
    """Copies the logs and the events to where they stay."""
    for path, _ in _logs(house.state):
        target = KEPT / path.relative_to(house.state)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    lines = [f"{sentence}\n" for sentence in house.sentences(since)]
    (KEPT / "events.txt").write_text("".join(lines))


def _nothing_is_left(state: Path) -> None:
    """No process that was started in this state directory, and no mount below it. (That its records name nothing that
    runs, and that its memory is gone, was seen when the fleet went down.)"""
    mark = str(state).encode()
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            said = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone, or somebody else's
        if mark in said:
            left.append(f"{process.name}: {said[:200]!r}")
    assert left == []
    assert str(state) not in Path("/proc/self/mountinfo").read_text()
