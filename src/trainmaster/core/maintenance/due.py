"""What is due on a unit: the versions that it should have and does not.

A proven version is due on every unit of the component's kinds that was seen with another one, or with none. A version
on trial is due on the hosts that its rollout has drawn up to its present stage. At most one version on trial is due on
a unit at a time, so that a failure can be attributed; the rollout that was declared first goes first. What is below
waits: a component whose predecessors are due as well stands behind them, in the order of the catalogue.
"""

from collections.abc import Collection, Iterator

from trainmaster.core.base.ids import ComponentName, HostId, RolloutId
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.maintenance import rollout as rollouts
from trainmaster.core.maintenance.catalogue import Component
from trainmaster.core.step import Step


class Due(Value):
    """One update that a unit should get."""

    unit: HostId
    component: ComponentName
    version: str
    rollout: RolloutId | None
    """The rollout whose version is on trial here; None: it is proven."""


def due_on(step: Step, host: Host, components: Collection[ComponentName] = ()) -> Iterator[Due]:
    """What a train may bring to this unit now; only of these components, if any are named."""
    maintenance, index = step.state.maintenance, step.derived.planner
    on_trial = False
    for component in index.components_for(host.spec.kind):
        if components and component.name not in components:
            continue
        wanted, rollout = maintenance.targets.get(component.name, ""), None
        trial = index.rollout_of(component.name)
        if trial is not None and rollouts.may_begin(trial, index.plan_of(trial), host.id):
            proven = rollouts.is_proven(trial)
            if not proven and on_trial:
                continue
            wanted, rollout = trial.spec.version, trial.id
            on_trial = on_trial or (not proven and host.versions.get(component.name) != wanted)
        elif trial is not None and host.versions.get(component.name) == trial.spec.version:
            continue
        if wanted and host.versions.get(component.name) != wanted and not _pending(step, host, component, wanted):
            yield Due(unit=host.id, component=component.name, version=wanted, rollout=rollout)


def _pending(step: Step, host: Host, component: Component, version: str) -> bool:
    """Somebody has asked for just this already, and it has not ended."""
    visit = step.state.maintenance.visits.get(host.id)
    if visit is None:
        return False
    operations = step.state.maintenance.operations
    names = (*visit.pending, *visit.applied, *((visit.current,) if visit.current else ()))
    specs = (operations[name].spec for name in names if name in operations)
    return any(spec.component == component.name and spec.version == version for spec in specs)
