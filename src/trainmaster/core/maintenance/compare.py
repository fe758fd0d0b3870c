"""What a new catalogue changes, in words.

Components and kinds are matched by name, steps by name, rules by what has a need of what; a thing that was renamed is
removed and added. The order of components is compared by itself, since a single `after` may move many.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from trainmaster.core.base.time import in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.catalogue import Catalogue, Component, Kind, Rule, Spread, StepSpec

_DURATIONS: Final = frozenset({"observe_deadline", "deadline"})
_LEGS: Final = frozenset({"steps", "after_reboot", "undo"})
_SETS: Final = frozenset({"after", "changes", "units", "verify"})
"""Fields in which order means nothing."""


class Difference(Value):
    change: Literal["added", "removed", "changed"]
    what: str
    """`component cuda`, `rule cuda >=12.4 -> gpu-driver`."""
    key: str
    """Of what changed; empty: the whole thing."""
    before: str
    after: str


def differences(old: Catalogue, new: Catalogue) -> tuple[Difference, ...]:
    """From `old` to `new`: components, kinds, rules, then the order."""
    return tuple(_differences(old, new))


def _differences(old: Catalogue, new: Catalogue) -> Iterator[Difference]:
    if old.name != new.name:
        yield Difference(change="changed", what="the catalogue", key="name", before=old.name, after=new.name)
    yield from _tables("component", _named(old.components), _named(new.components))
    yield from _tables("kind", _named(old.kinds), _named(new.kinds))
    yield from _tables("rule", _rules(old.rules), _rules(new.rules))
    both = {item.name for item in old.components} & {item.name for item in new.components}
    before, after = ([name for name in one.sequence() if name in both] for one in (old, new))
    if before != after:
        start = next(place for place, name in enumerate(before) if name != after[place])
        yield Difference(
            change="changed", what="the order", key=f"from place {start + 1}", before=before[start], after=after[start]
        )


def _named(items: Sequence[Component | Kind]) -> dict[str, Value]:
    return {item.name: item for item in items}


def _rules(rules: Sequence[Rule]) -> dict[str, Value]:
    return {f"{rule.when.component} {rule.when.versions} -> {rule.needs.component}": rule for rule in rules}


def _tables(table: str, old: Mapping[str, Value], new: Mapping[str, Value]) -> Iterator[Difference]:
    for name in old:
        if name not in new:
            yield Difference(change="removed", what=f"{table} {name}", key="", before=name, after="")
    for name, item in new.items():
        if name not in old:
            yield Difference(change="added", what=f"{table} {name}", key="", before="", after=name)
        elif item != old[name]:
            yield from _fields(f"{table} {name}", old[name], item)


def _fields(what: str, old: Value, new: Value) -> Iterator[Difference]:
    for field in msgspec.structs.fields(type(new)):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after:
            continue
        if field.name in _LEGS:
            yield from _steps(what, field.name, before, after)
        elif isinstance(after, Spread):
            for name in ("median", "p90", "limit"):
                yield from _changed(what, f"{name}_s", _time(getattr(before, name)), _time(getattr(after, name)))
        elif field.name in _DURATIONS:
            yield from _changed(what, f"{field.name}_s", _time(before), _time(after))
        elif field.name in _SETS:
            yield from _changed(what, field.name, ", ".join(sorted(before)), ", ".join(sorted(after)))
        elif field.name == "needs":
            yield from _changed(what, field.name, before.versions, after.versions)
        else:
            yield from _changed(what, field.name, _text(before), _text(after))


def _steps(what: str, leg: str, old: tuple[StepSpec, ...], new: tuple[StepSpec, ...]) -> Iterator[Difference]:
    before, after = {step.name: step for step in old}, {step.name: step for step in new}
    for name in [*before, *(name for name in after if name not in before)]:
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            yield from _changed(what, f"{leg} {name}", _step(one), _step(other))
        else:
            yield from _changed(what, f"{leg} {name}: command", _text(one.command), _text(other.command))
            yield from _changed(what, f"{leg} {name}: deadline_s", _time(one.deadline), _time(other.deadline))
    if [name for name in before if name in after] != [name for name in after if name in before]:
        yield from _changed(what, f"order of {leg}", ", ".join(before), ", ".join(after))


def _step(step: StepSpec | None) -> str:
    return f"{_text(step.command)} within {_time(step.deadline)} s" if step is not None else ""


def _changed(what: str, key: str, before: str, after: str) -> Iterator[Difference]:
    if before != after:
        yield Difference(change="changed", what=what, key=key, before=before, after=after)


def _time(duration: int) -> str:
    return f"{in_seconds(duration):g}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(value) if isinstance(value, tuple) else str(value)
