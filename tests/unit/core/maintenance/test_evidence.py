"""The two tests of a version, term by term."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import decode, encode
from trainmaster.core.maintenance.evidence import (
    NAT,
    Criteria,
    Evidence,
    criteria_problems,
    exact,
    exposed,
    harmless_drift,
    host_failed,
    load_term,
    micro_ln,
    operation_ended,
    operation_term,
    proof_bound,
    reject_bound,
)

CRITERIA = Criteria()
SIDES = st.tuples(st.integers(0, 7000), st.integers(0, 7000)).filter(lambda sides: sum(sides) > 0)


def host(number: int) -> HostId:
    return HostId(f"h{number}")


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_the_logarithm_is_that_of_the_library(p: int, q: int) -> None:
    """1. Within the rounding to micro-nats. 2. A reciprocal has the same number with the other sign."""
    mine = micro_ln(Fraction(p, q))
    assert abs(mine - math.log(Fraction(p, q)) * NAT) <= 0.51
    assert micro_ln(Fraction(q, p)) == -mine


def test_terms_of_the_default_criteria() -> None:
    """By hand: ln 7.5, ln(0.85/0.98), ln 40, ln 0.05; a failure among 100 of 1000 hosts under load: ln 3 - ln 1.2."""
    assert operation_term(CRITERIA, False) == 2_014_903
    assert operation_term(CRITERIA, True) == -142_316
    assert reject_bound(CRITERIA) == 3_688_879
    assert proof_bound(CRITERIA) == -2_995_732
    assert load_term(CRITERIA, True, 100, 900) == 916_291
    assert load_term(CRITERIA, False, 100, 900) == -182_322


@given(SIDES, st.sampled_from([1.5, 2.0, 3.0, 10.0]))
def test_the_ratio_of_a_harmless_version_is_fair(sides: tuple[int, int], theta: float) -> None:
    """1. A failure falls on a side by the number of its hosts. 2. Then the expected ratio is 1 after it: this alone
    makes the error rate hold over all stages. 3. Under a rate theta times as high that of its reciprocal is."""
    n1, n0 = sides
    criteria = Criteria(theta=theta)
    fair = wrong = 0.0
    for upgraded, hosts, weight in ((True, n1, theta), (False, n0, 1.0)):
        if hosts:
            ratio = math.exp(load_term(criteria, upgraded, n1, n0) / NAT)
            fair += hosts / (n1 + n0) * ratio
            wrong += weight * hosts / (theta * n1 + n0) / ratio
    assert fair == pytest.approx(1, abs=1e-5)
    assert wrong == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("upgraded", "n1", "n0"), [(True, 50, 0), (False, 0, 50)])
def test_one_side_alone_says_nothing(upgraded: bool, n1: int, n0: int) -> None:
    assert load_term(CRITERIA, upgraded, n1, n0) == 0


def test_a_failed_host_belongs_to_its_side() -> None:
    with pytest.raises(AssertionError, match="missing from its own side"):
        load_term(CRITERIA, True, 0, 50)


def test_a_lemon_counts_once() -> None:
    """1. A host fails ten times under load. 2. One failure counts, nine are repeated. 3. The version stands."""
    evidence = Evidence()
    for _ in range(10):
        host_failed(evidence, CRITERIA, host(1), upgraded=True, under_load=True, n1=30, n0=3000)
    assert (evidence.failures_upgraded, evidence.failures_repeated) == (1, 9)
    assert evidence.load.now == load_term(CRITERIA, True, 30, 3000) < reject_bound(CRITERIA)


def test_a_failure_without_a_job_judges_nothing() -> None:
    """1. An idle host fails. 2. It is noted only, and its first failure under load counts later."""
    evidence = Evidence()
    host_failed(evidence, CRITERIA, host(1), upgraded=True, under_load=False, n1=30, n0=3000)
    assert (evidence.failures_idle, evidence.load.now, evidence.counted) == (1, 0, set())
    host_failed(evidence, CRITERIA, host(1), upgraded=True, under_load=True, n1=30, n0=3000)
    assert evidence.failures_upgraded == 1


def test_the_first_operation_of_a_host_counts() -> None:
    """1. It fails. 2. A second try succeeds, and makes nothing good."""
    evidence = Evidence()
    operation_ended(evidence, CRITERIA, host(1), succeeded=False)
    operation_ended(evidence, CRITERIA, host(1), succeeded=True)
    assert (len(evidence.operated), evidence.operations_failed) == (1, 1)
    assert evidence.operations.now == operation_term(CRITERIA, False)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=40), st.randoms(use_true_random=False))
def test_replay_is_exact(failures: list[tuple[bool, int]], chance: object) -> None:
    """1. Failures add up to the same sum in any order, to the bit. 2. The extremes are those of the way taken.
    3. Evidence survives a snapshot, and the same evidence has the same bytes."""

    def after(order: list[int]) -> Evidence:
        evidence = Evidence()
        for number in order:
            upgraded, n1 = failures[number]
            host_failed(evidence, CRITERIA, host(number), upgraded=upgraded, under_load=True, n1=n1, n0=3000)
        return evidence

    order = list(range(len(failures)))
    forth, back = after(order), after(order[::-1])
    assert forth.load.now == back.load.now
    assert forth.load.trough <= min(0, forth.load.now) <= max(0, forth.load.now) <= forth.load.peak
    assert decode(encode(forth), Evidence) == forth
    assert encode(decode(encode(forth), Evidence)) == encode(after(order))


def test_evidence_of_two_rollouts_is_apart() -> None:
    one, other = Evidence(), Evidence()
    operation_ended(one, CRITERIA, host(1), succeeded=False)
    exposed(one, upgraded=5, others=7)
    assert other == Evidence()
    assert (one.exposure_stage, one.exposure_upgraded, one.exposure_others) == (5, 5, 7)


def test_a_crossing_counts_though_the_sum_comes_back() -> None:
    """1. Two hosts in a row do not come back. 2. Successes bring the sum down again. 3. The peak stays beyond."""
    evidence = Evidence()
    for number in range(60):
        operation_ended(evidence, CRITERIA, host(number), succeeded=number >= 2)
    assert evidence.operations.now < 0 < reject_bound(CRITERIA) <= evidence.operations.peak


@pytest.mark.parametrize("share", [0.01, 0.08, 0.5])
def test_the_drift_is_the_mean_of_the_terms(share: float) -> None:
    n1, n0 = round(share * 10_000), round((1 - share) * 10_000)
    mean = share * load_term(CRITERIA, True, n1, n0) + (1 - share) * load_term(CRITERIA, False, n1, n0)
    assert harmless_drift(CRITERIA, share) == pytest.approx(-mean / NAT, abs=2e-6)


@pytest.mark.parametrize(
    ("criteria", "text"),
    [
        (Criteria(), ""),
        (Criteria(alpha=0), "alpha is 0; it is a chance above 0 and at most 0.5"),
        (Criteria(beta=0.6), "beta is 0.6; it is a chance above 0 and at most 0.5"),
        (Criteria(theta=1), "theta is 1; it is a factor above 1 and at most 1000"),
        (Criteria(tolerable=0.2), "tolerable and unacceptable are 0.2 and 0.15; they are shares"),
        (Criteria(theta=float("nan")), "theta is nan"),
    ],
)
def test_criteria_that_cannot_be(criteria: Criteria, text: str) -> None:
    problems = criteria_problems(criteria)
    assert len(problems) == (text != "")
    assert all(problem.startswith(text) for problem in problems)


def test_a_decimal_is_what_was_written() -> None:
    assert exact(0.02) == Fraction(1, 50)
    assert exact(3.0) == 3
    assert exact(1e-05) == Fraction(1, 100_000)
