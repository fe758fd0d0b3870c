"""Lemons among their peers: what makes one, and what does not."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.health.offender.offender_world import Yard, day, slot

from trainmaster.core.base.ids import HostId, JobId, PodId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import DAY
from trainmaster.core.health.conduct import OffenderLimits
from trainmaster.core.health.offender.lemon import Subject, Suspect, features, poisson_bound, survey
from trainmaster.core.health.offender.notes import note
from trainmaster.core.health.offender.record import Incident, IncidentKind
from trainmaster.core.health.words import SUSPECT, TRIAGE

LIMITS = OffenderLimits()
NOW = day(100)
FLEET = tuple(f"h{number}" for number in range(200))
SUBJECTS = tuple(Subject(host=HostId(name), pod=PodId(f"p{number // 40}")) for number, name in enumerate(FLEET))


def happened(yard: Yard, host: str, kind: IncidentKind, *times: float, **more: object) -> None:
    for at in times:
        incident = Incident(at=day(at), kind=kind, host=HostId(host), unit=str(more.get("unit", "host")))
        note(yard.history, incident.but(**{key: value for key, value in more.items() if key != "unit"}))


def failed(yard: Yard, host: str, *times: float, unit: str = slot(1)) -> None:
    """A fault as it comes in life: the job of many hosts dies, the host is lost, a case is opened and answered."""
    for number, at in enumerate(times):
        happened(yard, host, "job-failed", at, job=JobId(f"job-{host}-{number}"), nodes=64)
        happened(yard, host, "lost", at)
        yard.case(host, unit, day(at))
        happened(yard, host, "remedy", at + 0.1, unit=unit, outcome="done")


def fleet() -> Yard:
    yard = Yard()
    yard.in_service(*FLEET)
    return yard


def found(yard: Yard) -> dict[str, Suspect]:
    return {each.host: each for each in survey(yard.history, SUBJECTS, NOW, LIMITS) if each.answer is not None}


def test_a_lemon_is_found_and_explained() -> None:
    """1. One host of 200 fails every five days, some others once or twice. 2. It is found, alone, with what spoke."""
    yard = fleet()
    failed(yard, "h7", 75, 80, 85, 90, 95)
    for name in ("h20", "h30", "h40", "h50"):
        failed(yard, name, 81, 93, unit=slot(2))
    ((name, suspect),) = found(yard).items()
    assert name == "h7"
    assert suspect.answer == TRIAGE
    assert suspect.reason.token is Token.LEMON
    told = {each.feature: (each.value, each.limit, each.median) for each in suspect.measures}
    assert told["multi_node_node_fails"] == (5, 3, 0)
    assert "multi_node_node_fails 5 (limit 3, median of the fleet 0)" in suspect.reason.sentence
    assert suspect.reason.numbers["out_count"] == 5
    assert suspect.finding().unit == "host"


def _nothing(_: Yard) -> None:
    return


def _bad_week(yard: Yard) -> None:
    for name in FLEET:
        failed(yard, name, 90, 92, 94, 96)


def _bad_pod(yard: Yard) -> None:
    for name in FLEET[:40]:
        failed(yard, name, 90, 92, 94, 96)


def _repaired(yard: Yard) -> None:
    failed(yard, "h7", 75, 80, 85, 90)
    yard.history.repaired[HostId("h7")] = day(91)
    failed(yard, "h7", 95)


def _repaired_again_and_again(yard: Yard) -> None:
    for at in (75, 82, 89, 96):
        failed(yard, "h7", at, at + 2)
        happened(yard, "h7", "ticket", at + 2.5)
        yard.history.repaired[HostId("h7")] = day(at + 3)


def _new(yard: Yard) -> None:
    failed(yard, "h7", 88, 90, 92, 94)
    yard.history.first_seen[HostId("h7")] = day(85)


def _terrible_new(yard: Yard) -> None:
    failed(yard, "h7", *range(86, 100))
    happened(yard, "h7", "ticket", *range(86, 100))
    happened(yard, "h7", "job-failed", *range(86, 100), nodes=1)
    for number in range(14):
        happened(yard, "h7", "job-failed", 86 + number, nodes=1, job=JobId(f"alone-{number}"))
        happened(yard, "h7", "verdict", 86 + number, rule=f"xid-{number}", offence=False)
    yard.history.alone[HostId("h7")] = [(99, 20)]
    yard.history.first_seen[HostId("h7")] = day(85)


def _hardly_served(yard: Yard) -> None:
    failed(yard, "h7", 96, 97, 98, 99)
    yard.history.first_seen[HostId("h7")] = day(95)


def _unknown_age(yard: Yard) -> None:
    failed(yard, "h7", 75, 80, 85, 90)
    del yard.history.first_seen[HostId("h7")]


def _planned(yard: Yard) -> None:
    happened(yard, "h7", "remedy", *range(75, 100), offence=False)
    happened(yard, "h7", "job-failed", *range(75, 100), nodes=64, offence=False, job=JobId("job-1"))


def _shunned(yard: Yard) -> None:
    for number in range(50):
        happened(yard, "h7", "excluded", 80, job=JobId(f"job-{number}"))


def _long_ago(yard: Yard) -> None:
    failed(yard, "h7", 20, 30, 40, 50, 60, 70)


def _one_long_absence(yard: Yard) -> None:
    """Many entries of one fault: a job, a loss, remedies one after the other."""
    failed(yard, "h7", 90)
    happened(yard, "h7", "remedy", *(90 + each / 20 for each in range(20)), outcome="failed")


@pytest.mark.parametrize(
    ("story", "answer"),
    [
        (_nothing, None), (_bad_week, None), (_bad_pod, None), (_repaired, None), (_repaired_again_and_again, TRIAGE),
        (_new, SUSPECT), (_terrible_new, TRIAGE), (_hardly_served, None), (_unknown_age, None), (_planned, None),
        (_shunned, None), (_long_ago, None), (_one_long_absence, None),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else str(value),
)  # fmt: skip
def test_what_makes_no_lemon(story: Callable[[Yard], None], answer: object) -> None:
    yard = fleet()
    story(yard)
    told = found(yard)
    assert {name: each.answer for name, each in told.items()} == ({"h7": answer} if answer else {})


def test_a_lemon_in_a_bad_week() -> None:
    """1. All hosts fail four times in a week. 2. One fails every day for four weeks: it stands out all the same."""
    yard = fleet()
    _bad_week(yard)
    failed(yard, "h7", *(73 + each for each in range(27)), unit=slot(3))
    assert set(found(yard)) == {"h7"}


def test_programs_that_fail_on_one_host_and_nowhere_else() -> None:
    """1. Sixty small jobs run on each of six hosts. 2. On one of them 43 fail, each by itself. 3. It is near the
    limit by that alone, and found with a few faults more. (In the field: 183 faults over 43 programs, all on one.)"""
    yard = fleet()
    for name in FLEET[:6]:
        yard.history.alone[HostId(name)] = [(99, 60)]
    for number in range(43):
        happened(yard, "h3", "job-failed", 99, job=JobId(f"job-{number}"), nodes=1, offence=False)
    (suspect,) = survey(yard.history, SUBJECTS, NOW, LIMITS)
    assert (suspect.host, suspect.answer) == ("h3", None)
    failed(yard, "h3", 97, 98)
    assert set(found(yard)) == {"h3"}


def test_features() -> None:
    """The names of the paper, of one host."""
    yard = fleet()
    failed(yard, "h1", 80, 81)
    happened(yard, "h1", "verdict", 82, rule="xid-63", unit=slot(2))
    happened(yard, "h1", "ticket", 83)
    happened(yard, "h1", "excluded", 84, job=JobId("job-1"))
    happened(yard, "h1", "job-failed", 85, job=JobId("job-2"), nodes=1)
    yard.history.alone[HostId("h1")] = [(50, 7), (80, 4), (90, 6)]
    values = features(yard.history, HostId("h1"), NOW, LIMITS.window)
    assert values == {
        "multi_node_node_fails": 2, "single_node_node_fails": 1, "single_node_node_failure_rate": 0.1, "runs": 10,
        "out_count": 3, "tickets": 1, "xid_cnt": 2, "excl_jobid_count": 1, "unit_repeats": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mean", "chance", "bound"),
    [(0, 0.1, 1), (0.05, 1e-4, 3), (0.05, 1e-3, 3), (0.05, 2e-3, 2), (3, 1e-4, 12), (1000, 1e-4, 1159)],
)
def test_a_bound_of_chance(mean: float, chance: float, bound: int) -> None:
    assert poisson_bound(mean, chance) == bound


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 199), st.integers(73, 99), st.integers(1, 8)), max_size=60),
    st.tuples(st.integers(0, 199), st.integers(73, 99), st.integers(1, 8)),
)
def test_one_fault_more_never_helps(faults: list[tuple[int, int, int]], more: tuple[int, int, int]) -> None:
    """Any faults of any hosts: one more of a host does not lower its score, as long as the means stay."""
    yard = fleet()
    for number, at, unit in faults:
        failed(yard, f"h{number}", at, unit=slot(unit))
    host = f"h{more[0]}"
    before = {each.host: each.score for each in survey(yard.history, SUBJECTS, NOW, LIMITS)}
    failed(yard, host, more[1], unit=slot(more[2]))
    after = {each.host: each.score for each in survey(yard.history, SUBJECTS, NOW, LIMITS)}
    assert after.get(HostId(host), 0.0) >= before.get(HostId(host), 0.0) - 1e-9
    assert NOW - LIMITS.window == 72 * DAY
