"""How much health may take out: rate, level, denominators, and the ways in which a breaker is tripped and reset."""

import pytest
from tests.unit.core.health.health_world import POOL, HealthWorld, finding
from tests.unit.core.maintenance.planner_world import ME

from trainmaster.core.base.ids import HostId, Owner
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, MINUTE
from trainmaster.core.effects import RunSteps
from trainmaster.core.engine import Engine
from trainmaster.core.events import BreakerSet, DrainRequested, HealthReleased
from trainmaster.core.health import asked, breaker, cases
from trainmaster.core.health.book import CaseState
from trainmaster.core.health.words import Remedy


def taken(world: HealthWorld) -> list[str]:
    return sorted(case.host for case in world.engine.state.health.cases.values() if case.taken)


def waiting(world: HealthWorld) -> list[str]:
    return sorted(case.host for case in world.engine.state.health.cases.values() if case.state is CaseState.WAITING)


def fail(world: HealthWorld, *hosts: str, remedy: Remedy = Remedy.TRIAGE) -> None:
    for host in hosts:
        world.report(host, finding(remedy), probe="nvml")


def release(world: HealthWorld, *hosts: str) -> None:
    names = tuple(map(HostId, hosts))
    world.submit(HealthReleased(at=world.now, hosts=names, by=ME, reason="repaired"))


def set_breaker(world: HealthWorld, tripped: bool) -> None:
    world.submit(BreakerSet(at=world.now, pool=POOL, tripped=tripped, by=Owner("person:kim"), reason="a bad rule"))


@pytest.mark.parametrize(
    ("hosts", "level_hosts", "level_percent", "out"),
    [(10, 1, 2.0, 1), (10, 3, 2.0, 3), (10, 1, 20.0, 2), (10, 1, 39.0, 3), (6, 1, 2.0, 1), (20, 2, 25.0, 5)],
)
def test_the_level_counts_in_numbers_and_percent(hosts: int, level_hosts: int, level_percent: float, out: int) -> None:
    """1. All hosts of a pool fail one after the other. 2. So many are taken: the larger of both limits."""
    world = HealthWorld(hosts=hosts, rate_hosts=100, level_hosts=level_hosts, level_percent=level_percent)
    fail(world, *world.names)
    assert len(taken(world)) == out
    assert len(waiting(world)) == hosts - out


def test_the_denominator_is_what_could_work() -> None:
    """1. Ten hosts, half of them lost or held by people; 40 percent may be out. 2. Two are taken, and not four."""
    world = HealthWorld(hosts=10, rate_hosts=100, level_hosts=1, level_percent=40.0)
    names = tuple(world.names[:5])
    world.submit(DrainRequested(at=world.now, hosts=names, reason="look", by=ME))
    fail(world, *world.names[5:])
    assert len(taken(world)) == 2
    pool = world.conduct.pools[0]
    level = breaker.level(world.engine.glance(world.now), pool)
    assert (level.in_service, level.out, level.most) == (3, 2, 2)


def test_the_rate_frees_when_its_window_has_moved_on() -> None:
    """1. Two an hour. 2. Three fail: the third waits, with numbers. 3. An hour after the first it is taken."""
    world = HealthWorld(rate_hosts=2, level_hosts=8)
    fail(world, "h0", "h1", "h2")
    assert taken(world) == ["h0", "h1"]
    case = world.case("h2")
    assert case is not None
    assert case.reason.token is Token.BREAKER_TRIPPED
    assert case.reason.numbers["most"] == 2
    world.pass_time(59 * MINUTE)
    assert taken(world) == ["h0", "h1"]
    world.pass_time(2 * MINUTE)
    assert taken(world) == ["h0", "h1", "h2"]


def test_a_server_that_was_restarted_waits_as_long() -> None:
    """1. Two an hour; h5 is taken first, ten minutes later h1. 2. The server starts anew, and knows both by name. 3. A
    third fails: it waits for the hour of the one that was taken first."""
    world = HealthWorld(rate_hosts=2, level_hosts=8)
    fail(world, "h5")
    world.pass_time(10 * MINUTE)
    fail(world, "h1")
    world.engine = Engine.restore(world.engine.snapshot())
    fail(world, "h3")
    assert taken(world) == ["h1", "h5"]
    world.pass_time(51 * MINUTE)
    assert taken(world) == ["h1", "h3", "h5"]


def test_who_recovered_meanwhile_is_not_taken() -> None:
    """1. Two hosts wait for the rate; one recovers. 2. When the window has moved on, the other one alone is taken."""
    world = HealthWorld(rate_hosts=1, level_hosts=8)
    fail(world, "h0", "h1", "h2")
    world.gone("h1", finding(Remedy.TRIAGE))
    assert world.case("h1") is None
    world.pass_time(61 * MINUTE)
    assert taken(world) == ["h0", "h2"]


def test_a_host_that_returns_makes_room() -> None:
    """1. One may be out; the second waits. 2. The first is repaired. 3. The second is taken at once, oldest first."""
    world = HealthWorld(rate_hosts=100, level_hosts=1)
    fail(world, "h0", "h1", "h2")
    assert (taken(world), waiting(world)) == (["h0"], ["h1", "h2"])
    release(world, "h0")
    assert (taken(world), waiting(world)) == (["h1"], ["h2"])
    assert world.state("h0") == "ready"


def test_the_way_back_is_never_asked() -> None:
    """1. A host is out for its remedy. 2. A person trips the breaker. 3. The host is repaired and returns all the
    same."""
    world = HealthWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.report("h3", finding())
    set_breaker(world, tripped=True)
    world.hold = lambda effect: False
    world.let()
    assert world.state("h3") == "ready"


def test_a_host_that_is_out_already_takes_nothing() -> None:
    """1. The breaker is tripped. 2. A host that a person holds is found bad: health holds it too. 3. One that is out by
    health climbs on."""
    world = HealthWorld()
    set_breaker(world, tripped=True)
    world.submit(DrainRequested(at=world.now, hosts=(HostId("h1"),), reason="look", by=ME))
    fail(world, "h1", "h2")
    assert taken(world) == ["h1"]
    assert waiting(world) == ["h1", "h2"]
    assert world.engine.state.health.breakers[POOL].taken == {}


def test_a_breaker_that_a_person_tripped_waits_for_a_person() -> None:
    """1. Tripped by hand. 2. A host fails: it waits, and the reason names who. 3. Days pass. 4. Reset: what holds still
    is taken, by the limits."""
    world = HealthWorld(rate_hosts=1, level_hosts=8)
    set_breaker(world, tripped=True)
    fail(world, "h0", "h1", "h2")
    case = world.case("h0")
    assert case is not None
    assert case.reason.sentence == "tripped by person:kim: a bad rule"
    world.pass_time(48 * HOUR)
    assert taken(world) == []
    world.gone("h0", finding(Remedy.TRIAGE))
    set_breaker(world, tripped=False)
    assert taken(world) == ["h1"]
    assert waiting(world) == ["h2"]


def test_a_reset_forgets_the_rate_and_not_the_level() -> None:
    """1. The rate is spent. 2. Reset: the next is taken. 3. The level is what is: a reset changes nothing."""
    world = HealthWorld(rate_hosts=1, level_hosts=2)
    fail(world, "h0", "h1", "h2")
    set_breaker(world, tripped=False)
    assert taken(world) == ["h0", "h1"]
    set_breaker(world, tripped=False)
    assert taken(world) == ["h0", "h1"]


def test_who_came_first_is_served_first() -> None:
    """1. The level is spent by one; two wait. 2. There is room for one, and a third fails at that moment. 3. The oldest
    is taken."""
    world = HealthWorld(rate_hosts=100, level_hosts=1)
    fail(world, "h0", "h5", "h1")
    world.declare(pools=(world.conduct.pools[0].but(level_hosts=2),))
    fail(world, "h2")
    assert taken(world) == ["h0", "h5"]


def test_other_limits_count_at_once() -> None:
    """1. A breaker is tripped. 2. The limits are declared wider. 3. Who waited is taken."""
    world = HealthWorld(rate_hosts=1, level_hosts=1)
    fail(world, "h0", "h1")
    world.declare(pools=(world.conduct.pools[0].but(rate_hosts=5, level_hosts=5),))
    assert taken(world) == ["h0", "h1"]


def test_a_host_that_is_taken_again_counts_once() -> None:
    """1. Two hosts an hour; one is repaired and fails again, and again: it climbs on, and uses up nothing. 2. A second
    host is taken; a third waits, and hears how many. 3. The first fails again: it is not held up behind the third."""
    world = HealthWorld(rate_hosts=2, level_hosts=8)
    for _ in range(3):
        fail(world, "h0")
        assert taken(world) == ["h0"]
        release(world, "h0")
    fail(world, "h1", "h2", "h3")
    assert (taken(world), waiting(world)) == (["h1"], ["h2", "h3"])
    case = world.case("h2")
    assert case is not None
    assert "health took 2 hosts" in case.reason.sentence
    fail(world, "h0")
    assert (taken(world), waiting(world)) == (["h0", "h1"], ["h2", "h3"])
    assert asked.breaker_text(world.engine.glance(world.now), world.conduct.pools[0], tripped=False).endswith(
        "hosts that wait for it: 2; hosts taken lately that count no longer: 2"
    )


def test_a_promotion_says_that_the_breaker_holds() -> None:
    """1. The breaker of an observed pool is tripped. 2. The plan of a promotion says so, and why."""
    world = HealthWorld(act=False)
    pool = world.conduct.pools[0]
    fail(world, "h0")
    assert "tripped" not in asked.mode_text(world.engine.glance(world.now), pool, "act")
    set_breaker(world, tripped=True)
    text = asked.mode_text(world.engine.glance(world.now), pool, "act")
    assert text.endswith("so none is taken now: tripped by person:kim: a bad rule")


def test_one_that_is_before_is_told_as_one() -> None:
    """1. The level is spent, one host waits. 2. Room comes and at that moment another fails: it hears of the one."""
    world = HealthWorld(rate_hosts=100, level_hosts=1)
    fail(world, "h0", "h1", "h2")
    case = world.case("h2")
    assert case is not None
    step, pool = world.engine.glance(world.now), world.conduct.pools[0]
    case.state = CaseState.OBSERVED
    told = cases._others_first(step, case, pool)
    assert told is not None
    assert told.sentence == "1 case waits for the breaker of all before it"
