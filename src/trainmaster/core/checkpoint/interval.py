"""How often to save: the interval of work between two saves that wastes least.

Saves that come often cost stalls, saves that come rarely cost work that is done again after a failure; the sum of the
two is U-shaped. For failures without memory, M apart on average, a stall of D at each save and a restart of R after a
failure, the expected time of a stretch of work t and its save is

    T(t) = M e^(R/M) (e^((t + D)/M) - 1)

(Daly 2006), so t / T(t) of the time is work that lasts, and it is largest where 1 - t/M = e^(-(t + D)/M). R moves the
height of the curve, not the place of its top. The closed forms are approximations of that place, kept for comparison:

    Young        sqrt(2 D M)
    Daly, first  sqrt(2 D M) - D
    Daly         sqrt(2 D M) (1 + sqrt(D / 2M) / 3 + D / 18M) - D, or M where D >= 2M

A copy that is whole only `lag` after its stall (it is written while the job goes on) is worth exactly as much as one
that is whole at once, with a restart that takes `lag` longer: both factors are e^(lag/M). So the lag counts as restart
here, and as a bound of its own in `choice`: one save must be whole before the next begins.

All times are seconds, as floats: they are estimates, and a choice is rounded to steps before anybody acts on it.
"""

import math
from typing import Final

_ENOUGH: Final = 1e-12
_ROUNDS: Final = 100


def young_s(stall_s: float, mttf_s: float) -> float:
    """Young's interval (1974)."""
    _check(stall_s, mttf_s)
    return math.sqrt(2 * stall_s * mttf_s)


def daly_first_s(stall_s: float, mttf_s: float) -> float:
    """Daly's interval of first order (2006): Young's, less the stall; 0 where nothing is left."""
    return max(young_s(stall_s, mttf_s) - stall_s, 0.0)


def daly_s(stall_s: float, mttf_s: float) -> float:
    """Daly's interval of higher order (2006)."""
    root = young_s(stall_s, mttf_s)
    if stall_s >= 2 * mttf_s:
        return mttf_s
    return root * (1 + math.sqrt(stall_s / (2 * mttf_s)) / 3 + stall_s / (18 * mttf_s)) - stall_s


def exact_s(stall_s: float, mttf_s: float) -> float:
    """The interval that wastes least: M (1 + W(-e^(-1 - D/M))), by Newton's method from Young's, which lies above it.

    The function is concave and falls, so the steps come down to the root and never pass it."""
    _check(stall_s, mttf_s)
    ratio = stall_s / mttf_s
    place = min(math.sqrt(2 * ratio), 1.0)
    for _ in range(_ROUNDS):
        if place <= 0:
            return 0.0
        gap = -math.expm1(-(place + ratio)) - place
        step = gap / math.expm1(-(place + ratio))
        place += -step if step > 0 else 0.0
        if abs(step) <= _ENOUGH * place:
            break
    return place * mttf_s


def efficiency(interval_s: float, stall_s: float, mttf_s: float, restart_s: float) -> float:
    """The share of the time that is work which lasts, from 0 to 1. `restart_s`: from a failure to the next step, with
    the lag of a copy; failures during a restart begin it anew."""
    _check(stall_s, mttf_s)
    assert interval_s > 0, interval_s
    assert restart_s >= 0, restart_s
    exponent = (interval_s + stall_s + restart_s) / mttf_s
    if exponent > 700:
        return 0.0
    return interval_s / mttf_s * math.exp(-restart_s / mttf_s) / math.expm1((interval_s + stall_s) / mttf_s)


def linear_efficiency(interval_s: float, stall_s: float, mttf_s: float, restart_s: float) -> float:
    """The estimate of the reliability papers, which counts no failure during a stretch or a restart twice: right while
    less than a quarter of the time is lost, too low beyond."""
    _check(stall_s, mttf_s)
    return max(1 - (restart_s + interval_s / 2) / mttf_s, 0.0) / (1 + stall_s / interval_s)


def series_mttf_s(hosts: int, per_thousand_host_days: float) -> float:
    """The mean time between failures of hosts of which each one is needed."""
    assert hosts > 0, hosts
    assert per_thousand_host_days > 0, per_thousand_host_days
    return 86_400_000 / (hosts * per_thousand_host_days)


def _check(stall_s: float, mttf_s: float) -> None:
    assert stall_s >= 0, stall_s
    assert 0 < mttf_s < math.inf, mttf_s
