"""Stages and the hosts drawn for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.ids import ComponentName, HostId, RolloutId
from trainmaster.core.base.time import HOUR, Duration
from trainmaster.core.maintenance.stages import (
    Exponential,
    Fixed,
    Percentages,
    Plan,
    RolloutSpec,
    Strategy,
    spec_problems,
    stage_counts,
)


def spec(hosts: int, stages: Strategy | None = None, canary: int = 0, pods: int = 0) -> RolloutSpec:
    return RolloutSpec(
        component=ComponentName("driver"),
        version="2",
        pool=tuple(HostId(f"h{number}") for number in range(hosts)),
        strata=tuple(f"p{number % pods}" for number in range(hosts)) if pods else (),
        stages=stages or Percentages(),
        canary=canary,
    )


@pytest.mark.parametrize(
    ("hosts", "stages", "canary", "counts"),
    [
        (3072, Percentages(), 0, (31, 62, 123, 246, 492, 984, 1967, 3072)),
        (6144, Percentages(), 0, (62, 123, 246, 492, 984, 1967, 3933, 6144)),
        (40, Percentages(), 0, (1, 2, 4, 7, 13, 26, 40)),
        (1, Percentages(), 0, (1,)),
        (1000, Percentages(percents=(0.1, 50.0)), 0, (1, 500, 1000)),
        (1000, Percentages(percents=(10.0,)), 3, (3, 100, 1000)),
        (10, Percentages(percents=(20.0, 100.0)), 5, (5, 10)),
        (10, Fixed(hosts=4), 0, (4, 8, 10)),
        (10, Fixed(hosts=4), 1, (1, 4, 8, 10)),
        (10, Fixed(hosts=50), 0, (10,)),
        (10, Percentages(), 50, (10,)),
        (20, Exponential(), 0, (1, 2, 4, 8, 16, 20)),
        (20, Exponential(first=3, factor=1.5), 0, (3, 5, 7, 11, 16, 20)),
    ],
)
def test_counts(hosts: int, stages: Strategy, canary: int, counts: tuple[int, ...]) -> None:
    assert stage_counts(spec(hosts, stages, canary)) == counts


STRATEGIES = st.one_of(
    st.builds(Fixed, hosts=st.integers(1, 50)),
    st.builds(Exponential, first=st.integers(1, 50), factor=st.floats(1.1, 20)),
    st.lists(st.floats(0.01, 100), min_size=1, unique=True).map(lambda ps: Percentages(percents=tuple(sorted(ps)))),
)


@given(st.integers(1, 200), STRATEGIES, st.integers(0, 300), st.integers(0, 9))
def test_stages_grow_to_the_pool(hosts: int, stages: Strategy, canary: int, pods: int) -> None:
    """1. Any strategy on any pool. 2. Counts grow strictly, from at least 1 to the pool. 3. Stages contain each other
    and add up to the pool, each host once. 4. A host is on trial from its own stage on, and not before."""
    asked = spec(hosts, stages, canary, pods)
    assert spec_problems(asked) == []
    plan = Plan(RolloutId("r1"), asked, seed=5)
    assert all(a < b for a, b in zip((0, *plan.counts), plan.counts, strict=False))
    assert plan.counts[-1] == hosts
    added = [host for stage in range(len(plan.counts)) for host in plan.new_hosts(stage)]
    assert tuple(added) == plan.order == plan.stage_hosts(len(plan.counts) - 1)
    assert set(added) == set(asked.pool)
    for host in asked.pool:
        first = plan.stage_of(host)
        assert plan.is_on_trial(host, first)
        assert first == 0 or not plan.is_on_trial(host, first - 1)


def test_a_stage_is_spread_over_the_pods() -> None:
    """1. 3,072 hosts in 48 pods. 2. The stage of 246 hosts has 4 to 7 of each; by chance alone some have none or 12."""
    asked = spec(3072, pods=48)
    plan = Plan(RolloutId("r1"), asked, seed=1)
    pod_of = dict(zip(asked.pool, asked.strata, strict=True))
    pods = [pod_of[host] for host in plan.stage_hosts(3)]
    assert {pods.count(pod) for pod in set(asked.strata)} <= {4, 5, 6, 7}
    assert len(set(pods)) == 48


def test_each_host_is_as_likely_as_any_other() -> None:
    """1. Pods of unequal size. 2. Over 2,000 rollouts each host is in the canary of 3 about as often."""
    names = tuple(HostId(f"h{number}") for number in range(12))
    asked = spec(12, Fixed(hosts=3)).but(pool=names, strata=("a",) * 8 + ("b",) * 3 + ("c",))
    often = dict.fromkeys(names, 0)
    for number in range(2000):
        for host in Plan(RolloutId(f"r{number}"), asked, seed=1).stage_hosts(0):
            often[host] += 1
    assert min(often.values()) > 420
    assert max(often.values()) < 580


def test_the_draw_is_the_rollouts_own() -> None:
    """1. The same rollout draws the same hosts again. 2. Another rollout or seed draws others."""
    asked = spec(500)
    draws = {Plan(RolloutId(name), asked, seed).order for name, seed in [("r1", 1), ("r1", 1), ("r2", 1), ("r1", 2)]}
    assert len(draws) == 3


def test_a_stranger_is_never_on_trial() -> None:
    assert not Plan(RolloutId("r1"), spec(4), seed=1).is_on_trial(HostId("x9"), 1)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (spec(0), "the pool is empty; name the hosts that are to get the version"),
        (spec(1).but(pool=(HostId("a"), HostId("a"))), "the pool names a host twice"),
        (spec(2).but(strata=("p",)), "1 strata are given for 2 hosts; give one a host, or none"),
        (spec(2, Percentages(percents=())), "percents are []; they grow, from above 0 to at most 100"),
        (spec(2, Percentages(percents=(5.0, 4.0))), "percents are [5.0, 4.0]; they grow, from above 0 to at most 100"),
        (spec(2, Percentages(percents=(120.0,))), "percents are [120.0]; they grow, from above 0 to at most 100"),
        (spec(2, Fixed(hosts=0)), "a fixed stage has 0 hosts; it has at least 1"),
        (spec(2, Exponential(factor=1.0)), "stages start at 1 hosts and grow by 1; at least 1, by more than 1"),
        (spec(2, canary=-1), "the canary has -1 hosts; it has at least 1, or 0 for the strategy's first stage"),
        (spec(2).but(unproven_percent=0.0), "unproven_percent is 0; it is above 0 and at most 100"),
        (
            spec(2).but(stage_limit=HOUR, soak=Duration(2 * HOUR)),
            "soak and stage_limit are 2 h and 1 h; the limit must leave time for the soak",
        ),
    ],
)
def test_a_spec_that_cannot_be(asked: RolloutSpec, problem: str) -> None:
    assert spec_problems(asked) == [problem]
