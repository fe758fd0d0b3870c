"""What must hold of trains and rollouts after every event; numbers are the architecture's.

A stop's count of open operations is the count of operations that there are; a proof names as missed whom it does not
name as visited; a version on trial is where its rollout may have it now, and no unit has two of them in one visit.
"""

from collections import Counter
from collections.abc import Iterator

from trainmaster.core.base.ids import HostId
from trainmaster.core.maintenance import rollout as rollouts
from trainmaster.core.maintenance.index import PlannerIndex
from trainmaster.core.maintenance.operation import Operation
from trainmaster.core.maintenance.train import Train, TrainState
from trainmaster.core.state import ClusterState, Derived


def broken(state: ClusterState, derived: Derived) -> Iterator[str]:
    """Sentences about what does not hold; none if all is well."""
    for train in state.maintenance.trains.values():
        yield from _train(state, train)
    yield from _trials(state, derived.planner)
    yield from _gangs(state)


def unit_of(operation: Operation) -> HostId:
    """The unit that an operation of a train is about."""
    return operation.units[0] if operation.units else operation.executor


def _train(state: ClusterState, train: Train) -> Iterator[str]:
    name, stop = train.spec.name, train.stop
    if (stop is not None) != (train.state is TrainState.STOPPING):
        yield f"the train {name} is {train.state.value} and has a stop: {stop is not None}"
    if train.state is TrainState.WAITING and train.reason is None:
        yield f"6: the train {name} waits without a reason"
    if train.state is TrainState.RESTING and f"train/{name}" not in state.wakes:
        yield f"6: the train {name} rests, and nothing will call it"
    if stop is not None:
        if f"stop/{name}" not in state.wakes and not stop.over:
            yield f"6: the stop of {name} has no end"
        operations = state.maintenance.operations.values()
        own = (one for one in operations if one.train == name and one.sequence > stop.after)
        there = Counter(unit_of(one) for one in own)
        if there != stop.open:
            yield f"6: the stop of {name} waits for {stop.open}; there are {dict(there)}"
        if not stop.open:
            yield f"6: the stop of {name} waits for nothing"
    for proof in train.proofs:
        if proof.visited + len(proof.missed) != proof.units:
            counts = f"{proof.visited} visited and {len(proof.missed)} missed of {proof.units}"
            yield f"cycle {proof.number} of {name}: {counts}"


def _trials(state: ClusterState, index: PlannerIndex) -> Iterator[str]:
    maintenance = state.maintenance
    for rollout in maintenance.rollouts.values():
        yield from rollouts.rollout_broken(rollout, index.plan_of(rollout), ())
        if rollout.is_live() and f"rollout/{rollout.id}" not in state.wakes:
            yield f"6: the rollout {rollout.id} is {rollout.state.value}, and nobody looks at it"
    for visit in maintenance.visits.values():
        names = {*visit.pending, *visit.applied, *((visit.current,) if visit.current else ())}
        found = [maintenance.operations[name] for name in names if name in maintenance.operations]
        ids = {one.rollout for one in found if one.rollout is not None and one.ends_as is None}
        live = [one for one in sorted(ids) if not rollouts.is_proven(maintenance.rollouts[one])]
        if len(live) > 1:
            yield f"5: {visit.unit} has {live} on trial in one visit, so a failure could not be attributed"


def _gangs(state: ClusterState) -> Iterator[str]:
    for gang in state.maintenance.gangs.values():
        if gang.reason is None:
            yield f"6: the gang upgrade of {gang.job} waits without a reason"
        if gang.began_at is not None and not gang.operations:
            yield f"6: the gang upgrade of {gang.job} has begun and waits for nothing"
        for name in gang.operations:
            if name not in state.maintenance.operations:
                yield f"6: the gang upgrade of {gang.job} waits for {name}, which has ended"
