"""Who fell silent, and who only seems to have because we slept."""

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import MILLISECOND, SECOND, Duration
from trainmaster.core.recovery.liveness import Liveness

A, B = HostId("a"), HostId("b")
TICK = Duration(250 * MILLISECOND)


def walk(liveness: Liveness, start: float, end: float) -> list[tuple[float, HostId, float]]:
    """Ticks from start to end; what was found, in seconds."""
    found = []
    ticks = range(round(start * 4), round(end * 4) + 1)
    for tick in ticks:
        found += [(tick / 4, host, silent / SECOND) for host, silent in liveness.tardy(Duration(tick * TICK))]
    return found


def test_a_silent_host_is_found_once_after_the_timeout() -> None:
    """1. a and b signal at 0; b goes on. 2. a is found at the first tick past 3 s. 3. Not again, until it signals."""
    liveness = Liveness(timeout=Duration(3 * SECOND), tick=TICK, now=Duration(0))
    liveness.signal(A, Duration(0))
    found = []
    for second in range(8):
        liveness.signal(B, Duration(second * SECOND))
        found += walk(liveness, second, second + 0.75)
    assert found == [(3.25, A, 3.25)]
    liveness.signal(A, Duration(8 * SECOND))
    liveness.signal(B, Duration(8 * SECOND))
    assert walk(liveness, 8, 11.25) == [(11.25, A, 3.25), (11.25, B, 3.25)]


def test_a_forgotten_host_is_not_found() -> None:
    liveness = Liveness(timeout=Duration(3 * SECOND), tick=TICK, now=Duration(0))
    liveness.signal(A, Duration(0))
    liveness.forget(A)
    assert walk(liveness, 0, 10) == []


def test_our_own_sleep_is_nobodys_silence() -> None:
    """1. a signals at 0, we tick until 1. 2. We sleep until 61. 3. a is not found then, but 2 s later, when it has been
    silent for 3 s of our waking time."""
    liveness = Liveness(timeout=Duration(3 * SECOND), tick=TICK, now=Duration(0))
    liveness.signal(A, Duration(0))
    assert walk(liveness, 0, 1) == []
    assert walk(liveness, 61, 62.75) == []
    assert liveness.slept() == 60 * SECOND - TICK
    assert walk(liveness, 63, 64) == [(63.0, A, 3.25)]


def test_a_signal_that_waited_while_we_slept_counts_from_our_waking() -> None:
    """1. We sleep from 0 to 60. 2. A signal is the first thing we see, then nothing. 3. a is found 3 s later."""
    liveness = Liveness(timeout=Duration(3 * SECOND), tick=TICK, now=Duration(0))
    liveness.signal(A, Duration(60 * SECOND))
    assert walk(liveness, 60.25, 70) == [(63.25, A, 3.25)]


@given(st.lists(st.tuples(st.sampled_from("ab-"), st.integers(0, 5_000_000)), max_size=60))
def test_no_host_is_found_within_the_timeout_of_its_signal(steps: list[tuple[str, int]]) -> None:
    """Whatever the gaps: the last signal of a found host lies further back than the timeout, by the real clock too."""
    liveness = Liveness(timeout=Duration(3 * SECOND), tick=TICK, now=Duration(0))
    now, heard = 0, {}
    for who, gap in steps:
        now += gap
        if who != "-":
            liveness.signal(HostId(who), Duration(now))
            heard[who] = now
        for host, silent in liveness.tardy(Duration(now)):
            assert 3 * SECOND < silent <= now - heard.pop(host)
