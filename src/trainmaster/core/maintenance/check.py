"""What is asked of maintenance, checked before it becomes an event: what makes no sense never reaches the engine.

Each check gives the first reason against a request, with a token, a sentence and numbers, or None. The engine asserts
what is checked here, so a request that passes cannot break it. Waiting is no reason: an operation may wait for
capacity, for jobs and for others; it is refused only if it could not be carried out at all.

An operation may come `after` operations that were requested before it, so cycles cannot be written down.
"""

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Final

from trainmaster.core.base.ids import ComponentName, HostId, OperationId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import HOUR, Instant, in_seconds
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.maintenance.capacity import CapacityPolicy, counted, impossible
from trainmaster.core.maintenance.catalogue import UPGRADE, Catalogue, Component, Kind, takes_capacity
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.lint import lint
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.maintenance.scope import Scope
from trainmaster.core.maintenance.stages import RolloutSpec, spec_problems
from trainmaster.core.step import Step

SCOPE_MAX: Final = 4_096
VERSION_MAX: Final = 128
FAR: Final = 366 * 24 * HOUR
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~:@-]*")


def check_operation(step: Step, spec: OperationSpec, keys: Collection[str] = ()) -> Reason | None:
    """Why this operation can't be asked for. `keys` name operations that are requested before it in the same breath."""
    index = step.derived.planner
    work = index.work(spec)
    if work is None:
        return _no_work(step.state.maintenance.catalogue, spec)
    reason = _wording(spec, step.now) or _predecessors(step, spec, keys)
    if reason is not None:
        return reason
    scope = index.resources.resolve(spec.scope)
    if isinstance(scope, Reason):
        return scope
    return _mismatch(step, spec, work, scope) or _powerless(step, work, scope) or _too_much(step, work, scope)


def _no_work(catalogue: Catalogue, spec: OperationSpec) -> Reason:
    """The catalogue does not know what is to be done."""
    if spec.kind == UPGRADE and not spec.component:
        return because(Token.BAD_REQUEST, "an upgrade names the component that it upgrades")
    if spec.kind == UPGRADE:
        return no_component(catalogue, spec.component)
    known = [UPGRADE, *(kind.name for kind in catalogue.kinds)]
    sentence = f"no kind of operation is named {spec.kind!r}{_near(spec.kind, known)}"
    return because(Token.NO_SUCH_KIND, sentence, known=len(known))


def no_component(catalogue: Catalogue, name: str) -> Reason:
    known = [component.name for component in catalogue.components]
    sentence = f"no component is named {name!r}{_near(name, known)}"
    return because(Token.NO_SUCH_COMPONENT, sentence, known=len(known))


def _near(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"; the nearest name is {near[0]!r}" if near else ""


def _wording(spec: OperationSpec, now: Instant) -> Reason | None:
    if spec.kind == UPGRADE:
        reason = check_version_text(spec.version, f"upgrade of {spec.component}")
        if reason is not None:
            return reason
    elif spec.component or spec.version:
        sentence = f"only an upgrade has a component and a version; this is a {spec.kind}"
        return because(Token.BAD_REQUEST, sentence)
    if len(spec.scope) > SCOPE_MAX:
        return because(Token.BAD_REQUEST, f"the scope names {len(spec.scope)} resources", most=SCOPE_MAX)
    if spec.not_before is not None and spec.not_before > now + FAR:
        return because(Token.BAD_REQUEST, "not_before lies more than a year ahead", most_s=in_seconds(FAR))
    if spec.deadline is not None and spec.deadline <= now:
        return because(Token.BAD_REQUEST, "the deadline is over already", late_s=in_seconds(now - spec.deadline))
    if spec.deadline is not None and spec.not_before is not None and spec.deadline <= spec.not_before:
        return because(Token.BAD_REQUEST, "the deadline lies before not_before")
    return None


def check_version_text(version: str, what: str) -> Reason | None:
    """A version becomes an argument of commands and often a part of a path."""
    if not version:
        return because(Token.VERSION_MISSING, f"the {what} says no version")
    if len(version) > VERSION_MAX or not _VERSION.fullmatch(version) or ".." in version:
        shown = repr(version[:40])
        return because(Token.VERSION_MISSING, f"the {what} says {shown}, which is no version", most=VERSION_MAX)
    return None


def _predecessors(step: Step, spec: OperationSpec, keys: Collection[str]) -> Reason | None:
    state = step.state.maintenance
    for other in spec.after:
        if other in state.operations or other in keys:
            continue
        ended = next((one for one in reversed(state.ended) if one.id == other), None)
        if ended is None:
            return because(Token.NO_SUCH_OPERATION, f"it is to come after {other!r}, which nobody knows")
        if ended.state is not OperationState.DONE:
            return because(Token.PREDECESSOR_FAILED, f"it is to come after {other}, which ended as {ended.state.value}")
    return None


def _mismatch(step: Step, spec: OperationSpec, work: Component | Kind, scope: Scope) -> Reason | None:
    """The scope is of another kind, or of other units, than the work is for."""
    index = step.derived.planner.resources
    what = str(spec.component or spec.kind)
    if work.scope != "selection":
        kinds = {index.name(one).partition("/")[0] for one in scope.exclusive}
        if kinds != {work.scope}:
            sentence = f"{what} is done on a {work.scope}; the scope names a {' and a '.join(sorted(kinds))}"
            return because(Token.SCOPE_MISMATCH, sentence)
        if len(scope.exclusive) > 1:
            sentence = f"{what} is done on one {work.scope} at a time; the scope names {len(scope.exclusive)}"
            return because(Token.SCOPE_MISMATCH, f"{sentence}: ask once for each", named=len(scope.exclusive))
    hosts = step.state.hosts
    units = index.scope_units(scope)
    strange = [unit for unit in units if hosts[unit].spec.kind not in work.units]
    if len(strange) == len(units) or (strange and work.scope in ("host", "selection")):
        unit = strange[0]
        sentence = f"{what} is for units of kind {', '.join(work.units)}; {unit} is of kind {hosts[unit].spec.kind}"
        return because(Token.SCOPE_MISMATCH, sentence, strange=len(strange), units=len(units))
    return None


def _powerless(step: Step, work: Component | Kind, scope: Scope) -> Reason | None:
    if work.disturbs != "power":
        return None
    units = step.derived.planner.resources.scope_units(scope)
    cluster = step.state.hosts[units[0]].spec.cluster
    if cluster in step.derived.planner.controllers:
        return None
    return because(Token.NO_CONTROLLER, f"{units[0]} loses its power, and {cluster} has no controller to run the steps")


def _too_much(step: Step, work: Component | Kind, scope: Scope) -> Reason | None:
    if not takes_capacity(work):
        return None
    hosts, index = step.state.hosts, step.derived.planner
    units = [unit for unit in index.resources.scope_units(scope) if hosts[unit].spec.kind != "controller"]
    return never(step, units)


def never(step: Step, units: Collection[HostId]) -> Reason | None:
    """These units could not be taken together even if every unit were in service."""
    reason = step.derived.planner.ledger.never(units)
    if reason is None:
        return None
    sentence = f"even with every unit in service: {reason.sentence}"
    return Reason(token=Token.CAPACITY_NEVER, sentence=sentence, numbers=reason.numbers)


def check_cancel(step: Step, name: OperationId) -> Reason | None:
    """Why an operation can't be taken back."""
    operation = step.state.maintenance.operations.get(name)
    if operation is None:
        ended = next((one for one in reversed(step.state.maintenance.ended) if one.id == name), None)
        if ended is None:
            return because(Token.NO_SUCH_OPERATION, f"no operation has the id {name}")
        return because(Token.MAINTENANCE_ENDED, f"{name} is {ended.state.value} already")
    if operation.state is OperationState.VERIFYING:
        return because(Token.MAINTENANCE_ENDED, f"{name} is carried out; what is left is the verification of its units")
    return None


def check_catalogue(step: Step, catalogue: Catalogue) -> Reason | None:
    """Why this catalogue can't be declared: its own errors, or something that is being worked with would be missing."""
    errors = [problem for problem in lint(catalogue) if problem.severity == "error"]
    if errors:
        first = errors[0]
        sentence = f"{first.place}: {first.reason}; {first.fix}"
        return because(Token.BAD_CATALOGUE, sentence, errors=len(errors))
    state = step.state.maintenance
    components = {component.name for component in catalogue.components}
    kinds = {UPGRADE, *(kind.name for kind in catalogue.kinds)}
    used: list[tuple[str, ComponentName]] = [(one.id, one.spec.component) for one in state.operations.values()]
    used += [(one.id, one.spec.component) for one in state.rollouts.values() if one.is_live()]
    used += [(f"the gang upgrade of {one.job}", one.component) for one in state.gangs.values()]
    for what, component in used:
        if component and component not in components:
            return because(Token.BAD_CATALOGUE, f"{what} works with the component {component}, which it lacks")
    for one in state.operations.values():
        if one.spec.kind not in kinds:
            return because(Token.BAD_CATALOGUE, f"{one.id} is a {one.spec.kind}, which it lacks")
    return None


def check_capacity(policy: CapacityPolicy, units: Sequence[HostSpec]) -> Reason | None:
    problems = impossible(policy, [counted(unit) for unit in units])
    if not problems:
        return None
    first = problems[0]
    sentence = f"{'.'.join(map(str, first.path))}: {first.reason}; {first.fix}"
    return because(Token.BAD_CAPACITY, sentence, problems=len(problems))


def check_component(step: Step, name: ComponentName, version: str, what: str) -> Reason | None:
    """Why a version of a component can't be brought to hosts one by one."""
    catalogue = step.state.maintenance.catalogue
    component = catalogue.component(name)
    if component is None:
        return no_component(catalogue, name)
    if component.scope != "host":
        sentence = f"trains bring what is done on a host; {name} is done on a {component.scope}"
        return because(Token.SCOPE_MISMATCH, sentence)
    return check_version_text(version, what)


def check_rollout(step: Step, spec: RolloutSpec) -> Reason | None:
    reason = check_component(step, spec.component, spec.version, f"rollout of {spec.component}")
    if reason is not None:
        return reason
    problems = spec_problems(spec)
    if problems:
        return because(Token.BAD_REQUEST, "; ".join(problems), problems=len(problems))
    component = step.derived.planner.component(spec.component)
    strange = [host for host in spec.pool if step.state.hosts[host].spec.kind not in component.units]
    if strange:
        sentence = f"{spec.component} is for units of kind {', '.join(component.units)}; {strange[0]} is none"
        return because(Token.SCOPE_MISMATCH, sentence, strange=len(strange))
    other = step.derived.planner.rollout_of(spec.component)
    if other is not None:
        sentence = f"{other.id} brings {other.spec.component} {other.spec.version} and is {other.state.value}"
        return because(Token.ROLLOUT_ACTIVE, sentence)
    return None
