"""What is written down, how long it is kept, and how it is found."""

from tests.unit.core.health.offender.offender_world import Yard, day, gpu, slot

from trainmaster.core.base.ids import CaseId, HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import encode
from trainmaster.core.health.offender.notes import INCIDENTS, TALLIES, cases, of_host, of_part, of_place, of_slot

H1 = HostId("h1")


def test_an_incident_is_found_by_each_of_its_identities() -> None:
    """1. A fault of a slot. 2. Chassis and part are filled in. 3. Host, slot, part and place find it; others don't."""
    yard = Yard()
    yard.look("h1", "C1", [gpu(1, "GP")])
    written = yard.case("h1", slot(1), day(1), place="r1/2")
    assert (written.chassis, written.part) == ("C1", "GP")
    history = yard.history
    for past in (
        of_host(history, H1),
        of_slot(history, H1, slot(1)),
        of_part(history, "GP"),
        of_place(history, "r1/2"),
    ):
        assert past.incidents == (written,)
        assert (past.first, past.older) == (day(1), 0)
    for past in (of_slot(history, H1, slot(2)), of_part(history, ""), of_part(history, "GQ"), of_place(history, "")):
        assert (past.incidents, past.first) == ((), None)


def test_a_window() -> None:
    """Only what is in it is given one by one; the offences before are counted."""
    yard = Yard()
    for at in (1, 10, 40):
        yard.case("h1", "host", day(at))
    yard.case("h1", "host", day(11), offence=False)
    past = of_host(yard.history, H1, day(30))
    assert [each.at for each in past.incidents] == [day(40)]
    assert (past.older, past.first) == (2, day(1))


def test_what_is_old_is_counted() -> None:
    """1. A fault a week for two years. 2. A quarter is kept one by one, the rest as a tally of what is alike."""
    yard = Yard()
    yard.look("h1", "C1", [gpu(1, "GP")])
    for week in range(104):
        yard.case("h1", slot(1), day(7 * week))
    (tally,) = yard.history.older[H1]
    past = of_part(yard.history, "GP")
    assert len(past.incidents) == 13
    assert past.older == tally.count == 91
    assert past.first == tally.first == day(0)


def test_a_storm_stays_small() -> None:
    """1. Ten thousand incidents of all kinds of units in a day. 2. None is lost from the count, and what is kept is
    bounded."""
    yard = Yard()
    for number in range(10_000):
        yard.case("h1", f"disk nvme{number % 97}n1", Instant(day(1) + number))
    history = yard.history
    assert len(history.incidents[H1]) == INCIDENTS
    assert len(history.older[H1]) <= TALLIES
    assert sum(each.count for each in history.older[H1]) == 10_000 - INCIDENTS
    assert len(encode(history)) < 100_000


def test_late_news_take_their_place() -> None:
    yard = Yard()
    for at in (3, 1, 2):
        yard.case("h1", "host", day(at))
    assert [each.at for each in of_host(yard.history, H1).incidents] == [day(1), day(2), day(3)]


def test_cases_are_counted_once_and_only_offences() -> None:
    """1. A case that noted two verdicts is one. 2. Remedies, and what the unit is not to blame for, are none."""
    yard = Yard()
    one = yard.case("h1", "host", day(1))
    again = one.but(at=day(2))
    yard.history.incidents[H1].append(again)
    yard.case("h1", "host", day(3), offence=False)
    yard.case("h1", "host", day(4), kind="remedy")
    assert cases(of_host(yard.history, H1).incidents) == (one,)
    assert one.case == CaseId("case-1")
