"""What is news to the server, and what is not; records of the kernel."""

from trainmaster.core.agent.health_news import REPORT_LIMIT, REST, Known, aged, of_events, of_state, settled
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.health import kmsg
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import OK, RESET, WATCH, Answer

GPU = "gpu 0000:1b:00"


def finding(answer: Answer = RESET, count: int = 1, unit: str = GPU, last_us: int | None = None) -> Finding:
    return Finding(
        unit=unit, verdict=answer.verdict, remedy=answer.remedy, rule="r", summary="s", count=count, last_us=last_us
    )


def test_the_same_is_told_once() -> None:
    """1. New: told. 2. The same: not. 3. Another answer: told. 4. Well, from the start: not worth a word."""
    first = of_events((), [finding()])
    assert [each.unit for each in first.findings] == [GPU]
    assert not of_events(first.known, [finding(count=9)])
    assert of_events(first.known, [finding(WATCH)])
    assert not of_events((), [finding(OK)])


def test_a_storm_is_a_handful_of_reports() -> None:
    """800,000 copies, looked at after each of them where it could matter: one report for each power of ten."""
    known: tuple[Known, ...] = ()
    reports = 0
    for count in sorted({*range(1, 2000), *range(2000, 800_001, 997), 800_000}):
        news = of_events(known, [finding(count=count, last_us=count)])
        reports, known = reports + bool(news), news.known if news else known
    assert reports == 6


def test_the_same_after_a_rest_is_another_incident() -> None:
    """1. Seen. 2. Seen again within ten minutes: known. 3. After more than ten: told, since the first may have been
    repaired."""
    known = of_events((), [finding(last_us=5)]).known
    assert not of_events(known, [finding(count=2, last_us=4 + REST)])
    assert of_events(known, [finding(count=2, last_us=5 + REST)])


def test_after_an_operation_more_of_the_same_is_news() -> None:
    """1. Seen twice, told once; the GPU is reset. 2. What the log still holds of it is no news. 3. One more line is,
    at once. 4. Then it is known again."""
    known = settled(of_events((), [finding(last_us=5)]).known, {(GPU, "r"): 2})
    assert not of_events(known, [finding(count=2, last_us=6)])
    again = of_events(known, [finding(count=3, last_us=7)])
    assert again
    assert not of_events(again.known, [finding(count=4, last_us=8)])


def test_events_are_over_only_by_another_event() -> None:
    """1. An event that is not seen again stays. 2. One that is said to hold no more is gone."""
    known = of_events((), [finding()]).known
    assert not of_events(known, [])
    over = of_events(known, [finding(OK)])
    assert [(each.unit, each.rule) for each in over.gone] == [(GPU, "r")]
    assert over.known == ()


def test_states_are_gone_when_they_could_be_looked_at() -> None:
    """1. A state holds no more: gone. 2. Its unit could not be read: it stays. 3. Nothing could be read: all stays."""
    known = of_state((), [finding(), finding(unit="host")]).known
    assert {each.unit for each in of_state(known, []).gone} == {GPU, "host"}
    assert {each.unit for each in of_state(known, [], frozenset({GPU})).gone} == {"host"}
    assert not of_state(known, [], frozenset({"host"}))


def test_reports_are_bounded_and_nothing_is_lost() -> None:
    """1. Three hundred units in one look: the worst go first. 2. The next looks tell the rest, each once."""
    found = [finding(RESET if number % 3 == 0 else WATCH, unit=f"gpu {number}") for number in range(300)]
    known: tuple[Known, ...] = ()
    told: list[str] = []
    while news := of_events(known, found):
        assert len(news.findings) <= REPORT_LIMIT
        told += [each.unit for each in news.findings]
        known = news.known
    assert sorted(told) == sorted(each.unit for each in found)
    assert {int(unit[4:]) % 3 for unit in told[:100]} == {0}


def test_old_lines_carry_their_age() -> None:
    """1. On the clock of the boot. 2. On the wall's. 3. What can't be has no age: the future, a stamp that has
    no year."""
    now = Instant(1_796_000_000_000_000)

    def told(last_us: int, up_s: float) -> str:
        return aged(finding(last_us=last_us), seconds(up_s), now).summary

    assert told(1, 0.00003) == "s"
    assert told(1, 301) == "s; 5 min old when it was read"
    assert told(1, 86_401) == "s; 24 h old when it was read"
    assert told(now - seconds(7_200), 50) == "s; 2 h old when it was read"
    assert told(now + seconds(50), 50) == "s"
    assert told(seconds(100), 50) == "s"
    assert told(seconds(30 * 365 * 86_400), 50) == "s"


def test_records_of_the_kernel() -> None:
    """1. A record with properties. 2. Several lines and other bytes in one text. 3. Facility of user space. 4. What is
    no record."""
    record = kmsg.parse(b"3,812,171167620236,-;NVRM: Xid (PCI:0009:01:00): 95\n SUBSYSTEM=pci\n DEVICE=+pci:0009\n")
    assert record is not None
    assert (record.facility, record.sequence) == (kmsg.KERNEL, 812)
    assert record.lines() == ["[171167.620236] NVRM: Xid (PCI:0009:01:00): 95"]
    several = kmsg.parse(b"6,1,5,-,caller=T1;one\\x0atwo \\xe2\\x82\\xac \\x5cx\n")
    assert several is not None
    assert several.lines() == ["[    0.000005] one", "[    0.000005] two € \\x"]
    written = kmsg.parse(b"12,9,1,-;from a program\n")
    assert written is not None
    assert written.facility == kmsg.USER
    for bad in (b"", b"no record", b"a,b,c,-;x", b"1,2;x", b"9" * 30 + b",1,1,-;x"):
        assert kmsg.parse(bad) is None
