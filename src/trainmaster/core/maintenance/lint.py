"""What is wrong with a catalogue.

An *error* is what would hurt at run time: a name that names nothing, a deadline that cannot be kept, rules that no
version can meet, so that hosts would leave production and never return. A *warning* is what is likely not meant.
All problems are found at once, each with its place (a path for tools, words for people), reason and fix.

Rules are judged in pairs: patterns are intervals (`version.py`), so that two needs of one component contradict each
other when they have no version in common. Three rules that only together leave no way are not found.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from trainmaster.core.base.ids import NAME_PATTERN, ComponentName
from trainmaster.core.maintenance.catalogue import UPGRADE, Catalogue, Component
from trainmaster.core.maintenance.lint_rules import check_rules
from trainmaster.core.maintenance.lint_work import check_work
from trainmaster.core.maintenance.problem import Problem, error, unknown_component, warning

_NAME_FIX = "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"


def lint(catalogue: Catalogue) -> tuple[Problem, ...]:
    """All problems, in the order of the file. Without errors a catalogue can be declared."""
    return tuple(_problems(catalogue))


def cycle(components: Sequence[Component]) -> tuple[ComponentName, ...]:
    """A shortest way back to the first component that comes after itself, with its name at both ends; or empty."""
    after = {component.name: component.after for component in components}
    for start in after:
        ways: list[tuple[ComponentName, ...]] = [(start,)]
        seen: set[ComponentName] = set()
        for way in ways:  # grows while it is read: breadth first
            for name in after.get(way[-1], ()):
                if name == start:
                    return (*way, name)
                if name not in seen:
                    seen.add(name)
                    ways.append((*way, name))
    return ()


def _problems(catalogue: Catalogue) -> Iterator[Problem]:
    if not catalogue.components and not catalogue.kinds:
        yield error((), "the catalogue", "it has neither components nor kinds", "add a [[component]] table")
    yield from _names("component", [component.name for component in catalogue.components])
    yield from _names("kind", [kind.name for kind in catalogue.kinds])
    known = tuple(component.name for component in catalogue.components)
    for place, component in enumerate(catalogue.components):
        path: tuple[str | int, ...] = ("component", place)
        yield from _references((*path, "after"), f"component {component.name}: after", component.after, known)
        yield from _order_of_units(path, component, catalogue)
        yield from check_work(path, f"component {component.name}", component)
    yield from _cycles(catalogue)
    for place, kind in enumerate(catalogue.kinds):
        path = ("kind", place)
        if kind.name == UPGRADE:
            reason, fix = "it is built in: an upgrade takes its work from its component", "remove it, or rename it"
            yield error((*path, "name"), f"kind {kind.name}", reason, fix)
        yield from _references((*path, "changes"), f"kind {kind.name}: changes", kind.changes, known)
        yield from check_work(path, f"kind {kind.name}", kind)
    yield from check_rules(catalogue)


def _names(table: str, names: Sequence[str]) -> Iterator[Problem]:
    counts = Counter(names)
    seen: set[str] = set()
    for place, name in enumerate(names):
        path = (table, place, "name")
        if not NAME_PATTERN.fullmatch(name):
            yield error(path, f"{table} {place + 1}", f"{name!r} is not a name", _NAME_FIX)
        elif name in seen:
            yield error(path, f"{table} {name}", f"it is declared {counts[name]} times", "merge them, or rename one")
        seen.add(name)


def _references(
    path: tuple[str | int, ...], place: str, names: Sequence[ComponentName], known: Sequence[ComponentName]
) -> Iterator[Problem]:
    for name, count in Counter(names).items():
        here = (*path, names.index(name))
        if name not in known:
            yield unknown_component(here, place, name, known)
        elif count > 1:
            yield warning(here, place, f"{name} is named {count} times", "name it once")


def _order_of_units(path: tuple[str | int, ...], component: Component, catalogue: Catalogue) -> Iterator[Problem]:
    """`after` speaks of what is pending on one unit."""
    for name in component.after:
        other = catalogue.component(name)
        if other is not None and not set(other.units) & set(component.units):
            reason = f"no unit has both: {name} is for {', '.join(other.units)}"
            fix = f"remove {name}; order operations on different units with `after` of the operation"
            yield warning((*path, "after"), f"component {component.name}: after", reason, fix)


def _cycles(catalogue: Catalogue) -> Iterator[Problem]:
    """Each cycle once: the one found is cut at its first edge, then the rest is looked at. Of two components with one
    name, which is a problem of its own, the first counts."""
    components = list(catalogue.components)
    places = {component.name: place for place, component in reversed(list(enumerate(components)))}
    while found := cycle([components[place] for place in sorted(places.values())]):
        place = places[found[0]]
        reason = f"it comes after itself: {' after '.join(found)}"
        fix = "remove one of these; the first one applied must come after none of the others"
        yield error(("component", place, "after"), f"component {found[0]}: after", reason, fix)
        rest = tuple(name for name in components[place].after if name != found[1])
        components[place] = components[place].but(after=rest)
