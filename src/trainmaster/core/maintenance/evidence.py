"""Evidence about a version: two sequential tests, each a sum of log likelihood ratios that grows by one term an event.

Operations: an upgrade of a host succeeds (back and verified) or fails. The ratio compares p1, an unacceptable share of
failures, with p0, a tolerable one (sequential probability ratio test, A. Wald, *Sequential tests of statistical
hypotheses*, 1945): ln(p1/p0) a failure, ln((1-p1)/(1-p0)) a success.

Load: hosts fail under jobs whatever they carry, at a rate that nobody knows and that changes. So only *where* a failure
falls is asked (partial likelihood, D. R. Cox, 1972 and 1975): with n1 upgraded and n0 other hosts under load, on the
upgraded side with chance n1/(n1+n0) if the version is harmless, and theta*n1/(theta*n1+n0) if it multiplies the rate by
theta. The rate cancels: a hot day or a power dip hits both sides. Silence is no evidence: without failures it holds.

Error rates hold for the whole rollout, not for a stage, since there is one sum from the canary to the end. The ratio is
a martingale under the hypothesis in its denominator, so the chance that it *ever* reaches c is at most 1/c, whatever
the stages, pauses and cuts (Ville 1939; Wald's bounds are the same without that freedom). A version is *bad* when a
ratio ever reached 2/alpha: two tests, half of alpha each. It is *proven* when both ratios were once down to beta: a
version that is bad in either way must get past its own test, so beta needs no split. Overshoot lowers both rates.

A host counts once a rollout: by its first operation, and by its first failure under load on whichever side it is; then
it leaves n1 or n0. As hosts are drawn at random, a lemon is as likely here as there, and then silent: the load test is
a randomisation test that assumes no equal hosts. Once *a stage* was rejected: a lemon in the canary would count again
in each stage, and reject a harmless version by itself. Failures of idle hosts are noted and judge nothing: no exposure.

Sums are whole micro-nats. The logarithm is computed with integers (error below 1e-20), so that a replay has the same
bits on every machine. Limits: what is common to the upgraded (a visit that shakes cables, other versions that ride
along) is laid on the version; one that turns bad late must first outweigh its own good evidence.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import Value

NAT: Final = 1_000_000
"""Micro-nats in one unit of a natural logarithm."""

_BITS: Final = 96


class Criteria(Value):
    """What is to be told from what, and how surely."""

    alpha: float = 0.05
    """Chance that a harmless version is rejected, over the whole rollout; at most."""
    beta: float = 0.05
    """Chance that a bad version is held for proven, over the whole rollout; at most."""
    theta: float = 3.0
    """A version is bad under load if it multiplies the rate of failures by this."""
    tolerable: float = 0.02
    """Share of operations that may fail (p0)."""
    unacceptable: float = 0.15
    """Share of failing operations that makes a version bad (p1)."""


class LogRatio(msgspec.Struct, kw_only=True):
    """The sum of one test, in micro-nats. A crossing counts even if the sum comes back, hence the two extremes."""

    now: int = 0
    peak: int = 0
    trough: int = 0

    def add(self, term: int) -> None:
        self.now += term
        self.peak = max(self.peak, self.now)
        self.trough = min(self.trough, self.now)


class Evidence(msgspec.Struct, kw_only=True):
    """All that is known about the version of a rollout. Exposure is in host-microseconds under a job."""

    operations: LogRatio = msgspec.field(default_factory=LogRatio)
    load: LogRatio = msgspec.field(default_factory=LogRatio)
    operated: set[HostId] = set()
    """Hosts whose first operation has ended."""
    operations_failed: int = 0
    counted: set[HostId] = set()
    """Hosts that have failed under load since the rollout began; they are in neither n1 nor n0 any more."""
    failures_upgraded: int = 0
    failures_others: int = 0
    failures_idle: int = 0
    """Failures of hosts without a job."""
    failures_repeated: int = 0
    """Failures of hosts that were counted before."""
    exposure_upgraded: int = 0
    exposure_others: int = 0
    exposure_stage: int = 0
    """Of all upgraded hosts since the present stage began."""


def criteria_problems(criteria: Criteria) -> list[str]:
    """Sentences about criteria that cannot be tested; empty if they can."""
    found = []
    for name, value in (("alpha", criteria.alpha), ("beta", criteria.beta)):
        if not 0 < value <= 0.5:
            found.append(f"{name} is {value:g}; it is a chance above 0 and at most 0.5")
    if not 1 < criteria.theta <= 1000:
        found.append(f"theta is {criteria.theta:g}; it is a factor above 1 and at most 1000")
    if not 0 < criteria.tolerable < criteria.unacceptable < 1:
        shares = f"{criteria.tolerable:g} and {criteria.unacceptable:g}"
        found.append(f"tolerable and unacceptable are {shares}; they are shares with 0 < tolerable < unacceptable < 1")
    return found


def operation_ended(evidence: Evidence, criteria: Criteria, host: HostId, succeeded: bool) -> None:
    """The upgrade of a host ended: it is back and verified, or not. Only its first operation counts."""
    if host in evidence.operated:
        return
    evidence.operated.add(host)
    evidence.operations_failed += not succeeded
    evidence.operations.add(operation_term(criteria, succeeded))


def host_failed(
    evidence: Evidence, criteria: Criteria, host: HostId, *, upgraded: bool, under_load: bool, n1: int, n0: int
) -> None:
    """A host failed by itself (not by its upgrade: that is an operation that failed).

    `n1` and `n0` are the upgraded and the other hosts under load at that instant, the failed one included, hosts in
    `evidence.counted` left out. They may be those of the host's own stratum (its pod), if rates differ between strata.
    Of failures at one instant the order must not depend on the side.
    """
    if host in evidence.counted:
        evidence.failures_repeated += 1
    elif not under_load:
        evidence.failures_idle += 1
    else:
        evidence.counted.add(host)
        evidence.failures_upgraded += upgraded
        evidence.failures_others += not upgraded
        evidence.load.add(load_term(criteria, upgraded, n1, n0))


def exposed(evidence: Evidence, *, upgraded: int, others: int) -> None:
    """Hosts were under load for so long: host-microseconds of each side since the last call."""
    assert upgraded >= 0, upgraded
    assert others >= 0, others
    evidence.exposure_upgraded += upgraded
    evidence.exposure_stage += upgraded
    evidence.exposure_others += others


def operation_term(criteria: Criteria, succeeded: bool) -> int:
    """What one operation adds, in micro-nats: negative if it succeeded."""
    return _operation_term(criteria.tolerable, criteria.unacceptable, succeeded)


def load_term(criteria: Criteria, upgraded: bool, n1: int, n0: int) -> int:
    """What one failure under load adds, in micro-nats. Nothing where one side is empty: there is no comparison."""
    assert (n1 if upgraded else n0) >= 1, f"the failed host is missing from its own side: n1 {n1}, n0 {n0}"
    assert min(n1, n0) >= 0, (n1, n0)
    theta = exact(criteria.theta)
    chance = Fraction(n1 + n0) / (theta * n1 + n0)
    return micro_ln(theta * chance if upgraded else chance)


@lru_cache(maxsize=64)
def reject_bound(criteria: Criteria) -> int:
    """A version is bad once either ratio has reached this, in micro-nats."""
    return micro_ln(2 / exact(criteria.alpha))


@lru_cache(maxsize=64)
def proof_bound(criteria: Criteria) -> int:
    """A version is proven once both ratios were down at this, in micro-nats; negative."""
    return micro_ln(exact(criteria.beta))


def doubt_bound(criteria: Criteria) -> int:
    """Half of the way to a rejection: above it nothing goes on, though nothing is decided."""
    return reject_bound(criteria) // 2


def exact(value: float) -> Fraction:
    """The decimal fraction that was written, not the binary one next to it: 0.02 is 1/50."""
    return Fraction(str(value))


def harmless_drift(criteria: Criteria, share: float) -> float:
    """Nats by which a failure anywhere lowers the load ratio of a harmless version, if `share` of hosts carry it."""
    assert 0 <= share <= 1, share
    upgraded = micro_ln(exact(criteria.theta)) / NAT
    return micro_ln(1 + (exact(criteria.theta) - 1) * exact(share)) / NAT - share * upgraded


@lru_cache(maxsize=256)
def _operation_term(tolerable: float, unacceptable: float, succeeded: bool) -> int:
    if succeeded:
        return micro_ln((1 - exact(unacceptable)) / (1 - exact(tolerable)))
    return micro_ln(exact(unacceptable) / exact(tolerable))


@lru_cache(maxsize=4096)
def micro_ln(ratio: Fraction) -> int:
    """The natural logarithm in micro-nats, rounded to the nearest. Integers only: no C library has a say in it."""
    assert ratio > 0, ratio
    return -_micro_ln(1 / ratio) if ratio < 1 else _micro_ln(ratio)


def _micro_ln(ratio: Fraction) -> int:
    """For ratios from 1: halved until it lies below 2, then the series of 2 artanh((x-1)/(x+1))."""
    p, q = ratio.numerator, ratio.denominator
    halvings = 0
    while p >= 2 * q:
        q, halvings = 2 * q, halvings + 1
    scaled = _twice_artanh(p - q, p + q) + halvings * _twice_artanh(1, 3)
    return (scaled * NAT + (1 << (_BITS - 1))) >> _BITS


def _twice_artanh(p: int, q: int) -> int:
    """2 artanh(p/q) in units of 2**-96, for 0 <= p/q <= 1/3."""
    assert 0 <= 3 * p <= q, (p, q)
    power = (p << _BITS) // q
    square = (power * power) >> _BITS
    total, odd = 0, 1
    while power:
        total += power // odd
        power, odd = (power * square) >> _BITS, odd + 2
    return 2 * total
