"""The cost of a domain size under the very engine, beside the one of the closed form.

`TRAINMASTER_DOMAIN_SEEDS` paired seeds for each size; with more than two, a cluster of 3,072 hosts too (two seconds for
each size and seed).
"""

import os

import pytest

from trainmaster.core.base.time import HOUR, MINUTE, Duration
from trainmaster.core.maintenance.domain_size import GangClass, SizeModel, best, cost, sizes_around
from trainmaster.twin.domain_cost import cost_by_engine, free_hosts, live_through

SEEDS = int(os.environ.get("TRAINMASTER_DOMAIN_SEEDS", "2"))
FEW = SEEDS == 2


def model(*gangs: tuple[int, int], hosts: int, lost_min: int) -> SizeModel:
    return SizeModel(
        hosts=hosts,
        gangs=tuple(GangClass(hosts=each, count=count) for each, count in gangs),
        cycle=Duration(720 * HOUR),
        lost=Duration(lost_min * MINUTE),
        stop=Duration(2 * HOUR),
    )


LARGE = model((320, 1), (64, 1), (16, 2), hosts=512, lost_min=108)
CLUSTER = model((2048, 1), (256, 2), (32, 10), hosts=3072, lost_min=15)
LITTLE = model((48, 1), (8, 1), hosts=80, lost_min=108)


@pytest.mark.parametrize("world", [LARGE] if FEW else [LARGE, CLUSTER], ids=lambda world: f"{world.hosts} hosts")
def test_closed_form_and_engine_agree(world: SizeModel) -> None:
    """1. Seven sizes around the best one, the same seeds for each. 2. At every size the engine's cost is within 5 % of
    the closed form's; the cheapest size by the engine is the best one, or costs within 2 % of it."""
    sizes = sizes_around(world, best(world).cost.size)
    assert len(sizes) == 7
    assert sizes[-1] <= free_hosts(world)
    found = live_through(sizes, range(SEEDS), world)
    for each in found:
        expected = cost(world, each.size)
        print(
            each.size, f"{each.mean_host_h / expected.total_host_h - 1:+.2%}", f"{each.hits - expected.hits:+.2f} hits"
        )
        assert each.mean_host_h == pytest.approx(expected.total_host_h, rel=0.05)
    by_size = {each.size: each.mean_host_h for each in found}
    assert by_size[best(world).cost.size] <= 1.02 * min(by_size.values())


def test_a_life() -> None:
    """1. Two cycles of a small cluster. 2. Every host was visited twice, never more than the size was out at once, each
    stop hit the gangs in its domain, each hit cost what it should."""
    found = cost_by_engine(8, 1, LITTLE, cycles=2)
    assert (found.stops, found.missed, found.late) == (10, 0, 0)
    assert found.most_out == 8
    expected = cost(LITTLE, 8).hits
    assert expected <= found.hits <= expected + 4  # gangs that moved to where the train was not yet, in little
    assert found.held_out_host_h == 8 * 720
    assert found.out_host_h == pytest.approx(80 * 2, rel=0.1)
    expected_h = found.hits * 1.8
    assert 8 * expected_h < found.interruptions_host_h < 48 * expected_h


def test_the_same_seed_is_the_same_cost() -> None:
    """1. Twice the same. 2. Another seed, another cost."""
    assert cost_by_engine(8, 1, LITTLE) == cost_by_engine(8, 1, LITTLE)
    assert len({cost_by_engine(8, seed, LITTLE).total_host_h for seed in range(4)}) > 1


def test_where_the_buffer_works_between_stops_only_stops_count() -> None:
    """1. With `rest` what is held out is what really was out. 2. Hosts times stop, whatever the size."""
    resting = LITTLE.but(rest=True)
    for size in (4, 16):
        assert cost_by_engine(size, 2, resting).held_out_host_h == pytest.approx(80 * 2, rel=0.1)


def test_stops_that_do_not_fit_make_the_cycle_late() -> None:
    """1. Ten stops of more than four days in 30 days. 2. They wait for one another; the buffer is kept until the last
    one is over."""
    crowded = LITTLE.but(stop=Duration(100 * HOUR))
    found = cost_by_engine(8, 3, crowded)
    assert not cost(crowded, 8).fits
    assert found.late > 240 * HOUR
    assert found.held_out_host_h == pytest.approx(8 * (720 + found.late / HOUR))
