"""What a run tells of trains and versions: whom each cycle visited, how rollouts went, how far versions lie apart."""

from itertools import pairwise
from typing import TYPE_CHECKING

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import HOUR
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.rollout import Rollout
from trainmaster.core.maintenance.train import CycleProof, MissedUnit, TrainState
from trainmaster.core.maintenance.trains import proof_of

if TYPE_CHECKING:
    from trainmaster.twin.world import World


class CycleReport(Value):
    """The proof of a cycle; of one that is under way, as far as it is."""

    number: int
    hours: float
    units: int
    visited: int
    worked_on: int
    missed: int
    missed_by_reason: dict[str, int]
    longest_gap_h: float


class TrainReport(Value):
    state: str
    units: int
    stops: int
    """That have begun."""
    waited_h: dict[str, float]
    """How long stops were due and something forbade them, by its token and by samples at even times."""
    held_back: dict[str, str]
    """Components that its last stop did not bring although they were due, with the rule that kept them."""
    cycles: tuple[CycleReport, ...]


class StageReport(Value):
    at_h: float
    """From the begin of the rollout."""
    state: str
    what: str


class RolloutReport(Value):
    component: str
    version: str
    state: str
    stage: int
    """From 1; the last one that it had."""
    stages: int
    pool: int
    tried: int
    """Hosts whose first operation has ended."""
    carriers: int
    """That were observed with it at the end of the run."""
    hours: float
    story: tuple[StageReport, ...]
    reason: str


class SkewReport(Value):
    """Versions of a component at the end of the run."""

    newest: str
    units: dict[str, int]
    """By version, as it is in truth."""
    oldest_h: float
    """Since when the unit that is farthest behind could have had a newer version."""


def trains(world: "World", waits: dict[tuple[str, str], float]) -> dict[str, TrainReport]:
    """`waits`: hours by train and token."""
    found = {}
    for name, train in sorted(world.engine.state.maintenance.trains.items()):
        whole = (train.cycle - 1) * len(train.spec.domains) + train.next_domain
        proofs = train.proofs
        if train.state is not TrainState.ENDED and train.cycle_began <= world.kernel.now:
            proofs = (*proofs, proof_of(train, world.kernel.now))
        found[str(name)] = TrainReport(
            state=train.state.value,
            units=train.units(),
            stops=whole + (train.stop is not None),
            waited_h={token: round(hours, 2) for (waiter, token), hours in waits.items() if waiter == name},
            held_back={str(name): reason.sentence for name, reason in sorted(train.held_back.items())},
            cycles=tuple(map(_cycle, proofs)),
        )
    return found


def _cycle(proof: CycleProof) -> CycleReport:
    return CycleReport(
        number=proof.number,
        hours=round((proof.ended_at - proof.began_at) / HOUR, 2),
        units=proof.units,
        visited=proof.visited,
        worked_on=proof.worked_on,
        missed=len(proof.missed),
        missed_by_reason=_reasons(proof.missed),
        longest_gap_h=round(proof.longest_gap / HOUR, 2),
    )


def _reasons(missed: tuple[MissedUnit, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in missed:
        token = one.reason.token.value
        counts[token] = counts.get(token, 0) + 1
    return counts


def last_cycles(world: "World") -> tuple[list[HostId], list[HostId]]:
    """Units that the last whole cycle of their train visited, and those that it missed. Before the first cycle has
    ended: those that were visited so far, and the others."""
    visited: list[HostId] = []
    missed: list[HostId] = []
    for train in world.engine.state.maintenance.trains.values():
        proof = train.proofs[-1] if train.proofs else proof_of(train, world.kernel.now)
        gone = {one.unit for one in proof.missed}
        for unit in (unit for domain in train.spec.domains for unit in domain):
            (missed if unit in gone else visited).append(unit)
    return visited, missed


def rollouts(world: "World") -> dict[str, RolloutReport]:
    state = world.engine.state.maintenance
    return {str(name): _rollout(world, rollout) for name, rollout in sorted(state.rollouts.items())}


def _rollout(world: "World", rollout: Rollout) -> RolloutReport:
    spec, plan = rollout.spec, world.engine._derived.planner.plan_of(rollout)
    hosts = world.engine.state.hosts
    end = world.kernel.now if rollout.is_live() or not rollout.story else rollout.story[-1].at
    return RolloutReport(
        component=spec.component,
        version=spec.version,
        state=rollout.state.value,
        stage=rollout.stage + 1,
        stages=len(plan.counts),
        pool=len(plan.order),
        tried=len(rollout.evidence.operated),
        carriers=sum(hosts[unit].versions.get(spec.component) == spec.version for unit in plan.order),
        hours=round((end - rollout.began_at) / HOUR, 1),
        story=tuple(
            StageReport(at_h=round((chapter.at - rollout.began_at) / HOUR, 1), state=chapter.end, what=chapter.cause)
            for chapter in rollout.story
        ),
        reason=rollout.reason.sentence if rollout.reason is not None else "",
    )


def skew(world: "World") -> dict[str, SkewReport]:
    """By component that has releases."""
    found: dict[str, SkewReport] = {}
    came_out = sorted(world.releases.came_out.items(), key=lambda item: (item[1], item[0]))
    for component in sorted(world.carried.released):
        order = [(version, at) for (name, version), at in came_out if name == component]
        successors = {version: at for (version, _), (_, at) in pairwise(order)}
        counts: dict[str, int] = {}
        for unit in world.units.values():
            version = world.carried.version(unit.id, unit.kind, component)
            if version:
                counts[version] = counts.get(version, 0) + 1
        behind = [successors[version] for version in counts if version in successors]
        found[component] = SkewReport(
            newest=order[-1][0] if order else "",
            units=dict(sorted(counts.items())),
            oldest_h=round((world.kernel.now - min(behind, default=world.kernel.now)) / HOUR, 1),
        )
    return found
