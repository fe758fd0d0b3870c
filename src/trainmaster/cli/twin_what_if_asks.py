"""What a maintenance file asks for, as the events that a server would make of it.

The server checks a request against its state and makes events of it; a simulation that begins with this state does the
same, by the same functions. Each event is made when those before it are applied, so that keys and names are known.
"""

from collections.abc import Iterator
from typing import Final

from trainmaster.cli.errors import Failed
from trainmaster.core.base.ids import Owner
from trainmaster.core.base.reasons import Reason
from trainmaster.core.commands import find_job
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
    AnyEvent,
    GangUpgradeRequested,
    OperationRequested,
    RolloutDeclared,
    TrainDeclared,
    VersionTargeted,
)
from trainmaster.core.maintenance.building import build_train
from trainmaster.core.maintenance.check import check_component, check_operation
from trainmaster.core.maintenance.plans import plan_gang, plan_rollout, resolve_after
from trainmaster.core.rehearsal import Rehearsal
from trainmaster.core.step import Step
from trainmaster.live.maintfile import Asked
from trainmaster.live.server.http import Refusal
from trainmaster.live.server.maintenance_plans import next_rollout, rollout_spec
from trainmaster.live.server.maintenance_resources import GangRequest, RolloutRequest, TrainRequest, VersionRequest

BY: Final = Owner("person:what-if")
SEED: Final = 1
"""Draws the hosts of a rollout for which no plan was made; one that was made has drawn them."""


def events_of(engine: Engine, asked: Asked) -> Iterator[AnyEvent]:
    """All events, in the order in which `maint apply` asks. Raises `Failed` for what a server would refuse."""
    yield from _operations(engine, asked)
    for gang in asked.gangs:
        yield _gang(engine, gang)
    for version in asked.versions:
        yield _version(_look(engine), version)
    for rollout in asked.rollouts:
        yield _rollout(_look(engine), rollout)
    for train in asked.trains:
        yield _train(_look(engine), train)


def _look(engine: Engine) -> Step:
    return engine.glance(engine.state.now)


def _refused(what: str, reason: Reason) -> Failed:
    return Failed(f"the server would refuse {what}", f"{reason.token}: {reason.sentence}", reason.token.advice)


def _operations(engine: Engine, asked: Asked) -> Iterator[AnyEvent]:
    total = len(asked.operations)
    for place, ask in enumerate(asked.operations, 1):
        step = _look(engine)
        spec = resolve_after(ask.spec, step.state.maintenance.keys)
        reason = check_operation(step, spec)
        if reason is not None:
            raise _refused(f"operation {place} of {total}", reason)
        yield OperationRequested(at=step.now, spec=spec, by=BY, key=ask.key)


def _gang(engine: Engine, asked: GangRequest) -> AnyEvent:
    step = _look(engine)
    what = f"the gang upgrade of {asked.job}"
    job = find_job(step.state, asked.job)
    if job is None:
        raise Failed(f"the server would refuse {what}", "there is no such job", "trainmaster job ls --all")
    found = plan_gang(Rehearsal(engine.snapshot(), step.now), job.id, asked.component, asked.version)
    if isinstance(found, Reason):
        raise _refused(what, found)
    return GangUpgradeRequested(
        at=step.now, job=job.id, component=asked.component, version=asked.version, by=BY, reason=asked.reason
    )


def _version(step: Step, asked: VersionRequest) -> AnyEvent:
    reason = check_component(step, asked.component, asked.version, f"version of {asked.component}")
    if reason is not None:
        raise _refused(f"the version {asked.version} of {asked.component}", reason)
    return VersionTargeted(at=step.now, component=asked.component, version=asked.version, by=BY)


def _rollout(step: Step, asked: RolloutRequest) -> AnyEvent:
    what = f"the rollout of {asked.component} {asked.version}"
    name = next_rollout(step)
    seed = asked.seed if asked.seed is not None else SEED
    try:
        spec = rollout_spec(step, asked)
    except Refusal as error:
        raise _refused(what, error.problem.reason) from error
    found = plan_rollout(step, name, spec, seed, step.state.index)
    if isinstance(found, Reason):
        raise _refused(what, found)
    return RolloutDeclared(at=step.now, rollout=name, spec=spec, seed=seed, by=BY)


def _train(step: Step, asked: TrainRequest) -> AnyEvent:
    spec = build_train(step, asked.train)
    if isinstance(spec, Reason):
        raise _refused(f"the train {asked.train.name}", spec)
    return TrainDeclared(at=step.now, spec=spec, by=BY)
