"""The breaker: how much health may take out of a pool by itself.

Two limits, because each misses what the other sees. The *rate* (different hosts within a window: one that fails again
right after its repair is no spreading fault) stops a rule that has gone wild
in its first minutes; the *level* (hosts that are out by health now) stops the slow one that takes a host an hour for a
week. The level counts in numbers and in percent, and the larger counts: a percentage of a small pool rounds to nothing.
The denominator is the pool that could work (in service or out by health), not all hosts: a pool that is half absent has
less to give.

Only taking asks. A host that is out already takes nothing more, whatever its case does next, and nothing on the way
back is ever asked. When the limits refuse, the breaker is tripped until they allow again (a host came back, the window
moved on); a breaker that a person tripped waits for a person. Either way cases that wait are judged by what stands
then, not by what they were opened for.
"""

from trainmaster.core.base.ids import HostId, PoolName
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import Instant, after, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.health.book import Breaker
from trainmaster.core.health.conduct import PoolConduct
from trainmaster.core.step import Step


class Level(Value):
    """What a pool has, and what health has of it."""

    pool: PoolName
    in_service: int
    """Hosts that work, or that only planned work makes leave."""
    out: int
    """Hosts that health took out and that have not returned."""
    most: int
    """Hosts that may be out by health."""
    taken: int
    """Hosts taken within the window."""
    rate_hosts: int


def of(step: Step, pool: PoolName) -> Breaker:
    """The breaker of a pool, with what has left the window taken off."""
    return step.state.health.breakers.setdefault(pool, Breaker())


def level(step: Step, pool: PoolConduct) -> Level:
    """Counts the pool; looks at all of its hosts."""
    hosts, cases = step.state.hosts, step.state.health.cases
    by_health = {case.host for case in cases.values() if case.taken}
    members = step.derived.pools.members(pool.name)
    out = sum(1 for name in members if name in by_health)
    serving = (HostState.READY, HostState.DRAINING)
    in_service = sum(1 for name in members if name not in by_health and hosts[name].state in serving)
    percent = int(pool.level_percent * (in_service + out) / 100)
    breaker = step.state.health.breakers.get(pool.name)
    taken = _lately(step, pool, breaker) if breaker is not None else {}
    return Level(
        pool=pool.name,
        in_service=in_service,
        out=out,
        most=max(pool.level_hosts, percent),
        taken=len(taken),
        rate_hosts=pool.rate_hosts,
    )


def _lately(step: Step, pool: PoolConduct, breaker: Breaker) -> dict[HostId, Instant]:
    """What was taken within the window."""
    return {host: at for host, at in breaker.taken.items() if at + pool.rate_window > step.now}


def is_counted(step: Step, pool: PoolConduct, host: HostId) -> bool:
    """It was taken within the window: taking it again is no other host."""
    breaker = step.state.health.breakers.get(pool.name)
    return breaker is not None and host in _lately(step, pool, breaker)


def limit(step: Step, pool: PoolConduct, host: HostId | None = None) -> Reason | None:
    """Why one more host, or this one, may not be taken now; changes nothing."""
    breaker = step.state.health.breakers.get(pool.name)
    if breaker is not None and breaker.by is not None:
        assert breaker.reason is not None, pool.name
        return breaker.reason
    now = level(step, pool)
    counted = host is not None and is_counted(step, pool, host)
    if now.taken - counted >= pool.rate_hosts:
        window_s = in_seconds(pool.rate_window)
        sentence = f"health took {now.taken} hosts of {pool.name} within {window_s:g} s, and may take {pool.rate_hosts}"
        return because(Token.BREAKER_TRIPPED, sentence, taken=now.taken, most=pool.rate_hosts, window_s=window_s)
    if now.out + 1 > now.most:
        total = now.in_service + now.out
        sentence = f"{now.out} of {total} hosts of {pool.name} are out by health, and {now.most} may be"
        return because(Token.BREAKER_TRIPPED, sentence, out=now.out, most=now.most, hosts=total)
    return None


def refusal(step: Step, pool: PoolConduct, host: HostId | None = None) -> Reason | None:
    """Why one more host may not be taken now. Trips the breaker, and asks for the wake-up at which the rate allows
    again; or takes a trip back that the limits caused."""
    if host is not None and is_counted(step, pool, host) and limit(step, pool, host) is None:
        return None  # which says nothing of others
    breaker, reason = of(step, pool.name), limit(step, pool)
    if breaker.by is not None:
        return reason
    if reason is None:
        breaker.tripped_at = breaker.reason = None
        return None
    if breaker.tripped_at is None:
        breaker.tripped_at = step.now
    breaker.reason = reason
    if "window_s" in reason.numbers:
        within = sorted(_lately(step, pool, breaker).values())  # a restored engine knows them in another order
        step.wake(f"breaker/{pool.name}", after(within[-pool.rate_hosts], pool.rate_window))
    return reason


def take(step: Step, pool: PoolConduct, host: HostId) -> None:
    """A host of the pool is taken."""
    breaker = of(step, pool.name)
    lately = _lately(step, pool, breaker)
    lately.pop(host, None)
    breaker.taken = {**lately, host: step.now}
    assert len(breaker.taken) <= pool.rate_hosts, (host, breaker.taken)
