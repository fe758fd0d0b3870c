"""The formulas of the interval, against published and computed values, and several tiers against brute force."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.base.seed import Stream
from trainmaster.core.checkpoint import tiers
from trainmaster.core.checkpoint.interval import (
    daly_first_s,
    daly_s,
    efficiency,
    exact_s,
    linear_efficiency,
    series_mttf_s,
    young_s,
)
from trainmaster.core.checkpoint.tiers import Schedule, Tier

WORKED = [
    # mean time between failures, stall; Young, Daly's first order, Daly, exact; efficiency there with 300 s of restart
    (6_491, 10, 360.3, 350.3, 353.7, 353.7, 0.9028),
    (6_491, 60, 882.6, 822.6, 843.0, 843.0, 0.8308),
    (11_135, 10, 471.9, 461.9, 465.3, 465.3, 0.9327),
    (11_135, 30, 817.4, 787.4, 797.5, 797.5, 0.9037),
    (11_135, 60, 1_155.9, 1_095.9, 1_116.3, 1_116.3, 0.8758),
    (28_440, 30, 1_306.3, 1_276.3, 1_286.4, 1_286.4, 0.9448),
    (86_400, 60, 3_219.9, 3_159.9, 3_180.1, 3_180.1, 0.9599),
]


@pytest.mark.parametrize(("mttf_s", "stall_s", "young", "first", "daly", "exact", "worth"), WORKED)
def test_worked_values(
    mttf_s: float, stall_s: float, young: float, first: float, daly: float, exact: float, worth: float
) -> None:
    """1. The intervals of the table, to a tenth of a second. 2. The efficiency at the exact one."""
    found = [round(form(stall_s, mttf_s), 1) for form in (young_s, daly_first_s, daly_s, exact_s)]
    assert found == [young, first, daly, exact]
    assert round(efficiency(exact_s(stall_s, mttf_s), stall_s, mttf_s, 300), 4) == worth


@pytest.mark.parametrize(("hosts", "rate", "hours"), [(3_072, 6.5, 1.202), (3_072, 2.34, 3.339), (2_048, 6.5, 1.803)])
def test_mean_time_between_failures_of_a_gang(hosts: int, rate: float, hours: float) -> None:
    """24,576 GPUs at the two published rates, and 16,384 as projected in the paper."""
    assert round(series_mttf_s(hosts, rate) / 3600, 3) == hours


@pytest.mark.parametrize(
    ("hosts", "rate", "restart_min", "interval_min", "worth"),
    [
        (2_000, 6.5, 5, 60, 0.6840),
        (2_000, 6.5, 5, 5, 0.9323),
        (12_500, 2.34, 2, 2, 0.9391),
        (384, 6.5, 5, 60, 0.9393),
        (384, 6.5, 20, 60, 0.9133),
        (512, 6.5, 5, 60, 0.9191),
        (512, 6.5, 20, 60, 0.8844),
        (2_048, 3.789, 5, 5, 0.9596),
        (2_048, 3.789, 5, 10, 0.9461),
        (2_048, 3.789, 5, 30, 0.8922),
        (2_048, 3.789, 5, 60, 0.8114),
    ],
)
def test_worked_values_of_the_linear_estimate(
    hosts: int, rate: float, restart_min: float, interval_min: float, worth: float
) -> None:
    """The reliability paper's estimate for saves that cost nothing, to the fourth place."""
    mttf_s = series_mttf_s(hosts, rate)
    assert round(linear_efficiency(60 * interval_min, 0, mttf_s, 60 * restart_min), 4) == worth


def test_a_minute_of_stall_cannot_give_nine_tenths() -> None:
    """With a restart of five minutes, 16,384 GPUs at Llama 3's rate: 60 s of stall stay below 90 %, 30 s just do it."""
    assert efficiency(exact_s(60, 11_135), 60, 11_135, 300) < 0.9 < efficiency(exact_s(30, 11_135), 30, 11_135, 300)


@given(stall=st.floats(1e-6, 1e4), mttf=st.floats(10.0, 1e8), restart=st.floats(0, 1e3))
@settings(max_examples=200, deadline=None)
def test_nothing_is_better_than_the_exact_interval(stall: float, mttf: float, restart: float) -> None:
    """1. Any stall and rate: the neighbours at a hundredth are not better. 2. The restart does not move the place."""
    best = exact_s(stall, mttf)
    top = efficiency(best, stall, mttf, restart)
    assert 0 < best <= min(young_s(stall, mttf), mttf)
    for other in (0.99 * best, 1.01 * best, daly_s(stall, mttf)):
        assert efficiency(other, stall, mttf, restart) <= top * (1 + 1e-9)


def test_ends_of_the_range() -> None:
    """1. Saves that cost nothing: always. 2. Stalls beyond the time between failures: Daly's rule says that time, and
    the exact interval is a little below. 3. A stretch that never ends well is worth nothing."""
    assert exact_s(0, 100) == 0
    assert daly_s(500, 100) == 100
    assert exact_s(500, 100) == pytest.approx(99.7516, abs=1e-4)
    assert efficiency(1e9, 1, 100, 10) == 0
    assert daly_first_s(500, 100) == 0


# Several tiers

OWN = Tier(name="own", failures_per_s=1 / 4_000, stall_s=2.0, restart_s=20.0)
PEER = Tier(name="peer", failures_per_s=1 / 9_000, stall_s=10.0, restart_s=60.0)
STORAGE = Tier(name="storage", failures_per_s=1 / 40_000, stall_s=90.0, restart_s=600.0)


def lived(schedule: Schedule, wanted: list[Tier], stream: Stream, rounds: int) -> float:
    """The efficiency of a life, event by event: nothing of the closed form is used."""
    total = sum(tier.failures_per_s for tier in wanted)
    ends = [0, *schedule.counts]
    clock = work = 0.0
    saved = [0] * len(wanted)  # stretches that each tier holds
    failure_at = stream.exponential(1 / total)

    def strikes(until: float) -> int | None:
        nonlocal clock, failure_at
        if failure_at > until:
            clock = until
            return None
        clock = failure_at
        failure_at += stream.exponential(1 / total)
        chosen, place = stream.uniform() * total, 0
        while chosen >= wanted[place].failures_per_s and place < len(wanted) - 1:
            chosen -= wanted[place].failures_per_s
            place += 1
        return place

    def recover(place: int) -> int:
        """The class from which the job is up again: a worse failure during the restart makes it worse."""
        while (worse := strikes(clock + wanted[place].restart_s)) is not None:
            place = max(place, worse)
        return place

    done, owed = 0, 0  # stretches done, and the tier whose save is due
    while saved[-1] < rounds:
        if owed:
            struck = strikes(clock + wanted[owed].stall_s)
            if struck is None:
                saved[owed], nested = done, math.prod(ends[1 : owed + 2])
                owed = owed + 1 if owed + 1 < len(wanted) and done % nested == 0 else 0
                continue
        else:
            struck = strikes(clock + schedule.interval_s + wanted[0].stall_s)
            if struck is None:
                done += 1
                saved[0] = done
                owed = 1 if len(wanted) > 1 and done % ends[1] == 0 else 0
                continue
        place = recover(struck)
        done = saved[place]
        for cheaper in range(place):
            saved[cheaper] = done
        if place >= owed:
            owed = 0
    work = done * schedule.interval_s
    return work / clock


@pytest.mark.parametrize(
    ("wanted", "schedule"),
    [
        ([STORAGE.but(failures_per_s=1 / 6_000)], Schedule(interval_s=900.0)),
        ([OWN, STORAGE], Schedule(interval_s=200.0, counts=(9,))),
        ([OWN, PEER, STORAGE], Schedule(interval_s=150.0, counts=(3, 5))),
        ([OWN, PEER, STORAGE], Schedule(interval_s=700.0, counts=(1, 2))),
    ],
    ids=["one", "two", "three", "three-rare"],
)
def test_expected_time_of_several_tiers_is_what_is_lived_through(wanted: list[Tier], schedule: Schedule) -> None:
    """1. A long life with failures of all classes, in work, saves and restarts. 2. Its efficiency is the expected one,
    to two parts in a thousand."""
    rounds = 60_000
    stretches = rounds - rounds % math.prod(schedule.counts)
    assert lived(schedule, wanted, Stream.of(7, "tiers"), stretches) == pytest.approx(
        tiers.efficiency(schedule, wanted), rel=4e-3
    )


def test_one_tier_is_dalys_formula() -> None:
    for mttf_s, stall_s, *_ in WORKED:
        tier = Tier(name="storage", failures_per_s=1 / mttf_s, stall_s=stall_s, restart_s=300)
        for interval_s in (60.0, 600.0, 6_000.0):
            expected = efficiency(interval_s, stall_s, mttf_s, 300)
            assert tiers.efficiency(Schedule(interval_s=interval_s), [tier]) == pytest.approx(expected, rel=1e-9)


def test_a_lag_is_worth_a_restart_that_takes_longer() -> None:
    tier = Tier(name="storage", failures_per_s=1 / 6_491, stall_s=1, restart_s=300)
    schedule = Schedule(interval_s=600)
    late = tiers.efficiency(schedule, [tier.but(lag_s=120.0)])
    assert late == tiers.efficiency(schedule, [tier.but(restart_s=420.0)]) < tiers.efficiency(schedule, [tier])


@pytest.mark.parametrize("wanted", [[OWN, STORAGE], [OWN, PEER, STORAGE]], ids=["two", "three"])
def test_the_best_schedule_beats_its_neighbours_and_a_grid(wanted: list[Tier]) -> None:
    """1. No schedule of a grid over intervals and counts is better. 2. More tiers are better than storage alone."""
    found = tiers.best(wanted)
    top = tiers.efficiency(found, wanted)
    counts = [(one, two) for one in range(1, 13) for two in (1, 2, 3, 5, 8, 12)]
    tried = {counts[: len(wanted) - 1] for counts in counts}
    for row in tried:
        for power in range(-8, 9):
            other = Schedule(interval_s=found.interval_s * 1.25**power, counts=row)
            assert tiers.efficiency(other, wanted) <= top + 1e-9, other
    rate = sum(tier.failures_per_s for tier in wanted)
    alone = efficiency(exact_s(90, 1 / rate), 90, 1 / rate, 600)
    assert top > alone + 0.1


def test_the_best_of_one_tier_is_the_exact_interval() -> None:
    for mttf_s, stall_s, *_ in WORKED:
        tier = Tier(name="storage", failures_per_s=1 / mttf_s, stall_s=stall_s, restart_s=300)
        assert tiers.best([tier]).interval_s == pytest.approx(exact_s(stall_s, mttf_s), rel=1e-3)


def test_no_failures_and_lags_and_dead_ends() -> None:
    """1. Nothing fails: only stalls count. 2. A copy that takes long bounds the interval from below. 3. A restart that
    is never done is worth nothing."""
    idle = [OWN.but(failures_per_s=0.0), STORAGE.but(failures_per_s=0.0)]
    assert tiers.efficiency(Schedule(interval_s=100.0, counts=(9,)), idle) == pytest.approx(1 / (1 + 0.02 + 0.1))
    slow = [OWN, STORAGE.but(lag_s=5_000.0)]
    assert tiers.best(slow).intervals_s()[1] >= 5_000
    assert tiers.efficiency(Schedule(interval_s=1.0), [STORAGE.but(restart_s=1e9)]) == 0
