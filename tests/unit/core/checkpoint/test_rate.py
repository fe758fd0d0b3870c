"""The rate of failures from short histories."""

import pytest

from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import DAY, MINUTE
from trainmaster.core.checkpoint.rate import PUBLISHED_PER_THOUSAND_HOST_DAYS, History, estimate


def history(failures: int, host_days: float) -> History:
    return History(failures=failures, host_time=round(host_days * DAY))


def test_without_a_history_it_is_the_published_rate() -> None:
    found = estimate(History())
    assert found.per_host_day * 1000 == pytest.approx(PUBLISHED_PER_THOUSAND_HOST_DAYS)
    assert found.source == "published"
    assert found.per_s(2_048) == pytest.approx(2_048 * 0.004 / 86_400)


@pytest.mark.parametrize("per_thousand", [2.34, 3.79, 6.5, 15.6, 23.7])
def test_twenty_failures_leave_little_of_what_was_published(per_thousand: float) -> None:
    """As many as the rate brings on average: the estimate is within a seventh."""
    found = estimate(history(20, 20_000 / per_thousand))
    assert found.per_host_day * 1000 == pytest.approx(per_thousand, rel=0.15)
    assert found.source == "measured"


def test_failures_that_come_a_thousand_times_too_fast_are_believed() -> None:
    """A trial of four hosts that loses one every minute: one failure says little, three show the order of it."""
    one, three = estimate(history(1, 4 / 1440)), estimate(history(3, 12 / 1440))
    assert one.per_host_day < 1
    assert 360 / 4 < three.per_host_day < 360 * 4
    assert three.source == "mixed"


def test_hosts_that_never_fail_lower_it() -> None:
    """Ever longer without a failure: ever lower, and never nothing."""
    rates = [estimate(history(0, days)).per_host_day for days in (0, 10, 100, 1_000, 10_000, 100_000)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0
    assert rates[-1] < rates[0] / 50


@pytest.mark.parametrize("per_thousand", [2.34, 3.79, 6.5])
def test_estimates_are_right_on_average(per_thousand: float) -> None:
    """500 histories until the twentieth failure: the mean is within a tenth, nine of ten within 45 %."""
    found = []
    for number in range(500):
        stream = Stream.of(number, "rate")
        days = sum(stream.exponential(1_000 / per_thousand) for _ in range(20))
        found.append(estimate(history(20, days)).per_host_day * 1000 / per_thousand)
    assert sum(found) / len(found) == pytest.approx(1, abs=0.1)
    assert sum(1 for each in found if 0.55 < each < 1.45) >= 450


def test_a_larger_job_fails_as_often_as_it_has_hosts() -> None:
    found = estimate(History(failures=12, host_time=3 * MINUTE))
    assert found.per_s(64) == pytest.approx(64 * found.per_s(1))
