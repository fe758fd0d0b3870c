"""Running jobs, judged from rings and states of processes; the bound of a step; stacks."""

import pytest

from tests.diagnosis.rings import Run, even
from trainmaster.core.agent.ring import Slow
from trainmaster.core.base.value import encode
from trainmaster.core.diagnosis import pace
from trainmaster.core.diagnosis.answer import Diagnosis, Kind
from trainmaster.core.diagnosis.judge import judge
from trainmaster.core.diagnosis.live import diagnose
from trainmaster.core.diagnosis.pace import Pace, bound, slowed
from trainmaster.core.diagnosis.read import read_text
from trainmaster.core.diagnosis.stacks import Stack, from_faulthandler, from_py_spy, grouped


def seen(run: Run) -> Diagnosis:
    return diagnose(run.rings(), run.ranks)[0]


def test_a_healthy_job() -> None:
    """1. At any moment of its steps, with clocks that differ by minutes. 2. Nothing is wrong."""
    assert seen(Run().steps(1)).kind is Kind.NONE
    assert seen(Run().steps(30)).kind is Kind.NONE
    assert seen(Run().steps(30).hang(0.1, missing=(1, 2))).kind is Kind.NONE


@pytest.mark.parametrize("rank", range(4))
def test_a_rank_in_its_own_code(rank: int) -> None:
    """1. A rank does not come to the next collective. 2. Within the bound nothing is said; beyond it, that rank."""
    run = Run().steps(20).hang(2.9, missing=(rank,))
    run.states[rank] = "S"
    found, standing_s, limit = diagnose(run.rings(), 4)
    assert (found.kind, limit.bound_s) == (Kind.NONE, 3.0)
    assert standing_s == pytest.approx(2.9)
    run.now_us += 200_000
    found = seen(run)
    assert (found.kind, found.missing_ranks, found.hosts) == (Kind.USER_CODE_STALL, (rank,), ())
    assert found.waiting_ranks == tuple(other for other in range(4) if other != rank)
    assert f"h{rank // 2 + 1}" in found.summary


def test_what_the_kernel_says_of_it() -> None:
    """1. The missing rank is stopped, hangs in the kernel, or is gone. 2. Told apart."""
    run = Run().steps(20).hang(5, missing=(2,))
    for state, kind, word in (
        ("T", Kind.PROCESS_STOPPED, "SIGSTOP"),
        ("D", Kind.USER_CODE_STALL, "kernel"),
        ("", Kind.KILLED, "ended"),
    ):
        run.states[2] = state
        found = seen(run)
        assert (found.kind, found.missing_ranks) == (kind, (2,))
        assert word in found.summary


def test_stopped_inside_of_a_collective() -> None:
    """1. All entered it, one is stopped there. 2. It is that one, at once: no bound has to pass."""
    run = Run().steps(20).hang(0.3)
    run.states[3] = "T"
    found = seen(run)
    assert (found.kind, found.missing_ranks, found.waiting_ranks) == (Kind.PROCESS_STOPPED, (3,), (0, 1, 2))
    moving = Run().steps(20)
    moving.states[3] = "T"
    assert seen(moving).kind is Kind.PROCESS_STOPPED


def test_another_collective() -> None:
    """1. A rank left one out and is in the next, another operation. 2. It went apart."""
    found = seen(Run().steps(20).hang(5, missing=(1,), instead="barrier"))
    assert (found.kind, found.missing_ranks, found.differing_ranks) == (Kind.DESYNC, (1,), (1,))


def test_the_last_one_has_just_come() -> None:
    """1. Three ranks waited for one for four seconds; it has just entered. 2. That is no stall."""
    run = Run().steps(20)
    for rank in (0, 1, 2):
        run._call(rank, "all_reduce", 4096, run.now_us, 0, 0)
    run.now_us += 4_000_000
    run._call(3, "all_reduce", 4096, run.now_us, 0, 0)
    run.now_us += 100
    assert seen(run).kind is Kind.NONE


def test_all_are_in_it() -> None:
    found = seen(Run().steps(20).hang(5))
    assert (found.kind, found.missing_ranks, found.hosts) == (Kind.IN_FLIGHT_STALL, (), ())


@pytest.mark.parametrize("slow", [Slow.SAVE, Slow.EVALUATION, Slow.COMPILE, Slow.OTHER])
def test_a_known_slow_phase(slow: Slow) -> None:
    """1. The missing rank is in a phase that takes long by nature. 2. That is said, and it is no alarm."""
    run = Run().steps(20).hang(30, missing=(0,))
    run.slow[0] = int(slow)
    found = seen(run)
    assert (found.kind, found.missing_ranks) == (Kind.SLOW_PHASE, (0,))


def test_the_first_step_has_its_time() -> None:
    """1. No step is done, a rank is missing for two minutes. 2. Nothing is claimed before ten."""
    run = Run().hang(120, missing=(2,))
    assert seen(run).kind is Kind.NONE
    run.now_us += 600_000_000
    assert seen(run).kind is Kind.USER_CODE_STALL


@pytest.mark.parametrize("rank", range(4))
def test_a_straggler(rank: int) -> None:
    """1. One rank's own part takes three times as long. 2. It is named, although all steps are equally long for all."""

    def own(step: int, who: int) -> float:
        return 0.3 if who == rank else even(step, who)

    found = seen(Run().steps(20).steps(5, own))
    assert (found.kind, found.slow_ranks, found.hosts) == (Kind.STRAGGLER, (rank,), ())
    assert "collective 1 of a step (all_reduce)" in found.details[-1] or "all_reduce" in found.details[-1]
    assert seen(Run().steps(20).steps(5, own).steps(12)).kind is Kind.NONE


def test_pauses_that_wander() -> None:
    """1. In every step another rank collects garbage. 2. No rank is named."""

    def own(step: int, who: int) -> float:
        return 0.3 if step % 4 == who else even(step, who)

    found = seen(Run().steps(20, own))
    assert (found.kind, found.slow_ranks) == (Kind.ROTATING_PAUSES, ())


def test_small_differences_are_no_stragglers() -> None:
    """1. A rank needs 10 ms where the others need 3, in steps of 100 ms. 2. It does not matter."""
    run = Run()
    for _ in range(20):
        run.steps(1, lambda step, who: 0.010 if who == 1 else 0.003)
        run.now_us += 100_000
    assert seen(run).kind in (Kind.NONE, Kind.STRAGGLER)
    assert seen(Run().steps(20, lambda step, who: 0.104 if who == 1 else 0.100)).kind is Kind.NONE


def test_agents_that_do_not_answer() -> None:
    """1. The host of the missing rank is silent. 2. The rank is unseen, and named with less confidence."""
    run = Run().steps(20).hang(5, missing=(3,))
    rings = run.rings()
    found, _, _ = diagnose(rings[:1], 4, ("h2",))
    assert (found.kind, found.missing_ranks, found.unseen_ranks) == (Kind.DESYNC, (2, 3), (2, 3))
    assert found.confidence == "medium"
    nobody, _, _ = diagnose([], 4, ("h1", "h2"))
    assert (nobody.kind, nobody.unseen_ranks) == (Kind.UNDETERMINED, (0, 1, 2, 3))


def test_rings_are_files_too() -> None:
    """1. What agents told was kept in files. 2. Judged afterwards, it is the same rank."""
    run = Run().steps(20).hang(5, missing=(2,))
    evidence = [read_text(f"{each.host}.json", encode(each).decode()) for each in run.rings()]
    from trainmaster.core.diagnosis.evidence import joined

    assert judge(joined(evidence)).missing_ranks == (2,)


def test_a_thousand_ranks() -> None:
    run = Run(1024).steps(3).steps(4).hang(700, missing=(517,))
    found = seen(run)
    assert (found.kind, found.missing_ranks) == (Kind.USER_CODE_STALL, (517,))


# --- the bound


def test_the_bound_follows_the_job() -> None:
    assert bound([]).bound_s == pace.PHASE_S
    assert bound([0.1] * 10).bound_s == 3.0
    assert bound([3.0] * 10).bound_s == 15.0
    assert bound([3.0] * 10 + [8.0]).bound_s == 16.0
    assert "5 times the median of 3.000 s" in bound([3.0] * 10).sentence()


def test_a_stop_teaches_nothing_and_a_habit_does() -> None:
    """1. One step of a minute among steps of a second is a stop. 2. Three of them are what this job does."""
    assert bound([1.0] * 20 + [60.0]).bound_s == 5.0
    assert bound([1.0] * 20 + [60.0, 1.0, 60.0, 1.0, 60.0]).bound_s == 120.0


def test_a_change_of_pace() -> None:
    assert not slowed([1.0] * 10)
    assert not slowed([1.0] * 10 + [3.0])
    assert slowed([1.0] * 10 + [3.0, 3.0])
    assert not slowed([1.0, 3.0])


def test_pace_from_heartbeats() -> None:
    """1. Heartbeats tell a step, the same again, one after a save. 2. The save is no step."""
    known = Pace()
    for step, at_s, quiet in ((1, 10.0, True), (4, 11.5, True), (4, 11.5, True), (5, 40.0, False), (7, 41.0, True)):
        known.see(step, round(at_s * 1e6), quiet)
    assert known.steps_s == [0.5, 0.5]


# --- stacks


FAULT = """Thread 0x00007f3b2 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f3b1 (most recent call first):
  File "/app/data.py", line 77 in load
  File "/app/train.py", line 10 in <module>
"""
PY_SPY = (
    b'[{"pid": 1, "thread_name": "pin", "frames": []}, {"pid": 1, "thread_name": "MainThread", "frames": [{"name": '
    b'"load", "filename": "/app/data.py", "short_filename": "data.py", "line": 77}]}]'
)


def test_stacks_of_both_tools() -> None:
    assert from_faulthandler(FAULT) == (("load (/app/data.py:77)", "<module> (/app/train.py:10)"), 1)
    assert from_py_spy(PY_SPY) == (("load (data.py:77)",), 1)
    assert from_faulthandler("nothing") is None
    assert from_py_spy(b"Error: no") is None
    assert from_py_spy(b"[]") is None


def test_equal_stacks_are_one_group() -> None:
    """1. A thousand ranks wait, one reads data, one does not answer. 2. Three groups, the odd ones first."""
    stacks = [Stack(rank=rank, host=f"h{rank // 8}", state="S", frames=("wait (gloo.py:1)",)) for rank in range(1000)]
    stacks[7] = stacks[7].but(frames=("load (data.py:77)",), state="R")
    stacks[9] = stacks[9].but(frames=(), trouble="the process is stopped", state="T")
    found = grouped(stacks)
    assert [(group.ranks[:2], group.states) for group in found] == [((7,), "R"), ((9,), "T"), ((0, 1), "S")]


def test_a_script_that_tells_no_steps() -> None:
    """1. Collectives without steps, none for five seconds: within what it does. 2. For a minute: that rank."""
    run = Run().steps(20)
    run.calls = [[call.but(step=0) for call in calls] for calls in run.calls]
    run.step = 0
    run.hang(5, missing=(1,))
    assert seen(run).kind is Kind.NONE
    run.now_us += 60_000_000
    assert (seen(run).kind, seen(run).missing_ranks) == (Kind.USER_CODE_STALL, (1,))
