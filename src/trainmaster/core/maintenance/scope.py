"""What an operation can lock, and what it locks: resources and scopes.

A *unit* is a thing that is worked on (a compute host, a storage server, a switch); a *resource* is a unit or a group of
units that has a name: "host/h1", "rack/R", "row/W", "pod/P", "plane/F", "cluster/C". A scope holds what it names
*exclusively*, and marks as *shared* every wider resource that has a unit in common with it. Two scopes conflict where
one holds exclusively what the other holds in either way. So an operation on a pod meets every operation on a host of
that pod at the pod, though it names no host, and costs as little as one on a host.

Rule: kinds have a width, and of two resources with a common unit the narrower one marks the wider one. That is exact
also where groups cross and none contains the other (a power row and a fabric plane): scopes conflict if and only if
they have a unit in common. Resources of one kind never have, since a unit lies in at most one of each kind.

Indices are given in the order of declaration and never again to another name, so a scope can be stored. A scope means
the units that were declared when it was resolved; a unit that joins a rack later is not worked on by an operation that
was requested before, though it waits for it.

Rejected: scopes as sets of units. A cluster is thousands of entries for each operation that is as wide as one.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import HostSpec

KINDS: Final = ("host", "rack", "row", "pod", "plane", "cluster")
"""Kinds of resources, narrow ones first."""


class Scope(Value):
    """Resources by index, in rising order; none is in both."""

    exclusive: tuple[int, ...]
    shared: tuple[int, ...]


def resources_of(spec: HostSpec) -> tuple[str, tuple[str, ...]]:
    """The resource that a unit is, and those that it lies in, narrow ones first. It may lack some."""
    around = (
        ("rack", spec.rack), ("row", spec.row), ("pod", spec.pod), ("plane", spec.plane), ("cluster", spec.cluster)
    )  # fmt: skip
    return f"host/{spec.id}", tuple(f"{kind}/{name}" for kind, name in around if name)


def conflict(one: Scope, other: Scope) -> bool:
    """Whether two operations with these scopes may not run at once."""
    mine, theirs = set(one.exclusive), set(other.exclusive)
    return not (mine.isdisjoint(theirs) and mine.isdisjoint(other.shared) and theirs.isdisjoint(one.shared))


class ResourceIndex:
    """All resources of a fleet. Derived: made anew by adding the hosts in the order of their declaration."""

    __slots__ = ("_above", "_members", "_names", "_places", "_simple", "_units")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._units: list[list[HostId]] = []
        self._above: list[dict[int, int]] = []
        """By index: the wider resources, with the number of units in common."""
        self._simple: dict[int, Scope] = {}
        """Scopes of single resources, made when first asked for."""
        self._members: dict[int, tuple[HostId, ...]] = {}
        """Their units, likewise."""

    def __len__(self) -> int:
        return len(self._names)

    def add(self, spec: HostSpec) -> None:
        """Adds a unit that is not there yet, and the groups that begin with it."""
        own, ancestors = resources_of(spec)
        assert own not in self._places, own
        chain = [self._place(name) for name in (own, *ancestors)]
        widths = [KINDS.index(name.partition("/")[0]) for name in (own, *ancestors)]
        assert all(narrow < wide for narrow, wide in pairwise(widths)), (own, ancestors)
        for place, narrow in enumerate(chain):
            self._units[narrow].append(spec.id)
            above = self._above[narrow]
            for wide in chain[place + 1 :]:
                above[wide] = above.get(wide, 0) + 1
            self._simple.pop(narrow, None)
            self._members.pop(narrow, None)

    def find(self, name: str) -> int | None:
        """The index of a name; None: there is no such resource."""
        return self._places.get(name)

    def name(self, index: int) -> str:
        return self._names[index]

    def parents(self, index: int) -> tuple[int, ...]:
        """The wider resources that have a unit in common with this one, in rising order."""
        return tuple(sorted(self._above[index]))

    def units(self, index: int) -> tuple[HostId, ...]:
        """The units of a resource, in the order of their declaration; of a unit, itself."""
        members = self._members.get(index)
        if members is None:
            members = self._members[index] = tuple(self._units[index])
        return members

    def scope_units(self, scope: Scope) -> tuple[HostId, ...]:
        """The units that an operation with this scope works on, each once."""
        if len(scope.exclusive) == 1:
            return self.units(scope.exclusive[0])
        return tuple(dict.fromkeys(unit for index in scope.exclusive for unit in self._units[index]))

    def resolve(self, names: tuple[str, ...]) -> Scope | Reason:
        """The scope of an operation on these resources, or why there is none (NO_SUCH_RESOURCE)."""
        if len(names) == 1:  # nearly always
            place = self._places.get(names[0])
            if place is not None:
                return self._simple.get(place) or self._one(place)
        if not names:
            return because(Token.NO_SUCH_RESOURCE, "the scope names no resource", named=0, unknown=0)
        unknown = [name for name in names if name not in self._places]
        if unknown:
            sentence = self._unknown(unknown)
            return because(Token.NO_SUCH_RESOURCE, sentence, named=len(names), unknown=len(unknown))
        named = {self._places[name] for name in names}
        if len(named) == 1:
            return self._one(named.pop())
        kept = sorted(index for index in named if not self._covered(index, named))
        assert kept, names
        marks = set().union(*(self._above[index] for index in kept)).difference(kept)
        return Scope(exclusive=tuple(kept), shared=tuple(sorted(marks)))

    def _place(self, name: str) -> int:
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self._names)
            self._names.append(name)
            self._units.append([])
            self._above.append({})
        return place

    def _one(self, index: int) -> Scope:
        scope = self._simple.get(index)
        if scope is None:
            scope = self._simple[index] = Scope(exclusive=(index,), shared=self.parents(index))
        return scope

    def _covered(self, index: int, named: set[int]) -> bool:
        """Whether a wider resource that is named too has all of its units."""
        size = len(self._units[index])
        return any(count == size and wide in named for wide, count in self._above[index].items())

    def _unknown(self, unknown: list[str]) -> str:
        first = unknown[0]
        kind, slash, _ = first.partition("/")
        others = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        if not slash or kind not in KINDS:
            return f"{first!r}{others} is not a resource: write KIND/NAME, where KIND is one of {', '.join(KINDS)}"
        near = get_close_matches(first, self._of_kind(kind), n=1)
        hint = f"; the nearest name is {near[0]!r}" if near else ""
        return f"no {kind} has the name of {first!r}{others}{hint}"

    def _of_kind(self, kind: str) -> Iterator[str]:
        return (name for name in self._names if name.startswith(f"{kind}/"))
