"""Whole rollouts in a simulated pool, over many seeds: the stated error rates are those that are met.

`TRAINMASTER_ROLLOUTS` seeds for each case; each count may exceed its stated share by three standard deviations of a
count of that many seeds, no more.
"""

import math
import os

import pytest
from tests.unit.core.maintenance.rollout_world import Version, World

from trainmaster.core.base.ids import ComponentName, HostId
from trainmaster.core.maintenance.evidence import Criteria
from trainmaster.core.maintenance.rollout import RolloutState, rollout_broken
from trainmaster.core.maintenance.stages import RolloutSpec

SEEDS = int(os.environ.get("TRAINMASTER_ROLLOUTS", "4"))
FLEETS = pytest.mark.parametrize(
    ("hosts", "per_1000_host_days"), [(3072, 6.5), (3072, 3.79), (6144, 6.5), (6144, 3.79)]
)
HARMLESS, LOADED, BROKEN = Version(), Version(rate_factor=3.0), Version(operations_failing=0.2)


def most(share: float) -> float:
    """How many of the seeds may show what has this chance."""
    return SEEDS * share + 3 * math.sqrt(SEEDS * share * (1 - share))


def worlds(hosts: int, per_1000_host_days: float, version: Version, lemons: int = 0) -> list[World]:
    """Each ran until its rollout ended or was held, and broke no invariant on the way's end."""
    made = []
    for seed in range(SEEDS):
        world = World(seed=seed, hosts=hosts, per_1000_host_days=per_1000_host_days, version=version, lemons=lemons)
        world.run()
        assert list(rollout_broken(world.rollout, world.plan, world.carriers)) == []
        made.append(world)
    return made


def count(made: list[World], state: RolloutState) -> int:
    return sum(world.rollout.state is state for world in made)


@FLEETS
def test_a_harmless_version_completes(hosts: int, per_1000_host_days: float) -> None:
    """1. Its operations fail now and then (0.5 %), its hosts as all others. 2. It is rejected in alpha of the rollouts
    at most. 3. Nearly all others complete, within four weeks; a few are held for a person."""
    made = worlds(hosts, per_1000_host_days, HARMLESS)
    assert count(made, RolloutState.OFF_BOARDED) <= most(Criteria().alpha)
    assert count(made, RolloutState.HELD) <= most(0.03)
    days = sorted(world.days() for world in made if world.rollout.state is RolloutState.COMPLETE)
    assert days[len(days) // 2] < 14
    assert days[-1] < 35


@FLEETS
def test_what_shows_only_under_load_is_caught_below_a_tenth(hosts: int, per_1000_host_days: float) -> None:
    """1. Hosts with the version fail three times as often, its operations are fine. 2. Before a tenth of the pool
    carries it the version is off-boarded (now and then held), in all but beta of the rollouts."""
    made = worlds(hosts, per_1000_host_days, LOADED)
    assert sum(world.share() >= 0.1 for world in made) <= most(Criteria().beta)
    below = [world for world in made if world.share() < 0.1]
    assert all(world.rollout.state in (RolloutState.OFF_BOARDED, RolloutState.HELD) for world in below)
    assert count(below, RolloutState.HELD) <= most(0.03)


@FLEETS
def test_hosts_that_do_not_come_back_are_seen_at_once(hosts: int, per_1000_host_days: float) -> None:
    """1. 20 % of the upgraded hosts don't come back. 2. The version is off-boarded in the canary or the stage after."""
    made = worlds(hosts, per_1000_host_days, BROKEN)
    late = [world for world in made if world.rollout.state is not RolloutState.OFF_BOARDED or world.rollout.stage > 1]
    assert len(late) <= most(Criteria().beta)


def test_a_lemon_in_the_canary_rejects_nothing() -> None:
    """1. By bad luck the canary has a host that fails eight times a day, whatever it carries. 2. It counts once, so a
    harmless version has used up a factor theta of its chance to be rejected for failures, and no more."""
    made = worlds(3072, 6.5, HARMLESS, lemons=1)
    criteria = Criteria()
    assert count(made, RolloutState.OFF_BOARDED) <= most(criteria.alpha / 2 * (1 + criteria.theta))


def test_without_proof_a_bad_version_spreads() -> None:
    """The gate matters: 1. the same bad version, and no proof is asked for. 2. In most rollouts more than a tenth of
    the pool carries it."""
    names = tuple(HostId(f"h{number}") for number in range(3072))
    spec = RolloutSpec(component=ComponentName("driver"), version="2", pool=names, unproven_percent=100.0)
    spread = 0
    for seed in range(4):
        world = World(seed=seed, hosts=3072, per_1000_host_days=6.5, version=LOADED, spec=spec)
        world.run()
        spread += world.share() > 0.1
    assert spread >= 2


def test_a_small_pool_is_held_and_says_why() -> None:
    """1. 40 hosts are too few to prove anything in two weeks. 2. The rollout is held for a person below a tenth of the
    pool, with what is missing."""
    world = World(seed=1, hosts=40, per_1000_host_days=6.5, version=HARMLESS)
    rollout = world.run()
    assert rollout.state is RolloutState.HELD
    assert world.share() <= 0.1
    assert rollout.reason is not None
    assert "proof under load needs about" in rollout.reason.sentence
