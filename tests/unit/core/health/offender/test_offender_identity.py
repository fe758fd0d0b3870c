"""Whose history is it? Swaps, moves, renames, boards, clones, and serials that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.health.offender.offender_world import Yard, day, gpu, slot

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import decode, encode
from trainmaster.core.health.offender.identity import part_in, usable
from trainmaster.core.health.offender.invariants import broken
from trainmaster.core.health.offender.notes import of_host, of_part, of_slot
from trainmaster.core.health.offender.record import History, on_shelf
from trainmaster.core.health.part import Part

H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")


@pytest.mark.parametrize(
    "serial",
    ["", "  ", "To be filled by O.E.M.", "to be filled", "Default string", "N/A", "None", "0", "00000000", "XXXXXXX",
     "System Serial Number", "Not Specified", "[Not Supported]", "0123456789", "...", "-", "No Asset Tag"],
)  # fmt: skip
def test_what_is_no_serial(serial: str) -> None:
    assert usable(serial) == ""


@pytest.mark.parametrize("serial", ["GPU-7f1b3c", " 1650123456789 ", "MT2238X00001", "S6S2NS0T", "Nova-12"])
def test_what_is_a_serial(serial: str) -> None:
    assert usable(serial) == serial.strip()


def test_a_swap_ends_the_part_s_tenancy_and_keeps_the_slot_s_history() -> None:
    """1. P fails in slot 1 of h1. 2. Q takes its place. 3. The slot knows the failure, Q has none, P keeps its own."""
    yard = Yard()
    assert yard.look("h1", "C1", [gpu(1, "P"), gpu(2, "R")]) == []
    yard.case("h1", slot(1), day(1))
    (change,) = yard.look("h1", "C1", [gpu(1, "Q"), gpu(2, "R")], day(2))
    assert (change.kind, change.unit, change.before, change.serial) == ("swapped", slot(1), "P", "Q")
    assert len(of_slot(yard.history, H1, slot(1)).incidents) == 1
    assert len(of_part(yard.history, "P").incidents) == 1
    assert of_part(yard.history, "Q").incidents == ()
    held = {each.part.serial: each.until for each in yard.history.tenancies[H1] if each.part.slot == slot(1)}
    assert held == {"P": day(2), "Q": None}
    assert "P" not in yard.history.where
    assert yard.history.where["Q"] == H1


def test_a_part_takes_its_history_along_to_another_host() -> None:
    """1. P fails in h1. 2. It shows up in h2, while h1 is off. 3. It is one part with one history. 4. h1's slot
    is empty."""
    yard = Yard()
    yard.look("h1", "C1", [gpu(1, "P")])
    yard.look("h2", "C2", [gpu(1, "Q")])
    yard.case("h1", slot(1), day(1))
    changes = yard.look("h2", "C2", [gpu(1, "P")], day(2))
    assert [change.kind for change in changes] == ["moved", "swapped"]
    assert changes[0].before == f"h1 {slot(1)}"
    yard.case("h2", slot(1), day(3))
    assert [each.host for each in of_part(yard.history, "P").incidents] == [H1, H2]
    assert part_in(yard.history, H1, slot(1)) is None


def test_two_parts_that_change_places_in_a_host() -> None:
    yard = Yard()
    yard.look("h1", "C1", [gpu(1, "P"), gpu(2, "Q")])
    kinds = [change.kind for change in yard.look("h1", "C1", [gpu(1, "Q"), gpu(2, "P")], day(1))]
    assert kinds == ["moved", "swapped"]
    for number, serial in ((1, "Q"), (2, "P")):
        part = part_in(yard.history, H1, slot(number))
        assert part is not None
        assert part.serial == serial
    assert yard.history.where == {"P": H1, "Q": H1}


def test_a_host_that_is_renamed_takes_all_along() -> None:
    """1. h1 fails twice. 2. Its chassis registers as h2, under the very same boot or after one. 3. h2 has the history,
    the old name has none, and nothing is there twice."""
    yard = Yard()
    yard.look("h1", "C1", [gpu(1, "P")])
    yard.in_service("h1")
    yard.case("h1", slot(1), day(1))
    yard.case("h1", "host", day(2))
    (change,) = yard.look("h2", "C1", [gpu(1, "P")], day(3))
    assert (change.kind, change.before) == ("renamed", "h1")
    assert [each.host for each in of_host(yard.history, H2).incidents] == [H1, H1]
    assert of_host(yard.history, H1).first is None
    assert yard.history.formerly == {H2: [H1]}
    assert set(yard.history.first_seen) == set(yard.history.tenancies) == set(yard.history.chassis) == {H2}
    assert yard.history.where == {"P": H2}
    assert len(of_part(yard.history, "P").incidents) == 1
    yard.case("h2", slot(1), day(4))
    assert len(of_slot(yard.history, H2, slot(1)).incidents) == len(of_part(yard.history, "P").incidents) == 2


def test_two_hosts_that_change_names() -> None:
    """1. Both are off. 2. The first tells the chassis of the second: its own history waits on the shelf. 3. The second
    comes and takes it."""
    yard = Yard()
    yard.look("h1", "C1", [gpu(1, "P"), gpu(2, "P2")])
    yard.look("h2", "C2", [gpu(1, "Q"), gpu(2, "Q2")])
    yard.case("h1", slot(1), day(1))
    yard.case("h2", slot(2), day(1))
    assert [each.kind for each in yard.look("h1", "C2", [gpu(1, "Q"), gpu(2, "Q2")], day(2))] == [
        "exchanged",
        "renamed",
    ]
    assert on_shelf("C1") in yard.history.incidents
    assert [each.kind for each in yard.look("h2", "C1", [gpu(1, "P"), gpu(2, "P2")], day(2))] == ["renamed"]
    assert [each.unit for each in of_host(yard.history, H1).incidents] == [slot(2)]
    assert [each.unit for each in of_host(yard.history, H2).incidents] == [slot(1)]
    assert on_shelf("C1") not in yard.history.chassis


def test_another_board_is_the_same_host() -> None:
    """1. The serial of the chassis changes, most parts stay. 2. The history stays under the name."""
    yard = Yard()
    yard.look("h1", "C1", [gpu(1, "P"), gpu(2, "Q"), gpu(3, "R")])
    yard.case("h1", slot(1), day(1))
    (change, *_) = yard.look("h1", "C9", [gpu(1, "P"), gpu(2, "Q"), gpu(3, "S")], day(2))
    assert change.kind == "board-swapped"
    assert len(of_host(yard.history, H1).incidents) == 1
    assert yard.history.chassis == {H1: "C9"}


def test_a_serial_of_two_chassis_identifies_neither() -> None:
    """1. Two hosts that both are up tell one chassis. 2. Neither is the other: each keeps its history under its name.
    3. A third with it learns nothing either."""
    yard = Yard()
    yard.here = {"h1"}
    yard.look("h1", "DUP1", [gpu(1, "P")])
    yard.case("h1", slot(1), day(1))
    (change,) = yard.look("h2", "DUP1", [gpu(1, "Q")], day(2))
    assert (change.kind, change.before) == ("cloned", "h1")
    assert yard.look("h3", "DUP1", [gpu(1, "R")], day(2)) == []
    assert yard.look("h1", "DUP1", [gpu(1, "P")], day(3)) == []
    assert yard.history.chassis == {H1: "", H2: "", H3: ""}
    assert len(of_host(yard.history, H1).incidents) == 1
    assert of_host(yard.history, H2).incidents == ()


@pytest.mark.parametrize("chassis", ["", "Default string", "To be filled by O.E.M."])
def test_an_empty_chassis_renames_nobody(chassis: str) -> None:
    yard = Yard()
    yard.look("h1", chassis, [gpu(1, "P")])
    yard.case("h1", "host", day(1))
    yard.look("h2", chassis, [gpu(1, "Q")], day(2))
    assert of_host(yard.history, H2).first is None
    assert len(of_host(yard.history, H1).incidents) == 1


def test_a_serial_of_two_parts_identifies_neither() -> None:
    """1. Two GPUs of hosts that are up tell one serial. 2. It is taken from both, and nothing is found by it."""
    yard = Yard()
    yard.here = {"h1"}
    yard.look("h1", "C1", [gpu(1, "P"), gpu(2, "Q")])
    yard.case("h1", slot(1), day(1))
    kinds = [each.kind for each in yard.look("h2", "C2", [gpu(1, "P")], day(2))]
    assert kinds == ["cloned"]
    assert of_part(yard.history, "P").first is None
    assert part_in(yard.history, H1, slot(1)) == gpu(1)
    assert part_in(yard.history, H2, slot(1)) == gpu(1)
    assert yard.look("h2", "C2", [gpu(1, "P")], day(3)) == []


def test_two_slots_of_a_host_with_one_serial() -> None:
    """Two functions of one card are one part; two cards with one serial have none."""
    yard = Yard()
    ports = [Part(kind="nic", slot=f"nic 0000:3b:00.{number}", serial="MT1") for number in (0, 1)]
    yard.look("h1", "C1", ports)
    assert [each.part.serial for each in yard.history.tenancies[H1]] == ["MT1", "MT1"]
    yard.look("h2", "C2", [gpu(1, "S"), gpu(2, "S")])
    assert [each.part.serial for each in yard.history.tenancies[H2]] == ["", ""]


def test_a_part_that_is_not_seen_has_not_left() -> None:
    """1. A GPU fell off the bus: its slot is empty for a while. 2. It is the same one when it is back. 3. If it shows
    up in another host meanwhile, it was taken out, although the first host is up."""
    yard = Yard()
    yard.look("h1", "C1", [gpu(1, "P"), gpu(2, "Q")])
    assert yard.look("h1", "C1", [gpu(2, "Q")], day(1)) == []
    part = part_in(yard.history, H1, slot(1))
    assert part is not None
    assert part.serial == "P"
    assert yard.look("h1", "C1", [gpu(1, "P"), gpu(2, "Q")], day(2)) == []
    assert all(each.until is None and each.missing_since is None for each in yard.history.tenancies[H1])
    yard.here = {"h1"}
    yard.look("h1", "C1", [gpu(2, "Q")], day(3))
    assert [each.kind for each in yard.look("h2", "C2", [gpu(1, "P")], day(4))] == ["moved"]


def test_parts_without_serials() -> None:
    """1. A slot without a serial that tells one later: the same part. 2. A serial that is not told any more: the same
    part. 3. Another model is another part, whatever it tells."""
    yard = Yard()
    yard.look("h1", "C1", [gpu(1)])
    assert [each.kind for each in yard.look("h1", "C1", [gpu(1, "P")], day(1))] == ["identified"]
    assert yard.history.tenancies[H1][0].since == day(0)
    assert yard.look("h1", "C1", [gpu(1, "N/A")], day(2)) == []
    assert part_in(yard.history, H1, slot(1)) == gpu(1, "P")
    (change,) = yard.look("h1", "C1", [gpu(1, "", "H200")], day(3))
    assert (change.kind, change.before, change.serial) == ("swapped", "P", "")


_HOSTS = ("h1", "h2", "h3", "h4")
_ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("swap"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("trade"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("rename"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("fail"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("blind"), st.integers(0, 3)),
    ),
    max_size=30,
)


@given(_ACTS)
def test_history_is_conserved(acts: list[tuple[str, ...]]) -> None:
    """Any order of swaps, trades between hosts, renames and faults. 1. No incident is lost or doubled. 2. A part has
    exactly its own, wherever it was. 3. A slot of a chassis has exactly its own, whatever the host is called. 4. It is
    the same after a restart."""
    yard = Yard()
    named = {name: f"C{name}" for name in _HOSTS}
    inside = {f"C{name}": [f"{name}-a", f"{name}-b"] for name in _HOSTS}
    of_parts: dict[str, int] = {}
    of_slots: dict[tuple[str, int], int] = {}
    fresh = 0

    def look(name: str, at: int) -> None:
        yard.look(
            name, named[name], [gpu(number + 1, serial) for number, serial in enumerate(inside[named[name]])], day(at)
        )

    for name in _HOSTS:
        look(name, 0)
    for at, (act, *where) in enumerate(acts, 1):
        name = _HOSTS[int(where[0])]
        chassis = named[name]
        if act == "swap":
            fresh += 1
            inside[chassis][int(where[1])] = f"new-{fresh}"
            look(name, at)
        elif act == "trade":
            other = _HOSTS[int(where[1])]
            mine, its, number = inside[chassis], inside[named[other]], int(where[2])
            mine[number], its[number] = its[number], mine[number]
            look(name, at)
            look(other, at)
        elif act == "rename":
            other = _HOSTS[int(where[1])]
            named[name], named[other] = named[other], named[name]
            look(name, at)
            look(other, at)
        elif act == "fail":
            number = int(where[1])
            serial = inside[chassis][number]
            yard.case(name, slot(number + 1), day(at))
            of_parts[serial] = of_parts.get(serial, 0) + 1
            of_slots[chassis, number] = of_slots.get((chassis, number), 0) + 1
        else:
            yard.look(name, "", [], day(at))
        yard.history = decode(encode(yard.history), History)
        assert list(broken(yard.history)) == []
    total = sum(len(each) for each in yard.history.incidents.values())
    assert total == sum(act[0] == "fail" for act in acts)
    for serial, count in of_parts.items():
        assert len(of_part(yard.history, serial).incidents) == count
    for (chassis, number), count in of_slots.items():
        name = next(name for name, its in named.items() if its == chassis)
        assert len(of_slot(yard.history, HostId(name), slot(number + 1)).incidents) == count
    for name in _HOSTS:
        for number, serial in enumerate(inside[named[name]], 1):
            part = part_in(yard.history, HostId(name), slot(number))
            assert part is not None
            assert part.serial == serial
            assert yard.history.where[serial] == name
