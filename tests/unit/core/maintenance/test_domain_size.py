"""What a domain size costs, and which costs least."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.base.time import HOUR, MINUTE, Duration
from trainmaster.core.maintenance.domain_size import (
    GangClass,
    SizeModel,
    SizeProblem,
    best,
    check,
    contiguous_root,
    cost,
    every_stop_root,
    mean_hits,
    size_least,
    sizes_around,
    stop_count,
)

MONTH = Duration(720 * HOUR)


def model(*gangs: tuple[int, int], hosts: int = 3072, lost_min: int = 15, **more: object) -> SizeModel:
    """Gangs as (hosts, count); a cycle of 30 days, stops of 2 hours."""
    classes = tuple(GangClass(hosts=each, count=count) for each, count in gangs)
    made = SizeModel(hosts=hosts, gangs=classes, cycle=MONTH, lost=Duration(lost_min * MINUTE), stop=Duration(2 * HOUR))
    return made.but(**more)


@pytest.mark.parametrize(
    ("gang_hosts", "lost_min", "size"), [(2048, 15, 47), (2048, 30, 66), (2048, 6, 30), (256, 15, 17), (32, 15, 6)]
)
def test_the_closed_form_gives_the_known_sizes(gang_hosts: int, lost_min: int, size: int) -> None:
    """1. 3,072 hosts, a cycle of 30 days, every stop interrupts one gang. 2. The sizes are those of the reference."""
    assert round(every_stop_root(3072, gang_hosts, Duration(lost_min * MINUTE), MONTH)) == size


@pytest.mark.parametrize(("gang_hosts", "size"), [(256, 17), (32, 6), (3072, 57)])
def test_a_full_fleet_has_the_sizes_of_the_closed_form(gang_hosts: int, size: int) -> None:
    """1. A fleet full of equal gangs, so that every stop hits one. 2. The best size is that of the closed form, but for
    rounding, and costs next to nothing less."""
    full = model((gang_hosts, 3072 // gang_hosts))
    assert round(every_stop_root(3072, gang_hosts, full.lost, MONTH)) == size
    found = best(full.but(stop=Duration(HOUR)))
    assert abs(found.cost.size - size) <= max(1, size // 12)
    assert found.cost.total_host_h == pytest.approx(cost(full, size).total_host_h, rel=0.02)


def met(hosts: int, gang_hosts: int, stops: int) -> float:
    """The average over all offsets on a ring, counted."""
    bounds = [hosts * stop // stops for stop in range(stops + 1)]
    number = [stop for stop in range(stops) for _ in range(bounds[stop], bounds[stop + 1])]
    found = [len({number[(first + place) % hosts] for place in range(gang_hosts)}) for first in range(hosts)]
    return sum(found) / hosts


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_hits_are_exact(data: st.DataObject) -> None:
    """1. A fleet, a gang, a number of stops. 2. The formula is the average over all offsets, counted one by one."""
    hosts = data.draw(st.integers(1, 40))
    gang_hosts, stops = data.draw(st.integers(1, hosts)), data.draw(st.integers(1, hosts))
    assert mean_hits(hosts, gang_hosts, stops) == pytest.approx(met(hosts, gang_hosts, stops))


def test_hits_at_the_ends() -> None:
    """1. One host is hit once. 2. A gang on the whole fleet is hit by every stop, and by no more. 3. In between it is
    (J - 1)/d + 1."""
    assert mean_hits(100, 1, 10) == 1
    assert mean_hits(100, 100, 10) == 10
    assert mean_hits(3072, 257, 64) == pytest.approx(256 / 48 + 1)


def test_the_parts_of_the_cost() -> None:
    """1. One gang of 49 of 96 hosts, domains of 8, so 12 stops that meet it 7 times. 2. It loses 49 x 7 quarters of an
    hour; 8 hosts are held out for 720 hours."""
    found = cost(model((49, 1), hosts=96), 8)
    assert (found.stops, found.hits) == (12, 7)
    assert found.interruptions_host_h == pytest.approx(49 * 7 / 4)
    assert found.held_out_host_h == 8 * 720
    assert found.total_host_h == found.interruptions_host_h + found.held_out_host_h
    assert found.share == pytest.approx(found.total_host_h / (96 * 720))
    assert found.fits


def test_the_cost_is_u_shaped() -> None:
    """1. A mix of gangs. 2. Far from the best size the cost rises on both sides, at every doubling."""
    mix = model((2048, 1), (256, 3), (32, 8))
    found = best(mix)
    assert found.decided_by == "cost"
    assert found.cost.size == pytest.approx(found.square_root, rel=0.1)
    larger = [cost(mix, found.cost.size * 2**step).total_host_h for step in range(5)]
    smaller = [cost(mix, found.cost.size // 2**step).total_host_h for step in range(5)]
    assert larger == sorted(larger)
    assert smaller == sorted(smaller)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_size_is_better_than_the_best(data: st.DataObject) -> None:
    """1. Any model. 2. Of all sizes that fit, tried one by one, the best one costs least."""
    hosts = data.draw(st.integers(1, 300))
    gang_hosts = data.draw(st.integers(1, hosts))
    count = data.draw(st.integers(1, hosts // gang_hosts))
    any_model = model(
        (gang_hosts, count),
        hosts=hosts,
        lost_min=data.draw(st.integers(1, 3000)),
        rest=data.draw(st.booleans()),
        stop=Duration(data.draw(st.integers(1, 720)) * HOUR),
        size_limit=data.draw(st.sampled_from([0, hosts])),
    )
    costs = [cost(any_model, size) for size in range(1, hosts + 1)]
    fitting = [each for each in costs if each.fits]
    assert min(each.size for each in fitting) == size_least(any_model)
    assert best(any_model).cost.total_host_h == min(each.total_host_h for each in fitting)


def test_stops_must_fit_into_the_cycle() -> None:
    """1. Stops of a day: a cycle of 30 days has 30 of them. 2. The best size is the smallest that fits."""
    found = best(model((2048, 1), stop=Duration(24 * HOUR)))
    assert (found.cost.size, found.cost.stops, found.size_least, found.decided_by) == (103, 30, 103, "cycle")
    assert not cost(model((2048, 1), stop=Duration(24 * HOUR)), 102).fits


def test_the_buffer_limits_the_size() -> None:
    found = best(model((2048, 1), size_limit=20))
    assert (found.cost.size, found.decided_by) == (20, "limit")


def test_where_the_buffer_works_between_stops_the_largest_is_best() -> None:
    """1. Only the stops themselves count as held out. 2. No size changes that, so the limit decides, or none."""
    resting = model((2048, 1), rest=True)
    assert cost(resting, 10).held_out_host_h == cost(resting, 500).held_out_host_h == 3072 * 2
    assert best(resting).cost.size == 3072
    assert best(resting).square_root == 0
    assert best(resting.but(size_limit=64)).cost.size == 64


def test_the_closed_form_sums_over_gangs() -> None:
    assert contiguous_root(model((2048, 1))) == pytest.approx((2048 * 2047 * 0.25 / 720) ** 0.5)
    assert contiguous_root(model((256, 4), (32, 2))) == pytest.approx(((1024 * 255 + 64 * 31) * 0.25 / 720) ** 0.5)
    assert contiguous_root(model((1, 5))) == 0


def test_sizes_around_the_best() -> None:
    """1. Seven in even ratios, the best in the middle. 2. At the ends of the fleet there are fewer."""
    assert sizes_around(model((2048, 1)), 40) == (16, 22, 29, 40, 54, 74, 100)
    assert sizes_around(model((2, 1), hosts=5), 1) == (1, 2)
    assert sizes_around(model((2, 1), hosts=5), 5) == (2, 3, 4, 5)


def test_stops_are_rounded_up() -> None:
    assert [stop_count(10, size) for size in (1, 3, 5, 9, 10)] == [10, 4, 2, 2, 1]


@pytest.mark.parametrize(
    ("wrong", "what", "numbers"),
    [
        ({"hosts": 0}, "no hosts", "0"),
        ({"gangs": ()}, "no jobs", "interrupts"),
        ({"gangs": (GangClass(hosts=0),)}, "no jobs", ""),
        ({"gangs": (GangClass(hosts=2000, count=2),)}, "the jobs do not fit", "4,000"),
        ({"lost": 0}, "a duration is zero", ""),
        ({"stop": Duration(721 * HOUR)}, "no size fits", "even one stop"),
        ({"stop": Duration(24 * HOUR), "size_limit": 50}, "no size fits", "below 103 hosts"),
        ({"size_limit": -1}, "the buffer is below zero", "-1"),
    ],
)
def test_a_model_without_an_answer(wrong: dict[str, object], what: str, numbers: str) -> None:
    """Each says what is wrong, why with numbers, and what to change."""
    with pytest.raises(SizeProblem) as caught:
        check(model((2048, 1)).but(**wrong))
    assert caught.value.what == what
    assert numbers in caught.value.why
    assert caught.value.fix
