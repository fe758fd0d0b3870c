"""When history asks for more than the finding does: a table of histories, and what is said of them."""

from collections.abc import Callable

import pytest
from tests.unit.core.health.offender.offender_world import LIMITS, Yard, day, gpu, slot

from trainmaster.core.base.ids import HostId, RmaId
from trainmaster.core.base.reasons import Token
from trainmaster.core.health.offender.advice import advice, ordinal
from trainmaster.core.health.offender.record import Return
from trainmaster.core.health.words import Remedy

NOW = day(100)
Story = Callable[[Yard], None]


def yard() -> Yard:
    made = Yard()
    for number in (1, 2, 3):
        made.look(f"h{number}", f"C{number}", [gpu(each, f"G{number}{each}") for each in range(1, 9)])
    made.in_service("h1", "h2", "h3")
    return made


def faults(*times: float, host: str = "h1", unit: str = slot(1), place: str = "") -> Story:
    def tell(made: Yard) -> None:
        for at in times:
            made.case(host, unit, day(at), place=place)

    return tell


def swap(serial: str, at: float, host: str = "h1") -> Story:
    """Another part in slot 1."""

    def tell(made: Yard) -> None:
        number = host[1:]
        others = [gpu(each, f"G{number}{each}") for each in range(2, 9)]
        made.look(host, f"C{number}", [gpu(1, serial), *others], day(at))

    return tell


def sent(serial: str, outcome: str, at: float, host: str = "h1", number: int = 1) -> Story:
    def tell(made: Yard) -> None:
        made.history.returns.append(
            Return(
                rma=RmaId(f"rma-{number}"), host=HostId(host), chassis=f"C{host[1:]}", unit=slot(1), serial=serial,
                at=day(at), outcome=outcome, closed_at=day(at) if outcome else None,
            )
        )  # fmt: skip

    return tell


def rename(at: float) -> Story:
    def tell(made: Yard) -> None:
        made.look("h9", "C1", [gpu(each, f"G1{each}") for each in range(1, 9)], day(at))

    return tell


def new(made: Yard) -> None:
    made.history.first_seen[HostId("h1")] = day(95)


UNITS = [slot(each) for each in range(1, 9)]
TABLE: list[tuple[str, list[Story], tuple[Remedy, Token, str] | None, str]] = [
    ("nothing", [], None, ""),
    ("two of a slot", [faults(90)], None, ""),
    ("three of a part", [faults(80, 90)], (Remedy.RMA, Token.PART_OFFENDS, "part G11"), "3rd case of G11 in 28 d"),
    ("three, but one is too old", [faults(60, 90)], None, ""),
    ("three of a slot whose part is unknown", [swap("", 1), lambda made: made.history.cloned_parts.add("G11"),
     faults(80, 90)], (Remedy.TRIAGE, Token.SLOT_OFFENDS, f"slot {slot(1)} of h1"), "not known"),
    ("another part fails in the slot", [faults(80), swap("NEW", 85)],
     (Remedy.TRIAGE, Token.SLOT_OFFENDS, f"slot {slot(1)} of h1"), "2 different parts"),
    ("the part is replaced and another slot fails", [faults(80, unit=slot(2)), swap("NEW", 85)], None, ""),
    ("the part fails in the next host too", [faults(80, host="h2"), swap("G21", 85)],
     (Remedy.RMA, Token.PART_OFFENDS, "part G21"), f"{slot(1)} of h2"),
    ("a part that fails everywhere in a slot that fails with all", [faults(80), faults(82, host="h2"),
     swap("G21", 85)], (Remedy.TRIAGE, Token.SLOT_OFFENDS, f"slot {slot(1)} of h1"), "2 different parts"),
    ("found without fault, and the slot fails again", [sent("G11", "no-fault-found", 85), swap("NEW", 86)],
     (Remedy.TRIAGE, Token.NO_FAULT_FOUND, f"slot {slot(1)} of h1"), "rma-1"),
    ("twice found without fault", [sent("OLD", "no-fault-found", 70), sent("G11", "no-fault-found", 85, number=2)],
     (Remedy.TRIAGE, Token.NO_FAULT_FOUND, f"slot {slot(1)} of h1"), "2 times, last as rma-2"),
    ("found without fault, and fails in another host", [sent("G21", "no-fault-found", 85, host="h2"), swap("G21", 90)],
     (Remedy.RMA, Token.PART_OFFENDS, "part G21"), "rma-1"),
    ("repaired, and fails again", [sent("G11", "repaired", 85)],
     (Remedy.RMA, Token.PART_OFFENDS, "part G11"), "(repaired)"),
    ("sent back years ago", [sent("G11", "no-fault-found", -400)], None, ""),
    ("five of a host in different slots", [faults(80 + each, unit=UNITS[each]) for each in range(1, 5)],
     (Remedy.TRIAGE, Token.HOST_OFFENDS, "host h1"), "5th case of h1 in 28 d, in 5 of its units"),
    ("the same of a new host", [new, *(faults(95 + each, unit=UNITS[each]) for each in range(1, 5))], None, ""),
    ("a new host's part is a bad part all the same", [new, faults(96, 97)],
     (Remedy.RMA, Token.PART_OFFENDS, "part G11"), "3rd case"),
    ("four at a place, of two hosts", [faults(80, 81, host="h2", place="r1/1"), faults(82, host="h3", place="r1/1")],
     (Remedy.TRIAGE, Token.PLACE_OFFENDS, "place r1/1"), "of 2 different hosts"),
    ("four at a place, of one host", [faults(80, 81, 82, host="h2", place="r1/1")], None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("stories", "answer", "words"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_advice(stories: list[Story], answer: tuple[Remedy, Token, str] | None, words: str) -> None:
    """1. The history is told. 2. Slot 1 of h1 fails now. 3. Remedy, token and suspect are as expected, in words."""
    made = yard()
    for story in stories:
        story(made)
    found = made.advice("h1", slot(1), NOW, place="r1/1")
    assert (found and (found.remedy, found.reason.token, found.suspect)) == answer
    if found is not None:
        assert words in found.reason.sentence
        assert found.reason.numbers
        assert found.look_at


def test_the_height_of_a_rack() -> None:
    """1. In five racks the third host from below fails twice, and others now and then. 2. When a host at that height is
    held for its history, the height is the first thing to look at; elsewhere nobody speaks of it."""
    made = yard()
    for rack in range(5):
        faults(80, 85, host=f"x{rack}", place=f"r{rack}/3")(made)
        faults(82, host=f"y{rack}", place=f"r{rack}/{rack + 4}")(made)
    faults(81, 86)(made)
    made.history.cloned_parts.add("G11")
    found = made.advice("h1", slot(1), NOW, place="r9/3")
    assert found is not None
    assert found.look_at[0] == "height 3 of the racks: 10 cases in 5 racks, 0.7 at other heights"
    elsewhere = made.advice("h1", slot(1), NOW, place="r9/5")
    assert elsewhere is not None
    assert not any("height" in each and "cases" in each for each in elsewhere.look_at)


def test_a_rename_hides_nothing() -> None:
    """1. A part of h1 was sent back and found without fault. 2. The host is renamed. 3. Its slot fails: it is known."""
    made = yard()
    sent("G11", "no-fault-found", 85)(made)
    rename(90)(made)
    found = made.advice("h9", slot(1), NOW)
    assert found is not None
    assert found.reason.token is Token.NO_FAULT_FOUND
    assert f"slot {slot(1)} of h9" == found.suspect


def test_the_present_case_is_counted_once() -> None:
    """Whether it is noted yet or not."""
    made = yard()
    faults(90)(made)
    present = made.case("h1", slot(1), NOW)
    known = advice(made.history, HostId("h1"), slot(1), "G11", NOW, LIMITS, case=present.case)
    assert known is None
    doubled = advice(made.history, HostId("h1"), slot(1), "G11", NOW, LIMITS)
    assert doubled is not None


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd"), (113, "113th")]
)
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text
