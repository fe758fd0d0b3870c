"""What is wrong with the rules of a catalogue: a unit on which a rule is broken never returns, so rules that no version
can meet take hosts away for good."""

from collections.abc import Iterator

from trainmaster.core.base.ids import ComponentName
from trainmaster.core.maintenance.catalogue import Catalogue, Component, Pin, Rule, takes_capacity
from trainmaster.core.maintenance.problem import Path, Problem, error, unknown_component, warning
from trainmaster.core.maintenance.version import Interval, PatternError, common, contains, intervals


def check_rules(catalogue: Catalogue) -> Iterator[Problem]:
    sound: list[tuple[int, Rule]] = []
    for place, rule in enumerate(catalogue.rules):
        problems = list(_one(("rule", place), rule, catalogue))
        yield from problems
        if not any(problem.severity == "error" for problem in problems):
            sound.append((place, rule))
    for index, (place, rule) in enumerate(sound):
        for earlier_place, earlier in sound[:index]:
            yield from _pair(place, rule, earlier_place, earlier)


def _words(rule: Rule) -> str:
    """`rule fabric-manager * -> gpu-driver *`."""
    when, needs = rule.when, rule.needs
    return f"rule {when.component} {when.versions} -> {needs.component} {needs.versions}"


def _one(path: Path, rule: Rule, catalogue: Catalogue) -> Iterator[Problem]:
    place = _words(rule)
    names = [component.name for component in catalogue.components]
    readable = True
    for key, pin in (("when", rule.when), ("needs", rule.needs)):
        if pin.component not in names:
            yield unknown_component((*path, key, "component"), place, pin.component, names)
        try:
            intervals(pin.versions)
        except PatternError as problem:
            readable = False
            yield error((*path, key, "versions"), place, str(problem), problem.fix)
    if rule.only_with and rule.only_with not in names:
        yield unknown_component((*path, "only_with"), place, rule.only_with, names)
    if rule.when.component == rule.needs.component:
        yield error((*path, "needs"), place, "the component needs itself", "name another component in needs")
        return
    if readable and rule.same and not common(intervals(rule.when.versions), intervals(rule.needs.versions)):
        reason = "no version can meet it: both must be the same, and the patterns have none in common"
        yield error(path, place, reason, "change one of the patterns, or remove same")
    when, needs = catalogue.component(rule.when.component), catalogue.component(rule.needs.component)
    if when is not None and needs is not None:
        yield from _together(path, place, rule, when, needs)
        yield from _in_order(path, place, when.name, needs.name, catalogue)


def _together(path: Path, place: str, rule: Rule, when: Component, needs: Component) -> Iterator[Problem]:
    """Both must be on one unit; where they must be the same, one visit must upgrade both."""
    if not set(when.units) & set(needs.units):
        reason = f"no unit has both: {when.name} is for {_list(when)}, {needs.name} for {_list(needs)}"
        yield error(path, place, reason, "remove the rule, or change units")
        return
    if not rule.same:
        return
    fix = "give both the same scope and disturbance, or remove same"
    if when.scope != needs.scope:
        reason = f"not upgraded in one visit: {when.name} takes a {when.scope}, {needs.name} a {needs.scope}"
        yield error(path, place, reason, fix)
    for one, other in ((when, needs), (needs, when)):
        if takes_capacity(one) and not takes_capacity(other):
            reason = f"not upgraded in one visit: {other.name} disturbs nothing, so it is upgraded beside the jobs"
            yield error(path, place, reason, fix)
        if one.job_consistent and not other.job_consistent:
            reason = f"not upgraded in one visit: a job's hosts must agree in {one.name}, and {other.name} slides"
            yield error(path, place, reason, "make both job_consistent, or remove same")


def _list(component: Component) -> str:
    return " and ".join(component.units)


def _in_order(
    path: Path, place: str, when: ComponentName, needs: ComponentName, catalogue: Catalogue
) -> Iterator[Problem]:
    """What is needed should not be applied behind what needs it: a failure between the two would break the rule."""
    before = {component.name: component.after for component in catalogue.components}
    reached, pending = set[ComponentName](), [needs]
    while pending:
        for name in before.get(pending.pop(), ()):
            if name not in reached:
                reached.add(name)
                pending.append(name)
    if when in reached and needs not in reached:
        reason = f"{needs} comes after {when}, which needs it: where it fails, the rule is broken"
        yield warning(path, place, reason, f"let {when} come after {needs}")


def _pair(place: int, rule: Rule, earlier_place: int, earlier: Rule) -> Iterator[Problem]:
    if rule.only_with and earlier.only_with and rule.only_with != earlier.only_with:
        return
    path: Path = ("rule", place)
    told = f"contradicts rule {earlier_place + 1} ({_words(earlier).removeprefix('rule ')})"
    meet = common(_allowed(rule.when), _allowed(earlier.when))
    if rule.when.component == earlier.when.component and rule.needs.component == earlier.needs.component:
        if meet and not common(_allowed(rule.needs), _allowed(earlier.needs)):
            reason = f"{told}: one {rule.when.component} needs two {rule.needs.component} at once"
            yield error(path, _words(rule), reason, "let the when of the two exclude each other, or merge them")
    elif rule.when.component == earlier.needs.component and rule.needs.component == earlier.when.component:
        for first, second in ((rule, earlier), (earlier, rule)):
            if _sends_back(first, second):
                reason = f"{told}: {first.when.component} {first.when.versions} needs what needs another version of it"
                yield error(path, _words(rule), reason, "change one of the patterns")
                return


def _sends_back(first: Rule, second: Rule) -> bool:
    """All that `first` may choose is bound by `second` to versions outside of its own `when`."""
    bound = contains(_allowed(second.when), _allowed(first.needs))
    return bound and not common(_allowed(first.when), _allowed(second.needs))


def _allowed(pin: Pin) -> tuple[Interval, ...]:
    return intervals(pin.versions)
