"""What is due on a unit: the versions that it should have and does not.

A proven version is due on every unit of the component's kinds that was seen with another one, or with none. A version
on trial is due on the hosts that its rollout has drawn up to its present stage. At most one version on trial is due on
a unit at a time, so that a failure can be attributed; the rollout that was declared first goes first. What is below
waits: a component whose predecessors are due as well stands behind them, in the order of the catalogue.
"""

from collections.abc import Collection, Iterator

from trainmaster.core.base.ids import ComponentName, HostId, RolloutId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.maintenance import rollout as rollouts
from trainmaster.core.maintenance.catalogue import Component
from trainmaster.core.maintenance.operation import Operation
from trainmaster.core.maintenance.rollout import Rollout
from trainmaster.core.step import Step


class Due(Value):
    """One update that a unit should get."""

    unit: HostId
    component: ComponentName
    version: str
    rollout: RolloutId | None
    """The rollout whose version is on trial here; None: it is proven."""


class HeldBack(Value):
    """An update that would be due, but would break a rule of the catalogue."""

    unit: HostId
    component: ComponentName
    reason: Reason


def due_on(step: Step, host: Host, components: Collection[ComponentName] = ()) -> tuple[list[Due], list[HeldBack]]:
    """What a train may bring to this unit now, and what it may not because versions would not go together; only of
    these components, if any are named."""
    rows = list(_wanted(step, host, components))
    held: list[HeldBack] = []
    while rows:
        planned = {**host.versions, **{row.component: row.version for row in rows}}
        broken = step.derived.planner.broken_rules(planned)
        by_name = {row.component: row for row in rows}
        blamed = [
            (by_name[name], one)
            for one in broken
            for name in (one.rule.when.component, one.rule.needs.component)
            if name in by_name
        ]
        if not blamed:
            break
        row, one = blamed[0]
        rows.remove(row)
        reason = because(Token.VERSIONS_CLASH, f"{row.component} {row.version} would break a rule: {one.sentence}")
        held.append(HeldBack(unit=host.id, component=row.component, reason=reason))
    return rows, held


def _wanted(step: Step, host: Host, components: Collection[ComponentName]) -> Iterator[Due]:
    maintenance, index = step.state.maintenance, step.derived.planner
    on_trial = any(not rollouts.is_proven(one) for one in _trials_at(step, host))
    for component in index.components_for(host.spec.kind):
        wanted, rollout = maintenance.targets.get(component.name, ""), None
        trial = index.rollout_of(component.name)
        if not wanted and trial is None:
            continue
        if components and component.name not in components:
            continue
        if trial is not None and _has_failed(trial, host):
            trial = None  # once is enough: it is not tried here again while it is not proven
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


def _has_failed(trial: Rollout, host: Host) -> bool:
    """The version was brought to this host, is not there, and is not proven elsewhere."""
    tried = host.id in trial.evidence.operated and host.versions.get(trial.spec.component) != trial.spec.version
    return tried and not rollouts.is_proven(trial)


def _trials_at(step: Step, host: Host) -> list[rollouts.Rollout]:
    """Rollouts whose version the open visit of the host brings, for whichever train."""
    maintenance = step.state.maintenance
    names = {one.rollout for one in _open_at(step, host) if one.rollout is not None and one.ends_as is None}
    return [maintenance.rollouts[name] for name in sorted(names)]


def _open_at(step: Step, host: Host) -> list[Operation]:
    """Operations of the host's visit that have not ended."""
    visit = step.state.maintenance.visits.get(host.id)
    if visit is None:
        return []
    operations = step.state.maintenance.operations
    names = (*visit.pending, *visit.applied, *((visit.current,) if visit.current else ()))
    return [operations[name] for name in names if name in operations]


def _pending(step: Step, host: Host, component: Component, version: str) -> bool:
    """Somebody has asked for just this already, and it has not ended."""
    specs = (operation.spec for operation in _open_at(step, host))
    return any(spec.component == component.name and spec.version == version for spec in specs)
