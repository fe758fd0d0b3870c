"""Scopes conflict if and only if they have a unit in common, however groups cross; names that mean nothing are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.ids import ClusterId, HostId, PodId, RackId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.value import decode, encode
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.maintenance.scope import ResourceIndex, Scope, conflict


def unit(name: str, rack: str, pod: str, cluster: str, row: str = "", plane: str = "") -> HostSpec:
    return HostSpec(
        id=HostId(name), cluster=ClusterId(cluster), pod=PodId(pod), rack=RackId(rack), platform="p", gpus=8,
        row=row, plane=plane,
    )  # fmt: skip


def index_of(*specs: HostSpec) -> ResourceIndex:
    index = ResourceIndex()
    for spec in specs:
        index.add(spec)
    return index


def scope_of(index: ResourceIndex, *names: str) -> Scope:
    scope = index.resolve(names)
    assert isinstance(scope, Scope), scope
    return scope


def named(index: ResourceIndex, places: tuple[int, ...]) -> set[str]:
    return {index.name(place) for place in places}


def small() -> ResourceIndex:
    return index_of(
        unit("h1", "r1", "p1", "c"), unit("h2", "r1", "p1", "c"), unit("h3", "r2", "p1", "c"),
        unit("h4", "r3", "p2", "c"), unit("sw1", "", "p1", "c"),
    )  # fmt: skip


def test_a_host_marks_what_it_lies_in() -> None:
    """1. One host. 2. One rack. 3. A switch, which lies in no rack."""
    index = small()
    host = scope_of(index, "host/h3")
    assert named(index, host.exclusive) == {"host/h3"}
    assert named(index, host.shared) == {"rack/r2", "pod/p1", "cluster/c"}
    rack = scope_of(index, "rack/r1")
    assert named(index, rack.exclusive) == {"rack/r1"}
    assert named(index, rack.shared) == {"pod/p1", "cluster/c"}
    assert index.scope_units(rack) == ("h1", "h2")
    assert named(index, scope_of(index, "host/sw1").shared) == {"pod/p1", "cluster/c"}


def test_a_selection_marks_ancestors_once_and_leaves_out_what_is_covered() -> None:
    """1. A rack, a host in it, and a host elsewhere are named. 2. The rack stands for its host; marks are no names."""
    index = small()
    scope = scope_of(index, "host/h1", "rack/r1", "host/h4", "host/h4")
    assert named(index, scope.exclusive) == {"rack/r1", "host/h4"}
    assert named(index, scope.shared) == {"pod/p1", "pod/p2", "rack/r3", "cluster/c"}
    assert sorted(index.scope_units(scope)) == ["h1", "h2", "h4"]
    whole = scope_of(index, "pod/p1", "cluster/c", "pod/p2")
    assert (named(index, whole.exclusive), whole.shared) == ({"cluster/c"}, ())
    assert decode(encode(scope), Scope) == scope


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ((), "names no resource"),
        (("host/h9",), "nearest name is 'host/h"),
        (("host/h1", "rack/h1", "pod/x"), "no rack has the name of 'rack/h1' (and 1 more)"),
        (("h1",), "write KIND/NAME"),
        (("shelf/1",), "write KIND/NAME"),
        (("rack/",), "no rack has the name of 'rack/'"),
    ],
)
def test_names_that_mean_nothing(names: tuple[str, ...], says: str) -> None:
    """1. A scope names nothing that there is. 2. The reason says what, and what comes near."""
    refused = small().resolve(names)
    assert isinstance(refused, Reason)
    assert refused.token is Token.NO_SUCH_RESOURCE
    assert says in refused.sentence
    assert refused.numbers["named"] == len(names)


def test_groups_that_cross_meet() -> None:
    """1. A power row and a plane share one unit; neither contains the other. 2. The narrower one marks the wider one,
    so they conflict; a row that has no unit on the plane does not."""
    index = index_of(
        unit("sw1", "", "p1", "c", "w1", "f1"), unit("sw2", "", "p1", "c", "w1", "f2"),
        unit("h1", "r1", "p1", "c", "w2"), unit("sw3", "", "p2", "c", "", "f2"),
    )  # fmt: skip
    row, plane = scope_of(index, "row/w1"), scope_of(index, "plane/f2")
    assert named(index, row.shared) == {"pod/p1", "plane/f1", "plane/f2", "cluster/c"}
    assert conflict(row, plane)
    assert not conflict(scope_of(index, "row/w2"), plane)
    assert named(index, scope_of(index, "row/w1", "plane/f2").exclusive) == {"row/w1", "plane/f2"}
    assert index.scope_units(scope_of(index, "row/w1", "plane/f2")) == ("sw1", "sw2", "sw3")


def test_indices_stay_when_units_join() -> None:
    """1. Scopes are resolved. 2. Units join a rack, and bring another pod. 3. Old indices mean the same; the new unit
    meets the old scope of its rack."""
    index = small()
    before = {name: index.find(name) for name in ("host/h1", "rack/r1", "pod/p1", "cluster/c")}
    rack = scope_of(index, "rack/r1")
    size = len(index)
    index.add(unit("h5", "r1", "p3", "c"))
    assert {name: index.find(name) for name in before} == before
    assert index.find("host/h5") == size
    assert conflict(rack, scope_of(index, "host/h5"))
    assert named(index, scope_of(index, "rack/r1").shared) == {"pod/p1", "pod/p3", "cluster/c"}
    assert index.units(scope_of(index, "rack/r1").exclusive[0]) == ("h1", "h2", "h5")


@st.composite
def _fleets(draw: st.DrawFn) -> tuple[ResourceIndex, list[str]]:
    """Units in groups that may cross: racks in several pods, rows across planes, pods in several clusters."""
    group = st.sampled_from(["", "1", "2", "3"])
    specs = [
        unit(f"h{number}", draw(group), draw(group), draw(st.sampled_from(["1", "2"])), draw(group), draw(group))
        for number in range(draw(st.integers(1, 9)))
    ]
    index = index_of(*specs)
    return index, [index.name(place) for place in range(len(index))]


@given(_fleets(), st.data())
def test_scopes_conflict_if_and_only_if_they_meet(fleet: tuple[ResourceIndex, list[str]], data: st.DataObject) -> None:
    """1. Two selections of resources of a fleet. 2. Their scopes conflict exactly where they have a unit in common."""
    index, names = fleet
    selections = st.lists(st.sampled_from(names), min_size=1, max_size=4)
    one, other = data.draw(selections), data.draw(selections)
    mine, theirs = scope_of(index, *one), scope_of(index, *other)
    for selection, scope in ((one, mine), (other, theirs)):
        wanted = {host for name in selection for host in index.units(index.find(name) or 0)}
        assert set(index.scope_units(scope)) == wanted
        assert not set(scope.exclusive) & set(scope.shared)
        assert list(scope.exclusive) == sorted(scope.exclusive)
        assert list(scope.shared) == sorted(scope.shared)
    assert conflict(mine, theirs) == bool(set(index.scope_units(mine)) & set(index.scope_units(theirs)))
    assert conflict(mine, theirs) == conflict(theirs, mine)
