"""Rollouts through the very engine: trains, planner, ledger, jobs and failures, over many seeds.

`TRAINMASTER_TWIN_ROLLOUTS` seeds for each case. A count may exceed its stated share by three standard deviations of a
count of so many seeds. The shares are written to `build/prove/twin_rollouts_shares.json`. What the fleet leaves out of
life: see `trial_fleet`.
"""

import json
import math
import os
from pathlib import Path

from tests.twin.trial_fleet import DRIVER, HOSTS, scenario
from trainmaster.core.base.ids import ComponentName, HostId, TrainName
from trainmaster.core.base.time import HOUR, Duration, Instant
from trainmaster.core.base.value import Value
from trainmaster.core.effects import AnyEffect, RunSteps
from trainmaster.core.events import AnyEvent
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.maintenance.evidence import Criteria
from trainmaster.core.maintenance.rollout import RolloutState, rollout_broken
from trainmaster.twin.report import NoClocks
from trainmaster.twin.scenario import DAY, START, Release
from trainmaster.twin.watch import Watcher
from trainmaster.twin.world import World

SEEDS = int(os.environ.get("TRAINMASTER_TWIN_ROLLOUTS", "2"))
SHARES = Path(__file__).resolve().parents[2] / "build" / "prove" / "twin_rollouts_shares.json"
CRITERIA = Criteria()
AFTERWARDS = 2 * DAY
"""After the end of a rollout the world goes on for so long: the train has gone round by then."""


def most(share: float) -> float:
    """How many of the seeds may show what has this chance."""
    return SEEDS * share + 3 * math.sqrt(SEEDS * share * (1 - share))


class Life(Value):
    """What became of a rollout."""

    seed: int
    state: RolloutState
    stage: int
    days: float
    """From the start of the world to its end, to a quarter of a day."""
    share: float
    """Of the fleet, on which the version was tried."""
    carried: float
    """Share of the fleet that carries it in production, a while after the end."""
    left_behind: int
    """Hosts in production that carry the version before, a while after the end."""


class Living:
    """A world from the start of its rollout to a while after its end."""

    def __init__(self, seed: int, release: Release) -> None:
        self.world = World(scenario(seed, release, days=60))
        self.watcher = Watcher(self.world, 5000, NoClocks())
        self.world.watch = self._see
        self.tried: set[HostId] = set()
        """Hosts on which the version was tried."""
        self.world.start()

    def live(self) -> Life:
        while not self._ended() and self._days() < 60:
            self._pass(DAY // 4)
        days = self._days()
        self._pass(AFTERWARDS)
        self.watcher.look()
        assert self.watcher.found == []
        self.plan = self.world.engine._derived.planner.plan_of(self.rollout)
        assert list(rollout_broken(self.rollout, self.plan, sorted(self.tried))) == []
        if self.rollout.state is RolloutState.OFF_BOARDED:
            self._check_cleared_up(days)
        return Life(
            seed=self.world.scenario.seed,
            state=self.rollout.state,
            stage=self.rollout.stage,
            days=days,
            share=len(self.tried) / HOSTS,
            carried=len(self._working("2")) / HOSTS,
            left_behind=len(self._working("1")),
        )

    def _see(self, event: AnyEvent, effects: tuple[AnyEffect, ...]) -> None:
        self.watcher.watch(event, effects)
        for effect in effects:
            if isinstance(effect, RunSteps) and effect.leg == "apply":
                spec = self.world.engine.state.maintenance.operations[effect.operation].spec
                if (spec.component, spec.version) == (DRIVER, "2"):
                    self.tried.add(effect.host)

    def _pass(self, duration: int) -> None:
        self.world.kernel.run(Instant(self.world.kernel.now + duration))

    def _days(self) -> float:
        return (self.world.kernel.now - START) / DAY

    def _ended(self) -> bool:
        """Also where it is held for a person."""
        rollouts = self.world.engine.state.maintenance.rollouts
        if not rollouts:
            return False
        (self.rollout,) = rollouts.values()
        return not self.rollout.is_moving()

    def _working(self, version: str, component: str = DRIVER) -> list[HostId]:
        """Hosts in production that really carry this version."""
        carried = self.world.carried
        hosts = [host for host in self.world.engine.state.hosts.values() if host.state is HostState.READY]
        name = ComponentName(component)
        return [host.id for host in hosts if carried.version(host.id, "compute", name) == version]

    def _check_cleared_up(self, days: float) -> None:
        """No host beyond the stage got the version, those that did are back at the old one or their way back waits for
        their repair, and the train went on: what is proven is everywhere."""
        assert self.tried <= set(self.plan.stage_hosts(self.rollout.stage))
        assert self._working("2") == []
        carried = self.world.carried
        away = {host for host in self.tried if carried.version(host, "compute", DRIVER) != "1"}
        waiting = {one.executor for one in self.world.engine.state.maintenance.operations.values()}
        assert away <= waiting, sorted(away - waiting)
        train = self.world.engine.state.maintenance.trains[TrainName("main")]
        assert train.cycle >= days, train.reason
        assert len(self._working("2", "nic")) > 0.9 * HOSTS
        missed = {one.unit for one in train.proofs[-1].missed}
        assert len(set(self._working("1", "nic")) - missed) < 0.01 * HOSTS  # steps of one in 500 fail


def lives(truth: dict[str, float | int]) -> list[Life]:
    release = Release(component=DRIVER, version="2", after=Duration(HOUR), **truth)  # type: ignore[arg-type]
    return [Living(seed, release).live() for seed in range(SEEDS)]


def count(made: list[Life], state: RolloutState) -> int:
    return sum(life.state is state for life in made)


def tell(case: str, made: list[Life], **more: int) -> None:
    """Prints what came out, and writes it beside the proofs."""
    days = sorted(life.days for life in made)
    row = {
        "seeds": SEEDS,
        "hosts": HOSTS,
        **{state.value: count(made, state) for state in RolloutState if count(made, state)},
        "share_tried_most": max(life.share for life in made),
        "days_median": days[len(days) // 2],
        "days_most": days[-1],
        **more,
    }
    print(case, row)
    SHARES.parent.mkdir(parents=True, exist_ok=True)
    told = json.loads(SHARES.read_text()) if SHARES.exists() else {}
    SHARES.write_text(json.dumps({**told, case: row}, indent=1) + "\n")


def test_hosts_that_do_not_come_back() -> None:
    """1. 20 % of the hosts do not come back from the upgrade; the canary has as many hosts as 1 % of 3,072. 2. It is
    off-boarded there or in the next stage in nine of ten seeds, and never gets to a tenth of the fleet. 3. No host
    beyond its stage got the version; its hosts are rolled back, those in repair when they return; the train went on
    with what is proven."""
    made = lives({"fails_return": 0.2, "canary": 32})
    first = sum(life.stage == 0 for life in made)
    later = sum(life.stage > 1 for life in made)
    tell("fails_return 0.2", made, in_canary=first, in_second_stage=SEEDS - first - later, later=later)
    assert {life.state for life in made} <= {RolloutState.OFF_BOARDED, RolloutState.HELD}
    assert count(made, RolloutState.HELD) <= most(0.01)  # seldom enough bad luck to judge it in time
    assert max(life.share for life in made) < 0.1
    assert later <= most(0.1)


def test_what_shows_under_load_only() -> None:
    """1. Hosts that carry the version fail three times as often under load. 2. In all but beta of the seeds it is
    off-boarded (now and then held) before a tenth of the fleet has got it. 3. Its hosts are rolled back."""
    made = lives({"failure_factor": 3.0})
    beyond = [life for life in made if life.share >= 0.1]
    tell("failure_factor 3.0", made, a_tenth_or_more=len(beyond))
    assert len(beyond) <= most(CRITERIA.beta)
    below = [life for life in made if life.share < 0.1]
    assert {life.state for life in below} <= {RolloutState.OFF_BOARDED, RolloutState.HELD}
    assert count(below, RolloutState.HELD) <= most(0.03)


def test_a_harmless_version() -> None:
    """1. Nothing is wrong with the version. 2. It completes in all but alpha of the seeds, and every host in production
    carries it, but for a few whose steps failed or that came back from repair just now."""
    made = lives({})
    tell("harmless", made)
    assert count(made, RolloutState.OFF_BOARDED) <= most(CRITERIA.alpha)
    assert count(made, RolloutState.HELD) <= most(0.03)
    complete = [life for life in made if life.state is RolloutState.COMPLETE]
    assert all(life.carried > 0.9 for life in complete)
    assert all(life.left_behind < 0.01 * HOSTS for life in complete)
