"""Would the seeds of health notice? Each row breaks one policy of health on purpose; a few seeds must fail, each for
the reason given.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.health_run import QuickRun
from trainmaster.core import engine
from trainmaster.core.base.ids import HostId
from trainmaster.core.events import HealthReported
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.health import breaker, cases, standing
from trainmaster.core.health.book import Case, Standing
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.step import Step

SEEDS = range(1, 13)
Break = Callable[[pytest.MonkeyPatch], None]


def the_breaker_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(breaker, "refusal", lambda step, pool, host=None: None)
    patch.setattr(breaker, "take", lambda step, pool, host: None)


def only_the_rate_is_limited(patch: pytest.MonkeyPatch) -> None:
    real = breaker.level

    def level(step: Step, pool: Any) -> Any:
        return real(step, pool).but(most=1_000)

    patch.setattr(breaker, "level", level)


def observed_pools_are_acted_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cases, "acts", lambda step, pool: pool is not None)


def the_hold_of_a_person_goes_with_that_of_health(patch: pytest.MonkeyPatch) -> None:
    real = cases.let_go

    def let_go(step: Step, case: Case, how: str, why: str) -> None:
        host = step.state.hosts[case.host]
        host.holds = tuple(hold for hold in host.holds if not hold.owner.startswith("person:"))
        real(step, case, how, why)

    patch.setattr(cases, "let_go", let_go)


def a_person_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cases, "_blocked", lambda host: None)


def hosts_return_as_they_are(patch: pytest.MonkeyPatch) -> None:
    """Without the tasks that the conduct demands."""
    real = hosts.bring_back

    def bring_back(step: Step, host: Host, owner: Any, demands: tuple[str, ...], why: str) -> None:
        real(step, host, owner, () if owner == HEALTH else demands, why)

    patch.setattr(hosts, "bring_back", bring_back)


def an_old_boot_is_believed(patch: pytest.MonkeyPatch) -> None:
    real = standing.reported

    def reported(step: Step, event: HealthReported) -> None:
        host = step.state.hosts[event.host]
        boot, host.boot = host.boot, event.boot
        real(step, event)
        host.boot = boot

    patch.setitem(engine._APPLY, HealthReported, reported)  # type: ignore[arg-type]


def old_findings_are_acted_on(patch: pytest.MonkeyPatch) -> None:
    """What a case was opened for counts, whether it stands still or not."""
    real = standing.bad

    def bad(step: Step, name: HostId) -> tuple[Standing, ...]:
        case = cases.of_host(step, name)
        proof = case.findings if case is not None else ()
        old = [
            Standing(probe="x", boot=step.state.hosts[name].boot, finding=one, since=step.now, last=step.now)
            for one in proof
        ]
        return real(step, name) or tuple(old)

    patch.setattr(standing, "bad", bad)


def tries_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cases, "tried", lambda step, case: {})


def nobody_looks_again(patch: pytest.MonkeyPatch) -> None:
    real = Step.wake
    patch.setattr(Step, "wake", lambda self, key, at: None if key.startswith("look/") else real(self, key, at))


def bad_hosts_count_as_planned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hosts, "take_out", hosts.hold)


def who_waits_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cases, "serve", lambda step, name: None)


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (the_breaker_is_not_asked, "2: "),
        (only_the_rate_is_limited, "are out by health"),
        (observed_pools_are_acted_on, "its pool is only observed"),
        (the_hold_of_a_person_goes_with_that_of_health, "7: the holds of"),
        (a_person_is_not_waited_for, "while a person holds"),
        (hosts_return_as_they_are, "did not prove"),
        (an_old_boot_is_believed, "which is over"),
        (old_findings_are_acted_on, "nothing bad stands against"),
        (tries_are_forgotten, "4: "),
        (nobody_looks_again, "6: "),
        (bad_hosts_count_as_planned, "does not count as failed"),
        (who_waits_is_forgotten, "6: "),
    ],
)
def test_a_broken_policy_of_health_is_noticed(monkeypatch: pytest.MonkeyPatch, breaks: Break, expected: str) -> None:
    """1. One policy is broken. 2. Within a dozen seeds one fails, with the words of the rule that was broken."""
    breaks(monkeypatch)
    noticed = []
    for seed in SEEDS:
        try:
            QuickRun(seed).play()
        except Exception as error:  # noqa: BLE001  (whatever it is, it was noticed)
            noticed.append(f"{type(error).__name__}: {error}")
            break
    assert noticed, "a dozen seeds passed with a broken policy"
    assert expected in noticed[0]
