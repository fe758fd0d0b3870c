"""The arithmetic of capacity: worked tables, then random lives against a naive recount."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.fixtures import job_spec, stage

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.effects import VerifyHost
from trainmaster.core.maintenance.capacity import (
    Book,
    Buffers,
    CapacityPolicy,
    CountedUnit,
    DomainCap,
    Guarantee,
    Problem,
    Share,
    impossible,
)
from trainmaster.core.maintenance.ledger import BufferAccount, Ledger, Side, side_of


def percent(tenths: int) -> Share:
    return Share(per_mille=tenths)


def hosts(number: int) -> Share:
    return Share(hosts=number)


def ids(*names: str) -> list[HostId]:
    return [HostId(name) for name in names]


def named(count: int, prefix: str = "h") -> list[HostId]:
    return [HostId(f"{prefix}{number}") for number in range(count)]


def units_of(names: Iterable[HostId], cluster: str = "c", kind: str = "compute", per_row: int = 0) -> list[CountedUnit]:
    """With `per_row` given, so many units stand in each power row."""
    return [
        CountedUnit(id=name, cluster=cluster, kind=kind, resources=(f"row/w{place // per_row}",) if per_row else ())
        for place, name in enumerate(names)
    ]


THREE, TWO = percent(30), percent(20)


def book(name: str = "c", maintenance: Share = THREE, failure: Share = TWO, **more: Any) -> Book:
    if "hosts" not in more:
        more.setdefault("cluster", "c")
    return Book(name=name, buffers=Buffers(maintenance=maintenance, failure=failure), **more)


def ledger_of(policy: CapacityPolicy, units: list[CountedUnit]) -> Ledger:
    """All in service."""
    ledger = Ledger(policy, units)
    for unit in units:
        ledger.set_side(unit.id, Side.IN_SERVICE)
    return ledger


def move(ledger: Ledger, units: Iterable[HostId], side: Side) -> None:
    for unit in units:
        ledger.set_side(unit, side)


def refused(reason: Reason | None, token: Token, **numbers: int | str) -> Reason:
    assert reason is not None
    assert reason.token is token, reason
    assert {key: reason.numbers[key] for key in numbers} == numbers, reason
    return reason


@pytest.mark.parametrize(
    ("share", "total", "limit"),
    [
        (percent(10), 40, 1),  # 1 % of 40 is 0.4: not nothing
        (percent(500), 3, 1),  # rounding up would take two of three
        (percent(500), 2, 1),
        (percent(500), 1, 1),
        (percent(30), 5, 1),
        (percent(100), 3072, 307),  # 307.2
        (percent(50), 3072, 153),  # 153.6
        (percent(30), 3072, 92),
        (percent(25), 40, 1),
        (percent(250), 96, 24),
        (percent(990), 100, 99),
        (percent(1000), 3, 3),
        (percent(0), 3072, 0),
        (percent(500), 0, 0),  # an empty book lends nothing
        (hosts(2), 40, 2),
        (hosts(0), 40, 0),
        (Share(hosts=2, per_mille=100), 40, 2),  # both: the smaller
        (Share(hosts=20, per_mille=100), 40, 4),
        (Share(hosts=0, per_mille=100), 40, 0),
    ],
)
def test_a_buffer_rounds_down_but_not_to_nothing(share: Share, total: int, limit: int) -> None:
    assert share.at_most(total) == limit


@pytest.mark.parametrize(
    ("share", "total", "least"),
    [
        (percent(500), 3, 2),
        (percent(500), 1, 1),
        (percent(10), 40, 1),
        (percent(333), 3072, 1023),  # 1022.976
        (percent(0), 40, 0),
        (percent(1000), 7, 7),
        (hosts(1024), 3072, 1024),
        (Share(hosts=10, per_mille=500), 40, 20),  # both: the larger
        (Share(hosts=30, per_mille=500), 40, 30),
    ],
)
def test_a_guarantee_rounds_up(share: Share, total: int, least: int) -> None:
    assert share.at_least(total) == least


def test_percentages_are_of_the_book_and_not_of_the_fleet() -> None:
    """1. A pool of 4 in a fleet of 400. 2. 5 % of the fleet would be all of the pool; of the pool it is one."""
    pool, rest = named(4, "p"), named(396, "h")
    ledger = ledger_of(CapacityPolicy(books=(book("pool", percent(50), hosts=tuple(pool)),)), units_of([*pool, *rest]))
    assert ledger.check(pool[:1]) is None
    refused(
        ledger.check(pool[:2]), Token.MAINTENANCE_BUFFER_SPENT, book="pool", total=4, limit=1, wanted=2, allowed=1,
        short_by=1,
    )  # fmt: skip
    assert ledger.check(rest) is None, "no book counts them"
    assert ledger.account().uncounted == 396


def test_the_denominator_is_not_what_is_up() -> None:
    """1. Of 40 units 20 have failed. 2. 10 % of the book are still 4 (the failure buffer is what stops the work).
    3. Units that are sent away leave the total: 10 % of 20 are 2."""
    names = named(40)
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=percent(100), failure=hosts(20)),)), units_of(names))
    move(ledger, names[:20], Side.OUT_FAILED)
    assert ledger.check(names[20:24]) is None
    refused(ledger.check(names[20:25]), Token.MAINTENANCE_BUFFER_SPENT, total=40, limit=4, short_by=1)
    move(ledger, names[:20], Side.ABSENT)
    refused(ledger.check(names[20:23]), Token.MAINTENANCE_BUFFER_SPENT, total=20, limit=2, short_by=1)
    assert ledger.account().books[0].absent == 20


def test_two_budgets_do_not_add_up_to_an_outage() -> None:
    """1. Two tools may each take 2 of 6. 2. Here there is one buffer: what the first was promised, the second lacks.
    3. Where two books count the same units, each has to have room."""
    names = named(6)
    books = (book("firmware", hosts(2)), book("kernel", hosts(3), hosts=tuple(names)))
    ledger = ledger_of(CapacityPolicy(books=books), units_of(names))
    ledger.promise(names[:2])
    refused(
        ledger.check(names[2:4]), Token.MAINTENANCE_BUFFER_SPENT, book="firmware", promised=2, allowed=0, short_by=2
    )
    refused(ledger.check(names[2:3]), Token.MAINTENANCE_BUFFER_SPENT, book="firmware", short_by=1)
    account = ledger.account()
    assert [(b.maintenance.used, b.maintenance.left) for b in account.books] == [(2, 0), (2, 1)]


def test_a_unit_that_two_operations_were_promised_counts_once() -> None:
    """1. Two operations meet on one unit. 2. It counts once, also when one of them ends. 3. After both it is free."""
    (one, two) = names = named(2)
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=hosts(1)),)), units_of(names))
    assert ledger.check([one]) is None
    ledger.promise([one])
    assert ledger.check([one]) is None, "it takes nothing any more"
    ledger.promise([one])
    assert ledger.account().books[0].promised == 1
    refused(ledger.check([two]), Token.MAINTENANCE_BUFFER_SPENT, promised=1)
    ledger.set_side(one, Side.OUT_PLANNED)
    refused(ledger.check([two]), Token.MAINTENANCE_BUFFER_SPENT, promised=0, out_planned=1)
    ledger.unpromise([one])
    ledger.set_side(one, Side.IN_SERVICE)
    refused(ledger.check([two]), Token.MAINTENANCE_BUFFER_SPENT, promised=1, out_planned=0)
    ledger.unpromise([one])
    assert ledger.check([two]) is None
    with pytest.raises(AssertionError):
        ledger.unpromise([one])


def test_naming_a_unit_twice_takes_it_once() -> None:
    names = named(2)
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=hosts(1)),)), units_of(names))
    assert ledger.check([names[0], names[0]]) is None
    ledger.promise([names[0], names[0]])
    ledger.unpromise([names[0]])
    assert ledger.account().books[0].promised == 0


def test_a_set_is_taken_whole_or_not_at_all() -> None:
    """1. A rack of 4 with room for 3. 2. Refused, and the numbers say by how much."""
    names = named(100)
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=hosts(3)),)), units_of(names))
    refused(ledger.check(names[:4]), Token.MAINTENANCE_BUFFER_SPENT, wanted=4, allowed=3, short_by=1)
    assert ledger.account().books[0].promised == 0


def test_a_guarantee_counts_failures_and_promises() -> None:
    """1. 10 hosts, 6 guaranteed, room for 5 by the buffer. 2. One failed and 2 promised: one more may go, not two."""
    names = named(10)
    policy = CapacityPolicy(
        books=(book(maintenance=hosts(5), failure=hosts(2)),),
        guarantees=(Guarantee(name="research", book="c", least=hosts(6)),),
    )
    ledger = ledger_of(policy, units_of(names))
    move(ledger, names[:1], Side.OUT_FAILED)
    ledger.promise(names[1:3])
    assert ledger.check(names[3:4]) is None
    reason = refused(
        ledger.check(names[3:5]), Token.GUARANTEE_BROKEN, book="c", guarantee="research", total=10, in_service=9,
        out_planned=0, promised=2, out_failed=1, wanted=2, limit=6, allowed=1, short_by=1,
    )  # fmt: skip
    assert reason.sentence == (
        "c: units in service and not promised: 7, of them guaranteed: 6 (up to research), wanted: 2"
    )


def test_guarantees_of_one_book_add_up() -> None:
    """1. Two tenants of 4 each in a book of 10. 2. What is kept for one is not there for the other: 2 may go, not 6."""
    names = named(10)
    both = tuple(Guarantee(name=name, book="c", least=hosts(4)) for name in ("ads", "research"))
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=hosts(6)),), guarantees=both), units_of(names))
    assert ledger.check(names[:2]) is None
    refused(ledger.check(names[:3]), Token.GUARANTEE_BROKEN, guarantee="research", limit=8, allowed=2, short_by=1)
    refused(ledger.check(names[:7]), Token.GUARANTEE_BROKEN, guarantee="ads", limit=4, allowed=6, short_by=1)
    assert [(g.least, g.headroom) for g in ledger.account().books[0].guarantees] == [(4, 6), (4, 2)]


def test_failures_above_their_buffer_stop_planned_work_but_no_return() -> None:
    """1. 2 of 100 may fail. 2. At 2 planned work goes on, at 3 none starts. 3. Repair of the failed, and hand-over of
    what is out, take nothing; units come back. 4. Back below the buffer, planned work starts by itself."""
    names = named(100)
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=hosts(5), failure=percent(20)),)), units_of(names))
    ledger.set_side(names[9], Side.OUT_PLANNED)
    move(ledger, names[:2], Side.OUT_FAILED)
    assert ledger.check(names[10:11]) is None
    ledger.set_side(names[2], Side.OUT_FAILED)
    refused(
        ledger.check(names[10:11]), Token.FAILURE_BUFFER_SPENT, out_failed=3, limit=2, allowed=0, short_by=1, wanted=1
    )
    assert ledger.check(names[:3]) is None
    assert ledger.check(names[9:10]) is None
    ledger.promise(names[:3])
    ledger.unpromise(names[:3])
    ledger.set_side(names[0], Side.IN_SERVICE)
    assert ledger.check(names[10:11]) is None


def test_a_unit_out_for_planned_work_that_fails_changes_its_buffer() -> None:
    """1. A reboot does not return. 2. The unit leaves the maintenance buffer, so another may go. 3. A second one spends
    the failure buffer: trains stop."""
    names = named(10)
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=hosts(1), failure=hosts(1)),)), units_of(names))
    ledger.promise(names[:1])
    ledger.set_side(names[0], Side.OUT_PLANNED)
    refused(ledger.check(names[1:2]), Token.MAINTENANCE_BUFFER_SPENT)
    ledger.set_side(names[0], Side.OUT_FAILED)
    assert ledger.check(names[1:2]) is None
    ledger.set_side(names[1], Side.OUT_PLANNED)
    ledger.set_side(names[1], Side.OUT_FAILED)
    refused(ledger.check(names[2:3]), Token.FAILURE_BUFFER_SPENT, out_failed=2, out_planned=0)


def test_a_promised_unit_that_fails_and_returns_breaks_no_guarantee() -> None:
    """1. A promised unit fails; its place goes to another. 2. It is back, still promised: over the buffer by one, which
    is told as such and not as a negative rest. 3. In service less promised did not change. 4. Nobody else is admitted,
    and once the other has begun, its own drain waits."""
    names = named(10)
    guarantees = (Guarantee(name="g", book="c", least=hosts(8)),)
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=hosts(1)),), guarantees=guarantees), units_of(names))
    ledger.promise(names[:1])
    ledger.set_side(names[0], Side.OUT_FAILED)
    ledger.promise(names[1:2])
    headroom = ledger.account().books[0].guarantees[0].headroom
    ledger.set_side(names[0], Side.IN_SERVICE)
    account = ledger.account().books[0]
    assert account.guarantees[0].headroom == headroom == 0
    assert account.maintenance == BufferAccount(size=1, used=2, left=0, over=1)
    assert ledger.check(names[2:3]) is not None
    ledger.set_side(names[1], Side.LEAVING)
    refused(ledger.check_start(names[:1]), Token.MAINTENANCE_BUFFER_SPENT, promised=1, wanted=1, short_by=1)
    ledger.set_side(names[1], Side.IN_SERVICE)
    ledger.unpromise(names[:2])
    refused(ledger.check(names[2:4]), Token.MAINTENANCE_BUFFER_SPENT)


def test_a_promise_is_looked_at_again_when_the_drain_begins() -> None:
    """1. Two operations are admitted. 2. Then hosts fail, beyond their buffer: neither may begin. 3. The buffer holds
    again, but the guarantee leaves one: either may begin, the other then waits; the one that left goes on."""
    names = named(10)
    guarantees = (Guarantee(name="g", book="c", least=hosts(7)),)
    policy = CapacityPolicy(books=(book(maintenance=hosts(2), failure=hosts(2)),), guarantees=guarantees)
    ledger = ledger_of(policy, units_of(names))
    one, two = names[:1], names[1:2]
    ledger.promise(one)
    ledger.promise(two)
    assert ledger.check_start([*one, *two]) is None
    move(ledger, names[7:], Side.OUT_FAILED)
    assert ledger.check(one) is None, "promised already"
    refused(ledger.check_start(one), Token.GUARANTEE_BROKEN, in_service=7, promised=0, allowed=0, short_by=1)
    ledger.set_side(names[7], Side.IN_SERVICE)
    assert ledger.check_start(one) is None
    assert ledger.check_start(two) is None
    refused(ledger.check_start([*one, *two]), Token.GUARANTEE_BROKEN, wanted=2, short_by=1)
    ledger.set_side(one[0], Side.LEAVING)
    refused(ledger.check_start(two), Token.GUARANTEE_BROKEN, promised=1, wanted=1, short_by=1)
    assert ledger.check_start(one) is None
    ledger.set_side(one[0], Side.OUT_PLANNED)
    assert ledger.check_start(one) is None
    refused(ledger.check_start(two), Token.GUARANTEE_BROKEN, out_planned=1, promised=0)


def test_no_drain_begins_while_failures_are_above_their_buffer() -> None:
    names = named(10)
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=hosts(2), failure=hosts(1)),)), units_of(names))
    ledger.promise(names[:1])
    move(ledger, names[8:], Side.OUT_FAILED)
    refused(ledger.check_start(names[:1]), Token.FAILURE_BUFFER_SPENT, out_failed=2, short_by=1)
    ledger.set_side(names[9], Side.IN_SERVICE)
    assert ledger.check_start(names[:1]) is None


def test_a_row_is_never_taken_at_once() -> None:
    """1. 25 % of a row of 96 hosts are 24, of its 4 switches one. 2. Kinds are not mixed. 3. Other rows are free."""
    compute, switches = named(192), named(4, "s")
    units = [*units_of(compute, per_row=96), *units_of(switches, kind="switch", per_row=4)]
    policy = CapacityPolicy(
        books=(book(maintenance=hosts(100)), book("sw", hosts(4), kind="switch")),
        caps=(DomainCap(per="row", most=percent(250)),),
    )
    ledger = ledger_of(policy, units)
    assert ledger.check([*compute[:24], switches[0], *compute[96:120]]) is None
    refused(ledger.check(compute[:25]), Token.DOMAIN_CAP, resource="row/w0", total=96, limit=24, short_by=1)
    refused(ledger.check(switches[:2]), Token.DOMAIN_CAP, resource="row/w0", kind="switch", total=4, limit=1)
    ledger.promise(compute[:20])
    refused(ledger.check(compute[20:26]), Token.DOMAIN_CAP, promised=20, allowed=4, short_by=2)
    shown = [(d.resource, d.kind, d.total, d.cap.used, d.cap.left) for d in ledger.account().domains]
    assert shown == [("row/w0", "compute", 96, 20, 4), ("row/w0", "switch", 4, 0, 1), ("row/w1", "compute", 96, 0, 24)]


def test_the_most_telling_reason_is_given() -> None:
    """1. All limits refuse. 2. The guarantee is named; as limits fall away, the next ones are."""
    names = named(10)

    def refusal(**kept: bool) -> Token:
        maintenance, failure = (hosts(0 if kept.get(name) else 9) for name in ("buffer", "failure"))
        policy = CapacityPolicy(
            books=(book(maintenance=maintenance, failure=failure),),
            guarantees=(Guarantee(name="g", book="c", least=hosts(9 if kept.get("guarantee") else 0)),),
            caps=(DomainCap(per="row", most=hosts(0)),),
        )  # fmt: skip
        ledger = ledger_of(policy, units_of(names, per_row=10))
        ledger.set_side(names[0], Side.OUT_FAILED)
        reason = ledger.check(names[1:2])
        assert reason is not None
        return reason.token

    assert refusal(guarantee=True, buffer=True, failure=True) is Token.GUARANTEE_BROKEN
    assert refusal(buffer=True, failure=True) is Token.MAINTENANCE_BUFFER_SPENT
    assert refusal(failure=True) is Token.FAILURE_BUFFER_SPENT
    assert refusal() is Token.DOMAIN_CAP


def test_reasons_do_not_hang_on_the_order_of_units() -> None:
    """1. Two books refuse alike. 2. The one that stands first in the policy is named, whatever comes first."""
    a, b = named(3, "a"), named(3, "b")
    units = [*units_of(a, "a"), *units_of(b, "b")]
    books = tuple(book(name, hosts(1), cluster=name) for name in ("b", "a"))
    ledger = ledger_of(CapacityPolicy(books=books), units)
    assert ledger.check([*a, *b]) == ledger.check([*b, *a])
    refused(ledger.check([*a, *b]), Token.MAINTENANCE_BUFFER_SPENT, book="b")


def test_what_can_never_be_taken_is_told_apart_from_what_waits() -> None:
    """1. A buffer of 3, one promised. 2. Three have to wait, four never fit. 3. Nor does what breaks the guarantee."""
    names = named(10)
    guarantees = (Guarantee(name="g", book="c", least=hosts(8)),)
    ledger = ledger_of(CapacityPolicy(books=(book(maintenance=hosts(2)),), guarantees=guarantees), units_of(names))
    ledger.promise(names[:1])
    refused(ledger.check(names[1:3]), Token.GUARANTEE_BROKEN, allowed=1)
    assert ledger.never(names[1:3]) is None
    refused(ledger.never(names[1:4]), Token.GUARANTEE_BROKEN, allowed=2, short_by=1, promised=0)


def impossibilities(policy: CapacityPolicy, units: list[CountedUnit], visited: tuple[str, ...] = ()) -> list[str]:
    def line(problem: Problem) -> str:
        return f"{'.'.join(map(str, problem.path))}: {problem.reason}; {problem.fix}"

    return [line(problem) for problem in impossible(policy, units, visited)]


@pytest.mark.parametrize(
    ("least", "maintenance", "expected"),
    [
        ([hosts(97)], percent(30), []),
        ([hosts(100)], percent(30), [
            "guarantee.0.least: 100 of 100 units: not one could ever be taken for planned work; guarantee at most 99"]),
        ([percent(1000)], percent(30), [
            "guarantee.0.least: 100 of 100 units: not one could ever be taken for planned work; guarantee at most 99"]),
        ([hosts(98)], percent(30), [
            "guarantee.0.least: 98 units are guaranteed, but planned work may leave 97 of 100; "
            "guarantee 1 fewer, or lower the maintenance buffer of c"]),
        ([hosts(50), hosts(48)], percent(30), [
            "guarantee.1.least: 98 units are guaranteed (50 by the guarantees before it), but planned work may leave 97"
            " of 100; guarantee 1 fewer, or lower the maintenance buffer of c"]),
        ([percent(1010)], percent(30), ["guarantee.0.least: 101 % is out of range; give 0 % to 100 %"]),
        ([Share()], percent(30), ['guarantee.0.least: neither units nor a percentage; give one, such as "3%"']),
        ([hosts(-1)], percent(30), ["guarantee.0.least: -1 units are fewer than none; give 0 or more"]),
        ([], percent(0), [
            "book.0.maintenance: a buffer of 0 lets no train ever stop here; "
            "give it 1 or more, or take the book out of the trains"]),
        ([], hosts(101), ["book.0.maintenance: 101 units of a book of 100; give at most 100, or a percentage"]),
    ],
)  # fmt: skip
def test_impossible_guarantees(least: list[Share], maintenance: Share, expected: list[str]) -> None:
    guarantees = tuple(Guarantee(name=f"g{place}", book="c", least=share) for place, share in enumerate(least))
    policy = CapacityPolicy(books=(book(maintenance=maintenance),), guarantees=guarantees)
    assert impossibilities(policy, units_of(named(100)), visited=("c",)) == expected


def test_policies_that_name_nothing() -> None:
    """1. Everything is misspelt. 2. All of it is told at once, with place and fix."""
    policy = CapacityPolicy(
        books=(
            book("c"), book("c", cluster="d"), book("k", kind="toaster"), book("p", hosts=tuple(ids("h1", "x1"))),
            book("q", cluster="c", hosts=tuple(ids("h1"))), book("r", cluster=""),
        ),
        guarantees=(Guarantee(name="g", book="z", least=hosts(1)), Guarantee(name="g", book="c", least=hosts(1))),
        caps=(DomainCap(per="shelf", most=hosts(1)), DomainCap(per="row", most=percent(0))),
    )  # fmt: skip
    assert impossibilities(policy, units_of(named(4), per_row=2)) == [
        "book.1.name: 'c' stands twice; merge them, or rename one",
        "guarantee.1.name: 'g' stands twice; merge them, or rename one",
        "book.1.cluster: no cluster 'd'; known are c",
        "book.2.kind: c has no unit of kind 'toaster'; known are compute",
        "book.3.hosts: not in the fleet: x1; leave them out",
        "book.4: a book is of a cluster or of hosts; give one of cluster and hosts",
        "book.5: a book is of a cluster or of hosts; give one of cluster and hosts",
        "guarantee.0.book: no book 'z'; known are c, k, p, q, r",
        "cap.0.per: no unit is a part of a 'shelf'; known are row",
        "cap.1.most: a cap of 0 lets no planned work on any row; give it 1 or more, or pause the work instead",
    ]


def test_the_side_of_a_host_through_its_life() -> None:
    """1. Expected, and verified for the first time: not a part of the total. 2. Drained, verified after it: planned.
    3. Lost, verified after it: failed. 4. A job's host that is drained is leaving until the job has gone."""
    play = stage(1, ready=False)

    def side() -> Side:
        return side_of(play.host("h1"))

    assert side() is Side.ABSENT
    play.register("h1")
    assert side() is Side.ABSENT
    play.settle(VerifyHost)
    assert side() is Side.IN_SERVICE
    play.drain("h1")
    assert side() is Side.OUT_PLANNED
    play.resume("h1")
    assert (play.states("h1"), side()) == (["verifying"], Side.OUT_PLANNED)
    play.settle(VerifyHost)
    play.lose("h1")
    assert side() is Side.OUT_FAILED
    play.register("h1", boot="b2", session="s2")
    assert (play.states("h1"), side()) == (["verifying"], Side.OUT_FAILED)
    play.settle(VerifyHost)
    play.running(job_spec(hosts=1))
    play.drain("h1")
    assert (play.states("h1"), side()) == (["draining"], Side.LEAVING)


def test_a_host_that_never_came_is_no_failure() -> None:
    play = stage(1, ready=False)
    play.at(901)
    assert play.states("h1") == ["out-failed"]
    assert side_of(play.host("h1")) is Side.ABSENT


NAMES = named(9)
UNITS = [
    *units_of(NAMES[:6], per_row=3),
    CountedUnit(id=NAMES[6], cluster="c", kind="switch", resources=("row/w0", "rack/r1")),
    *units_of(NAMES[7:], "d"),
]
POLICY = CapacityPolicy(
    books=(
        book("c", percent(340), percent(200)), book("sw", hosts(1), hosts(0), kind="switch"),
        book("pool", hosts(2), hosts(1), hosts=(NAMES[4], NAMES[5], NAMES[7])),
    ),
    guarantees=(
        Guarantee(name="a", book="c", least=percent(300)), Guarantee(name="b", book="c", least=hosts(1)),
        Guarantee(name="p", book="pool", least=percent(340)),
    ),
    caps=(DomainCap(per="row", most=percent(500)),),
)  # fmt: skip
SUBSETS = st.sets(st.sampled_from(NAMES), min_size=1, max_size=5)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("side"), st.sampled_from(NAMES), st.sampled_from(Side)),
        st.tuples(st.just("promise"), SUBSETS),
        st.tuples(st.just("unpromise"), st.integers(0, 9)),
    ),
    max_size=40,
)


def naive_refusal(sides: dict[HostId, Side], operations: list[set[HostId]], wanted: set[HostId]) -> bool:
    """The rules again, from the sides and the operations alone."""
    promised = {name for name in NAMES if sides[name] is Side.LEAVING}
    promised |= {name for taken in operations for name in taken if sides[name] is Side.IN_SERVICE}
    up = {name for name in NAMES if sides[name] in (Side.IN_SERVICE, Side.LEAVING)}
    planned = {name for name in NAMES if sides[name] is Side.OUT_PLANNED}
    failed = {name for name in NAMES if sides[name] is Side.OUT_FAILED}
    takes = (wanted & up) - promised
    sets = {"c": set(NAMES[:6]), "sw": {NAMES[6]}, "pool": {NAMES[4], NAMES[5], NAMES[7]}}
    for counted in POLICY.books:
        inside = sets[counted.name]
        if not inside & takes:
            continue
        total = len(inside & (up | planned | failed))
        kept = sum(g.least.at_least(total) for g in POLICY.guarantees if g.book == counted.name)
        if len(inside & (up - promised - takes)) < kept or len(inside & failed) > counted.buffers.failure.at_most(
            total
        ):
            return True
        if len(inside & (planned | promised | takes)) > counted.buffers.maintenance.at_most(total):
            return True
    for inside in (set(NAMES[:3]), set(NAMES[3:6]), {NAMES[6]}):
        total = len(inside & (up | planned | failed))
        if inside & takes and len(inside & (planned | promised | takes)) > max(total // 2, 1):
            return True
    return False


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MOVES, SUBSETS)
def test_random_lives_against_a_naive_recount(moves: list[Any], wanted: set[HostId]) -> None:
    """1. Units move and operations come and go, in any order. 2. The verdict is that of a recount. 3. A ledger that is
    built from the sides and the operations has the same numbers. 4. What is admitted is within all limits after it."""
    ledger, sides, operations = Ledger(POLICY, UNITS), dict.fromkeys(NAMES, Side.ABSENT), list[set[HostId]]()
    for kind, *arguments in moves:
        if kind == "side":
            sides[arguments[0]] = arguments[1]
            ledger.set_side(*arguments)
        elif kind == "promise":
            operations.append(arguments[0])
            ledger.promise(arguments[0])
        elif operations:
            ledger.unpromise(operations.pop(arguments[0] % len(operations)))
    rebuilt = Ledger(POLICY, reversed(UNITS))
    for taken in operations:
        rebuilt.promise(taken)
    for name, side in sides.items():
        rebuilt.set_side(name, side)
    assert rebuilt.account() == ledger.account()
    reason = ledger.check(wanted)
    assert reason == rebuilt.check(wanted)
    assert (reason is not None) == naive_refusal(sides, operations, wanted)
    start = ledger.check_start(wanted)
    assert start == rebuilt.check_start(wanted)
    assert (start is not None) == naive_refusal(sides, [], wanted)
    if reason is not None:
        assert reason.numbers["short_by"] > 0  # type: ignore[operator]
        assert all(value >= 0 for value in reason.numbers.values() if isinstance(value, int))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(SUBSETS, max_size=8))
def test_planned_work_alone_never_passes_a_limit(wants: list[set[HostId]]) -> None:
    """1. All in service. 2. Each set is promised if it may be. 3. No buffer is ever over, no guarantee broken."""
    ledger = ledger_of(POLICY, UNITS)
    for wanted in wants:
        if ledger.check(wanted) is None:
            ledger.promise(wanted)
        account = ledger.account()
        assert all(shown.maintenance.over == 0 for shown in account.books)
        assert all(kept.headroom >= 0 for shown in account.books for kept in shown.guarantees)
        assert all(domain.cap.over == 0 for domain in account.domains)
