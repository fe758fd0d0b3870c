"""What people ask about the health of hosts, planned before it becomes an event. A plan changes nothing."""

from collections.abc import Iterable

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId, RmaId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.commands import HostPlanItem, plan_drain
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.health import breaker
from trainmaster.core.health.book import Case, CaseState, Rma, Standing
from trainmaster.core.health.conduct import HEALTH, PoolConduct
from trainmaster.core.health.events import Mode, RmaOutcome
from trainmaster.core.health.judged import judge, ordered
from trainmaster.core.health.offender.identity import part_in
from trainmaster.core.health.offender.rma import open_of
from trainmaster.core.health.returns import open_at
from trainmaster.core.health.words import Verdict
from trainmaster.core.state import ClusterState
from trainmaster.core.step import Step


def cases_of(state: ClusterState, host: HostId) -> list[Case]:
    """Its open cases, oldest first."""
    found = [case for case in state.health.cases.values() if case.host == host]
    return sorted(found, key=lambda case: case.opened_at)


def plan_acknowledge(state: ClusterState, hosts: Iterable[HostId]) -> tuple[HostPlanItem, ...]:
    """Whom there is something to take on from."""
    return tuple(_acknowledge(state, name) for name in hosts)


def _acknowledge(state: ClusterState, name: HostId) -> HostPlanItem:
    standings = [one for one in ordered(state.health, name) if one.finding.verdict is not Verdict.OK]
    if not standings:
        return HostPlanItem(host=name, changed=False, sentence="nothing stands against it")
    first = standings[0]
    more = f" and {len(standings) - 1} more" if len(standings) > 1 else ""
    sentence = f"{first.finding.verdict}: {first.finding.unit}, {first.finding.summary}{more}"
    return HostPlanItem(host=name, changed=True, sentence=sentence)


def plan_release(state: ClusterState, hosts: Iterable[HostId]) -> tuple[HostPlanItem, ...]:
    """What a release closes on each host, and who else keeps it out."""
    return tuple(_release(state, name) for name in hosts)


def _release(state: ClusterState, name: HostId) -> HostPlanItem:
    host, cases = state.hosts[name], cases_of(state, name)
    standings = state.health.standings.get(name, ())
    held = host.hold_of(HEALTH) is not None
    if not cases and not standings and not held:
        found = judge(state.health, host)
        return HostPlanItem(host=name, changed=False, sentence=f"nothing to close: {found.sentence}")
    told: list[str] = [case.id for case in cases] or [f"{len(standings)} that stand against it"]
    others = [f"{hold.owner}: {hold.reason}" for hold in host.holds if hold.owner != HEALTH]
    away = "".join(f"; {one.id} ({one.unit}) stays open until it is closed" for one in open_at(state.health, name))
    sentence = f"closes {', '.join(told)}{away}"
    if others:
        return HostPlanItem(
            host=name, changed=True, refused=True, sentence=f"{sentence}; it stays out, held by {'; '.join(others)}"
        )
    back = "returns through verification" if held else "stays as it is"
    return HostPlanItem(host=name, changed=True, sentence=f"{sentence}; {back}", gpus=host.spec.gpus)


def mode_text(step: Step, pool: PoolConduct, mode: Mode) -> str:
    """What another mode means for the cases of a pool now."""
    found = [case for case in step.state.health.cases.values() if step.derived.pools.of(_host(step, case).spec) == pool]
    if mode == "observe":
        running = sum(case.state is CaseState.REMEDY for case in found)
        return f"health only observes {pool.name}; remedies that go on to their end: {running}"
    bad = sorted((case for case in found if case.state is CaseState.OBSERVED), key=Case.number)
    names = f": {fold(case.host for case in bad)}" if bad else ""
    told = f"health acts on {pool.name}; hosts that it takes up at once, as the breaker allows: {len(bad)}{names}"
    return told + _held_back(step, pool)


def _held_back(step: Step, pool: PoolConduct) -> str:
    """That the breaker lets none of them go now."""
    reason = breaker.limit(step, pool)
    return f"; the breaker of {pool.name} is tripped, so none is taken now: {reason.sentence}" if reason else ""


def breaker_text(step: Step, pool: PoolConduct, tripped: bool) -> str:
    """What a breaker that is tripped or reset by hand means now."""
    if tripped:
        return f"health takes no further host of {pool.name} out; what is out returns as before"
    found = step.state.health.cases.values()
    waiting = [case for case in found if case.state is CaseState.WAITING and not case.taken]
    mine = [case.host for case in waiting if step.derived.pools.of(_host(step, case).spec) == pool]
    taken = breaker.level(step, pool).taken
    anew = f"; hosts taken lately that count no longer: {taken}" if taken else ""
    return f"health goes on with {pool.name}; hosts that wait for it: {len(mine)}{anew}"


def _host(step: Step, case: Case) -> Host:
    return step.state.hosts[case.host]


# Parts that go back


def check_open(state: ClusterState, host: HostId, unit: str) -> Reason | None:
    """Why this can't be sent back; None if it can."""
    known = open_of(state.health, host, unit)
    if known is not None:
        sentence = f"{unit} of {host} goes back already, as {known.id}"
        return because(Token.RMA_OPEN, sentence, rma=known.id)
    parts = [one.part.slot for one in state.health.history.tenancies.get(host, ()) if one.until is None]
    if unit == "host" or unit in parts or not parts:
        return None
    slots = ", ".join(sorted(parts)[:16])
    return because(Token.NO_SUCH_UNIT, f"{host} has no {unit}; its agent sees: host, {slots}", units=len(parts))


def open_text(state: ClusterState, host: HostId, unit: str) -> str:
    """What would be sent back, and what is known against it."""
    part = part_in(state.health.history, host, unit)
    what = f"{part.model} {part.serial}".strip() if part is not None else "serial unknown"
    against = [one for one in state.health.standings.get(host, ()) if unit in (one.finding.unit, "host")]
    parts = [one for one in state.health.history.tenancies.get(host, ()) if one.until is None]
    unsure = "" if parts or unit == "host" else f"; its parts are not known, so nobody can tell whether it has a {unit}"
    sentence = f"{unit} of {host} ({what or 'serial unknown'}) goes back{unsure}"
    return f"{sentence}; findings that stand against it: {len(against)}; {_holds(state, host)} until that is closed"


def _holds(state: ClusterState, host: HostId) -> str:
    """What a return does to its host."""
    if state.hosts[host].hold_of(HEALTH) is not None:
        return f"{host} stays held by {HEALTH}"
    (item,) = plan_drain(state, [host], HEALTH)
    return f"{host} is taken out ({item.sentence}) and held by {HEALTH}"


def check_close(state: ClusterState, name: RmaId) -> Reason | None:
    """Why a return can't be closed; None if it can."""
    found = state.health.rmas[name]
    if found.closed_at is None:
        return None
    return because(Token.RMA_CLOSED, f"{name} was closed as {found.outcome}: {found.closed_why}")


def close_text(state: ClusterState, name: RmaId, outcome: RmaOutcome) -> str:
    """What closing it means."""
    found = state.health.rmas[name]
    seen = f"; {found.successor} is in its slot now" if found.successor else "; no other part was seen in its slot"
    return f"{found.unit} of {found.host} is {outcome}{seen if outcome == 'replaced' else ''}; {_after(state, found)}"


def _after(state: ClusterState, one: Rma) -> str:
    """What becomes of the host of a return that is closed."""
    host, case = state.hosts[one.host], state.health.case_of.get(one.host)
    if host.hold_of(HEALTH) is None or case is None:
        return f"{host.id} is not held for it"
    others = [each.id for each in open_at(state.health, host.id) if each.id != one.id]
    if others:
        return f"{host.id} stays held for {', '.join(others)}"
    left = [each.finding for each in ordered(state.health, host.id) if _stays(each, one)]
    if left:
        return f"{host.id} stays held: {left[0].unit} is bad, {left[0].summary}"
    holds = [f"{hold.owner}: {hold.reason}" for hold in host.holds if hold.owner != HEALTH]
    if holds:
        return f"{host.id} stays out, held by {'; '.join(holds)}"
    if host.state is HostState.DRAINING:
        return f"the drain of {host.id} is withdrawn"
    return f"{host.id} returns through verification"


def _stays(standing: Standing, one: Rma) -> bool:
    """Something bad that the return was not for."""
    found = standing.finding
    return found.verdict is Verdict.BAD and not found.echo_of and found.unit != one.unit and one.unit != "host"
