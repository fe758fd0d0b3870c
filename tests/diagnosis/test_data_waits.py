"""Who waits for data: one rank, all, or nobody that matters."""

import msgspec
import pytest

from tests.diagnosis.rings import Run, even
from trainmaster.core.agent.ring import Rings
from trainmaster.core.base.value import encode
from trainmaster.core.diagnosis.answer import Diagnosis, Kind
from trainmaster.core.diagnosis.live import diagnose


def seen(run: Run) -> Diagnosis:
    return diagnose(run.rings(), run.ranks)[0]


@pytest.mark.parametrize("rank", range(4))
def test_a_slow_loader_is_named(rank: int) -> None:
    """1. The data of one rank comes 200 ms late, in steps of 100. 2. Rank, host and milliseconds are told, the cause is
    the data and not the host; whoever waits for it in the collective is not named."""
    run = Run().steps(20).fed(6, lambda step, who: 0.2 if who == rank else 0.002)
    found = seen(run)
    assert (found.kind, found.slow_ranks, found.hosts) == (Kind.STRAGGLER, (rank,), ())
    assert found.summary == (f"rank {rank} on h{rank // 2 + 1} waits for data: 200 ms a step, against a median of 2 ms")
    assert any("drain no host" in advice for advice in found.advice)


def test_what_agents_tell_survives_the_wire() -> None:
    """Encoded and decoded, the waits are still there, and the answer is the same."""
    run = Run().steps(20).fed(6, lambda step, who: 0.2 if who == 1 else 0.0)
    wired = [msgspec.json.decode(encode(each), type=Rings) for each in run.rings()]
    assert diagnose(wired, 4)[0] == seen(run)
    assert wired[0].ranks[1].ring is not None
    assert wired[0].ranks[1].ring.data_waits[-1] == (25, 200_000)


def test_a_slow_store_is_nobodys_fault() -> None:
    """1. All wait 200 ms. 2. No rank is named; it is said that data is waited for, and how long."""
    found = seen(Run().steps(20).fed(8, lambda step, who: 0.2))
    assert (found.kind, found.slow_ranks) == (Kind.NONE, ())
    assert any("all ranks wait for data, 200 ms" in detail for detail in found.details)
    assert any("store" in advice for advice in found.advice)


def test_a_short_wait_does_not_matter() -> None:
    """A rank waits 10 ms where the others wait none, in steps of 100 ms."""
    assert seen(Run().steps(20).fed(8, lambda step, who: 0.010 if who == 2 else 0.0)).kind is Kind.NONE


def test_a_slow_computation_is_no_slow_loader() -> None:
    """1. Data comes at once, one rank computes three times as long. 2. It is the arrival that is named."""

    def own(step: int, who: int) -> float:
        return 0.3 if who == 1 else even(step, who)

    found = seen(Run().steps(20).fed(6, lambda step, who: 0.001, own))
    assert (found.kind, found.slow_ranks) == (Kind.STRAGGLER, (1,))
    assert "data" not in found.summary


def test_waits_that_wander_name_nobody() -> None:
    """In every step another rank waits for a shard that nobody of its host had."""
    found = seen(Run().steps(20).fed(12, lambda step, who: 0.2 if step % 4 == who else 0.0))
    assert found.slow_ranks == ()


def test_a_hang_is_a_hang() -> None:
    """A rank that is missing for good is told as missing, also when its data was late before."""
    run = Run().steps(20).fed(6, lambda step, who: 0.2 if who == 3 else 0.0).hang(30, missing=(3,))
    assert (seen(run).kind, seen(run).missing_ranks) == (Kind.USER_CODE_STALL, (3,))
