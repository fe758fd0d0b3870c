"""The simulated cost of a domain size beside the one of the closed form."""

import pytest

from trainmaster.core.base.time import HOUR, MINUTE, Duration
from trainmaster.core.maintenance.domain_size import GangClass, SizeModel, best, cost, sizes_around
from trainmaster.twin.domain_size import simulate, simulate_cost


def model(*gangs: tuple[int, int], hosts: int = 3072, lost_min: int = 15, **more: object) -> SizeModel:
    classes = tuple(GangClass(hosts=each, count=count) for each, count in gangs)
    made = SizeModel(
        hosts=hosts,
        gangs=classes,
        cycle=Duration(720 * HOUR),
        lost=Duration(lost_min * MINUTE),
        stop=Duration(2 * HOUR),
    )
    return made.but(**more)


LARGE, MIXED, SMALL = model((2048, 1)), model((1024, 1), (256, 4), (32, 20), (4, 50)), model((32, 96), lost_min=10)


@pytest.mark.parametrize("world", [LARGE, MIXED, SMALL], ids=["one large", "mixed", "many small"])
def test_closed_form_and_simulation_agree(world: SizeModel) -> None:
    """1. Seven sizes around the best one, the same 20 seeds for each. 2. Every size: total cost within 5 %, and so are
    the interruptions alone; the spread of the seeds holds the closed form."""
    world = world.but(stop=Duration(20 * MINUTE))
    sizes = sizes_around(world, best(world).cost.size)
    assert len(sizes) == 7
    for found in simulate(sizes, range(20), world):
        expected = cost(world, found.size)
        assert found.mean_host_h == pytest.approx(expected.total_host_h, rel=0.05)
        assert found.interruptions_host_h == pytest.approx(expected.interruptions_host_h, rel=0.05)
        assert found.held_out_host_h == pytest.approx(expected.held_out_host_h, rel=0.01)
        assert found.low_host_h < expected.total_host_h < found.high_host_h


def test_hits_agree_to_a_per_cent() -> None:
    """1. 200 cycles, so 200 placements. 2. Hits are those of the closed form: no overlap of restarts touches them."""
    assert simulate_cost(40, 1, MIXED, cycles=200).hits == pytest.approx(cost(MIXED, 40).hits, rel=0.01)


def test_a_gang_on_the_whole_fleet_is_hit_by_every_stop() -> None:
    whole = model((96, 1), hosts=96)
    assert simulate_cost(10, 3, whole).hits == 10


def test_the_same_seed_gives_the_same_cost() -> None:
    """1. Twice the same. 2. Another seed, another cost."""
    first = simulate_cost(40, 7, MIXED)
    assert simulate_cost(40, 7, MIXED) == first
    assert simulate_cost(40, 8, MIXED).total_host_h != first.total_host_h


def test_paired_seeds_make_differences_certain() -> None:
    """1. Two sizes over 30 seeds. 2. The difference varies less between seeds that are paired than between others."""
    small = [simulate_cost(36, seed, LARGE).total_host_h for seed in range(30)]
    large = [simulate_cost(44, seed, LARGE).total_host_h for seed in range(30)]
    paired = [one - other for one, other in zip(small, large, strict=True)]
    others = [one - other for one, other in zip(small, large[1:] + large[:1], strict=True)]
    assert variance(paired) < 0.5 * variance(others)


def variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def test_where_the_buffer_works_between_stops_only_stops_count() -> None:
    """1. 50 cycles of stops of two hours on average. 2. Held out is hosts times stop, whatever the size."""
    resting = LARGE.but(rest=True)
    for size in (30, 90):
        assert simulate_cost(size, 2, resting, cycles=50).held_out_host_h == pytest.approx(3072 * 2, rel=0.05)


def test_stops_that_do_not_fit_make_the_cycle_late() -> None:
    """1. 103 stops of a day in 30 days. 2. They wait for one another; the last ends some 70 days late, and the buffer
    is held back until then."""
    crowded = LARGE.but(stop=Duration(24 * HOUR))
    found = simulate_cost(30, 4, crowded)
    assert not cost(crowded, 30).fits
    assert found.late == pytest.approx(73 * 24 * HOUR, rel=0.2)
    assert found.held_out_host_h == pytest.approx(30 * (720 + found.late / HOUR))


def test_hits_while_down_cost_less_than_the_sum() -> None:
    """1. Restarts last for days, and stops follow every six hours. 2. A gang on the whole fleet is down from the first
    stop to the last, without a break, and once, not several times over."""
    slow = model((3072, 1), lost=Duration(96 * HOUR), stop=Duration(HOUR))
    found = simulate_cost(26, 5, slow)
    first_to_last_h = 720 * 118 / 119
    assert found.hits == 119
    assert 3072 * first_to_last_h <= found.interruptions_host_h <= 3072 * (first_to_last_h + 600)
    assert found.interruptions_host_h < 0.2 * cost(slow, 26).interruptions_host_h


def test_a_gang_that_is_hit_again_stays_down() -> None:
    """1. Two stops, 15 days apart, and restarts of 60 days on average: most second hits find the gang down. 2. It is
    down for 2,083 hours on average (the mean of both draws, as their sum or as the later end; by 400,000 draws of
    another generator), not until the first restart alone would have ended."""
    pair = model((2, 1), hosts=2, lost=Duration(1440 * HOUR), stop=Duration(HOUR))
    assert simulate_cost(1, 6, pair, cycles=400).interruptions_host_h == pytest.approx(2 * 2083, rel=0.05)
