"""The choice of an interval: steps, bounds, calm, words, refusals."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.base.time import DAY
from trainmaster.core.checkpoint.choice import MOST_S, PAYS, Choice, ChoiceProblem, choose, usual
from trainmaster.core.checkpoint.interval import exact_s
from trainmaster.core.checkpoint.rate import History, Rate, estimate
from trainmaster.core.checkpoint.tiers import Schedule, Tier, efficiency

KNOWN = estimate(History(failures=419, host_time=2_048 * 54 * DAY))
HOSTS = 2_048
PUBLISHED = {"Llama 3": (2_048, 3.789), "RSC-1": (2_048, 6.5), "RSC-2": (1_024, 2.34), "RSC-1, 7.9 h": (128, 23.7)}


def storage(stall_s: float = 30.0, lag_s: float = 0.0, rate: Rate = KNOWN, hosts: int = HOSTS) -> Tier:
    return Tier(name="storage", failures_per_s=rate.per_s(hosts), stall_s=stall_s, restart_s=300.0, lag_s=lag_s)


def chosen(tier: Tier, step_s: float = 5.6, before: Choice | None = None) -> Choice:
    return choose([tier], step_s, KNOWN, HOSTS, before)


@pytest.mark.parametrize("fleet", PUBLISHED)
@pytest.mark.parametrize("stall_s", [1.0, 10.0, 30.0, 60.0])
def test_with_known_rates_it_is_within_five_percent_of_the_exact_optimum(fleet: str, stall_s: float) -> None:
    """1. The published rates are known. 2. The chosen interval, as whole steps of 5.6 s and in its bounds, is within
    5 % of the exact one."""
    hosts, per_thousand = PUBLISHED[fleet]
    rate = Rate(per_host_day=per_thousand / 1000, failures=1_000, host_days=1e6, source="measured")
    found = choose([storage(stall_s, rate=rate, hosts=hosts)], 5.6, rate, hosts).tiers[0]
    exact = exact_s(stall_s, 86_400_000 / (hosts * per_thousand))
    assert found.interval_s == pytest.approx(exact, rel=0.05)
    assert found.wanted_s == pytest.approx(exact, rel=1e-6)
    assert found.interval_s == found.every_steps * 5.6


@given(stall=st.floats(0.001, 300), step=st.floats(0.01, 100), lag=st.floats(0, 500))
@settings(max_examples=200, deadline=None)
def test_no_other_number_of_steps_in_the_bounds_is_better(stall: float, step: float, lag: float) -> None:
    tier = storage(stall, lag)
    found = chosen(tier, step).tiers[0]
    assert found.interval_s >= lag - 1e-6
    assert found.interval_s <= max(MOST_S, lag + step, step) + 1e-6
    top = efficiency(Schedule(interval_s=found.interval_s), [tier])
    for steps in (found.every_steps - 1, found.every_steps + 1):
        if steps >= 1 and lag <= steps * step <= MOST_S:
            assert efficiency(Schedule(interval_s=steps * step), [tier]) <= top + 1e-12


def test_bounds_are_named() -> None:
    """1. Saves for nothing: every step. 2. A copy that takes two minutes. 3. A lone host that hardly ever fails."""
    assert chosen(storage(0.0)).tiers[0].bound == "step"
    assert chosen(storage(0.0)).every_steps == 1
    late = chosen(storage(0.01, lag_s=120.0))
    assert late.tiers[0].bound == "lag"
    assert late.every_steps == math.ceil(120 / 5.6)
    assert "must be whole" in late.sentence
    rare = choose([storage(60.0, hosts=1)], 5.6, KNOWN, 1)
    assert rare.tiers[0].bound == "most"
    assert rare.tiers[0].interval_s <= MOST_S < rare.tiers[0].wanted_s
    assert "put at risk" in rare.sentence
    long = choose([storage(60.0, hosts=1)], 20_000.0, KNOWN, 1)
    assert long.every_steps == 1


def test_a_choice_stands_until_another_one_pays() -> None:
    """1. A save takes a tenth longer: the choice stands. 2. It takes twice as long: another one, and that pays. 3. It
    stands only where the bounds let it."""
    first = chosen(storage(30.0))
    assert chosen(storage(33.0), before=first) is first
    second = chosen(storage(60.0), before=first)
    assert second.every_steps > first.every_steps
    stayed = efficiency(Schedule(interval_s=first.tiers[0].interval_s), [storage(60.0)])
    assert second.efficiency > stayed + PAYS
    bound = chosen(storage(30.0, lag_s=1_000.0), before=first)
    assert bound.tiers[0].interval_s >= 1_000


def test_it_says_why() -> None:
    """The number, the cost of a save, how often it fails and how that is known, what other intervals would bring."""
    assert chosen(storage(30.0)).sentence == (
        "every 142 steps (13.3 min), since a save holds the job up for 30 s and a failure comes every 3.09 h (on "
        "2,048 hosts, at 3.79 failures in 1,000 host-days, from 419 failures in 110,592 host-days); 90.37 % of the"
        " time is then work that lasts, 88.78 % at half and 88.76 % at twice the interval"
    )
    new = estimate(History())
    assert "by the published rate of 4 failures in 1,000 host-days: nothing was seen yet" in (
        choose([storage(rate=new, hosts=4)], 1.0, new, 4).sentence
    )
    some = estimate(History(failures=1, host_time=DAY // 2))
    assert "from 1 failure in 0.5 host-days and the published rates" in choose([storage()], 1.0, some, 1).sentence


def test_memory_carries_the_frequent_failures() -> None:
    """1. Nineteen of twenty failures are mended from memory, whose copies cost little. 2. Those come every few steps,
    storage rarely, in whole multiples."""
    all_s = KNOWN.per_s(HOSTS)
    memory = Tier(name="memory", failures_per_s=0.95 * all_s, stall_s=0.05, restart_s=1.0)
    behind = storage(3.0, lag_s=60.0).but(failures_per_s=0.05 * all_s)
    found = choose([memory, behind], 2.0, KNOWN, HOSTS)
    near, far = found.tiers
    assert near.interval_s < 60
    assert far.every_steps % near.every_steps == 0
    assert far.interval_s > 10 * near.interval_s
    assert far.interval_s >= 60
    assert found.every_steps == far.every_steps
    assert found.efficiency > chosen(storage(3.0), 2.0).efficiency
    assert found.sentence.startswith("memory: every ")
    assert choose([memory, behind.but(stall_s=3.1)], 2.0, KNOWN, HOSTS, found) is found


@pytest.mark.parametrize(
    ("tier", "step_s", "what"),
    [
        (storage(-1.0), 1.0, "below zero"),
        (storage().but(failures_per_s=0.0), 1.0, "nothing fails"),
        (storage(), 0.0, "takes no time"),
        (storage().but(restart_s=1e7), 1.0, "would not get on"),
        (storage(math.inf), 1.0, "below zero"),
    ],
)
def test_what_has_no_answer_is_refused(tier: Tier, step_s: float, what: str) -> None:
    with pytest.raises(ChoiceProblem, match=what):
        chosen(tier, step_s)


def test_one_slow_save_does_not_move_the_usual_cost() -> None:
    """1. Of the newest nine the one in the middle. 2. Older ones are forgotten. 3. Nothing measured is unknown."""
    assert usual([1.0, 1.1, 60.0]) == 1.1
    assert usual([9.0] * 20 + [2.0] * 9) == 2.0
    assert usual([]) is None
