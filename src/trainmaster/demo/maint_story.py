"""The course of the maintenance demo: one train round all hosts, a version that fails on the way, and a gang upgrade.

Everything is asked for through the API, as a person would: versions, a rollout and a train are declared, then one only
watches. The installers really run on the hosts, and the reboots really end everything that runs there.
"""

from pathlib import Path
from typing import Final

from trainmaster.cli.client import Client
from trainmaster.core.base.hostlist import parse
from trainmaster.core.base.ids import HostId, OperationId, RolloutId, TrainName
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.capacity import Share
from trainmaster.core.maintenance.evidence import Criteria
from trainmaster.core.maintenance.plan import GangPlan
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.demo import maint_scene as scene
from trainmaster.demo.maint_scene import NIC, RUNTIME, SLIDING
from trainmaster.demo.narrator import Narrator
from trainmaster.demo.scene import HOSTS, SPARES
from trainmaster.demo.story import Story, now
from trainmaster.live.server.maintenance_resources import (
    GangReport,
    GangRequest,
    MaintenanceReport,
    Operations,
    RolloutDetail,
    RolloutReport,
    RolloutRequest,
    TrainDetail,
    TrainReport,
    TrainRequest,
    VersionRequest,
    Visits,
)
from trainmaster.live.server.resources import JobDetail

TRAIN: Final = TrainName("upkeep")
CYCLE_S: Final = 60.0
"""From one visit of a host to the next. Stops that take longer than their share follow each other at once."""
SEEDS: Final = 100
WORDS: Final = {
    "noticed": "its job was told; it leaves after its next checkpoint",
    "draining": "leaves production",
    "out": "is out",
    "applying": "is worked on",
    "rebooting": "boots, once for all that asked for it",
    "checking": "is up again: are the new versions there?",
    "returning": "proves that it works",
}


class Told(Value):
    """What was done to the maintained run."""

    train_from: Instant
    train_until: Instant
    """Its first cycle is over."""
    rollout: RolloutId
    canary: tuple[HostId, ...]
    """The first hosts of the rollout; its version fails on the last of them."""
    gang_at: Instant
    gang: GangPlan
    """What was shown before the gang upgrade was asked for."""


class MaintStory(Story):
    patience_s = 900.0
    """A round of the train takes a minute, and many on a machine that has other things to do."""

    def __init__(self, client: Client, narrator: Narrator, state_dir: Path, steps: int) -> None:
        super().__init__(client, narrator, state_dir, steps)
        self._phases: dict[HostId, str] = {}
        self._ended: set[OperationId] = set()

    def maintained(self, job: str, ends: Path) -> tuple[JobDetail, Told]:
        """The whole story over a job that was submitted, and that takes its time until `ends` is there."""
        self._until(job, "it trains with its spare", _is_whole)
        canary, rollout = self._begin_rollout()
        self._target()
        train_from = now()
        self._begin_train()
        self._until(job, "the train has been everywhere", lambda _: bool(self._train().proofs))
        train_until = now()
        proof = self._train().proofs[0]
        self._narrator.say(f"the train has been everywhere: {proof.visited} of {proof.units} hosts, none missed")
        self._until(job, "the rejected version is gone", lambda _: self._is_rolled_back(rollout, canary))
        self._until(job, "it trains with its spare", _is_whole)
        gang_at, gang = self._upgrade_gang(job)
        self._until(job, "it trains again", _is_back)
        ends.touch()
        self._narrator.say("it trains on; from here to its end nobody disturbs it")
        detail = self._until(job, "the run ends", lambda detail: detail.job.state == "finished")
        told = Told(
            train_from=train_from, train_until=train_until, rollout=rollout, canary=canary, gang_at=gang_at, gang=gang
        )
        return detail, told

    # --- what a person asks for

    def _begin_rollout(self) -> tuple[tuple[HostId, ...], RolloutId]:
        """Puts a version on trial on two hosts that are drawn at random, and packs it so that it lies on the second."""
        for seed in range(1, SEEDS):
            plan = self._client.post("/v1/rollouts", _rollout(seed, dry_run=True), RolloutReport).plan
            canary = tuple(sorted(parse(plan.stages[0].new)))
            if canary[0] != "h0" and canary[-1] != f"h{HOSTS + SPARES - 1}":  # so that the train has a before and after
                break
        else:
            raise AssertionError("no seed draws two hosts in the middle")
        scene.make_package(self._state_dir, NIC, "2", "lie", on=canary[-1:])
        report = self._client.post("/v1/rollouts", _rollout(seed, dry_run=False), RolloutReport)
        words = f"{report.rollout}: {NIC.name} 2 on trial on {' '.join(canary)} first"
        self._narrator.say(f"{words}; its installer will lie on {canary[-1]} (exit code 0, nothing changed)")
        return canary, report.rollout

    def _target(self) -> None:
        wanted = [(NIC, "1"), *((part, "2") for part in SLIDING)]
        for part, version in wanted:
            body = VersionRequest(component=part.name, version=version, reason="proven elsewhere")
            self._client.post("/v1/versions", body, MaintenanceReport)
        self._narrator.say(f"proven, for every host: {', '.join(f'{part.name} 2' for part in SLIDING)}")

    def _begin_train(self) -> None:
        wish = TrainWish(name=TRAIN, cluster="desk", domain_size=Share(hosts=1), cycle=seconds(CYCLE_S), mode="act")
        body = TrainRequest(train=wish, reason="the weekly round, in a minute", dry_run=True)
        plan = self._client.post("/v1/trains", body, TrainReport).plan
        due = sum(one.units for domain in plan.domains for one in domain.due)
        self._narrator.say(f"plan of the train: {len(plan.domains)} stops of one host, {due} updates are due")
        self._client.post("/v1/trains", body.but(dry_run=False), TrainReport)

    def _upgrade_gang(self, job: str) -> tuple[Instant, GangPlan]:
        body = GangRequest(job=job, component=RUNTIME.name, version="2", reason="all ranks need the same", dry_run=True)
        plan = self._client.post("/v1/gang-upgrades", body, GangReport).plan
        cost = f"{plan.units} hosts ({plan.hosts}) out for about {plan.expected_s:.0f} s, {plan.steps_lost} steps lost"
        self._narrator.say(f"plan of {RUNTIME.name} 2, which all hosts of a job must agree on: {cost}")
        asked = body.but(dry_run=False, check_index=plan.index, check_plan=plan.fingerprint)
        at = now()
        self._client.post("/v1/gang-upgrades", asked, GangReport)
        return at, plan

    # --- what is seen

    def _train(self) -> TrainDetail:
        return self._client.get(f"/v1/trains/{TRAIN}", TrainDetail)

    def _is_rolled_back(self, rollout: RolloutId, canary: tuple[HostId, ...]) -> bool:
        if self._client.get(f"/v1/rollouts/{rollout}", RolloutDetail).rollout.state != "off-boarded":
            return False
        first = self._client.get("/v1/visits", Visits, hosts=canary[0])
        back = self._client.get("/v1/operations", Operations, rollout="", host=canary[0], state="live")
        return not first.items and not back.items

    def _tell_events(self) -> None:
        super()._tell_events()
        visits = {visit.unit: visit for visit in self._client.get("/v1/visits", Visits).items}
        for unit in sorted({*visits, *self._phases}):
            phase = visits[unit].phase if unit in visits else ""
            if phase == self._phases.get(unit, ""):
                continue
            self._phases[unit] = phase
            self._narrator.say(f"  {unit} {WORDS.get(phase, phase) if phase else 'is back'}")
        self._tell_ended()

    def _tell_ended(self) -> None:
        found = self._client.get("/v1/operations", Operations, state="ended", limit=30).items
        for one in reversed(found):
            if one.id in self._ended:
                continue
            self._ended.add(one.id)
            why = f": {one.reason.sentence}" if one.reason is not None and one.state != "done" else ""
            self._narrator.say(f"    {one.id} {one.component} {one.version} on {' '.join(one.scope)} {one.state}{why}")


def _rollout(seed: int, dry_run: bool) -> RolloutRequest:
    """Two hosts, then all. Among five one failure is a fifth, so one is enough to reject: tolerable is one in a
    hundred, unacceptable one in two."""
    return RolloutRequest(
        component=NIC.name,
        version="2",
        canary=2,
        criteria=Criteria(tolerable=0.005, unacceptable=0.5),
        seed=seed,
        reason="new firmware",
        dry_run=dry_run,
    )


def _is_back(detail: JobDetail) -> bool:
    """It has done a step after the gang upgrade."""
    return any(
        incident.cause.token is Token.GANG_UPGRADE and incident.resumed_at is not None
        for incident in detail.account.incidents
    )


def _is_whole(detail: JobDetail) -> bool:
    job = detail.job
    return job.attempt_state == "running" and len(job.spares) == SPARES and job.step > 0 and job.reason is None
