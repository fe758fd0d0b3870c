"""What must hold of health after every event; a broken one is a defect. Numbers are the architecture's.

Intuition: what is bad has a case, a case has a host to answer for or says why not, and somebody will act next: an
operation, a wake-up, an agent, a person who is named. What can be seen only where two states meet (what was taken, what
was returned) is in `watcher`.
"""

from collections.abc import Iterator
from typing import Final

from trainmaster.core.base.reasons import Token
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.health.book import Case, CaseState
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.health.offender import invariants as offender
from trainmaster.core.health.standing import EVENT_PROBES, STANDINGS_MAX, outlives_a_boot
from trainmaster.core.health.words import Verdict
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.state import ClusterState, Derived

_S = CaseState
_FOR_PEOPLE: Final = (Token.WANTS_TRIAGE, Token.WANTS_RMA, Token.WANTS_CONFIG)


def broken(state: ClusterState, derived: Derived) -> Iterator[str]:
    """Sentences about what does not hold; none if all is well."""
    yield from _maps(state)
    yield from _standings(state)
    yield from _holds(state)
    for case in state.health.cases.values():
        yield from _case(state, derived, case)
    yield from _operations(state)
    yield from offender.broken(state.health.history)


def _maps(state: ClusterState) -> Iterator[str]:
    health = state.health
    if health.case_of != {case.host: case.id for case in health.cases.values()}:
        yield f"cases by host are {health.case_of}; there are {sorted(health.cases)}"
    if any(case.state is _S.CLOSED for case in health.cases.values()):
        yield "a closed case is among the open ones"
    if any(case.state is not _S.CLOSED or not case.closed_how for case in health.closed):
        yield "a case among the closed ones is not closed, or does not say how"


def _standings(state: ClusterState) -> Iterator[str]:
    """6: what is bad has a case, and what expires is called."""
    health = state.health
    for name, standings in health.standings.items():
        if not 0 < len(standings) <= STANDINGS_MAX:
            yield f"{len(standings)} findings stand against {name}"
        bad = [each for each in standings if each.finding.verdict is Verdict.BAD and not each.finding.echo_of]
        if any(each.during is None for each in bad) and name not in health.case_of:
            yield f"6: {name} is bad ({bad[0].finding.rule}), and has no case"
        boot = state.hosts[name].boot
        over = [each for each in standings if each.boot != boot and not outlives_a_boot(each)]
        if over:
            yield f"1: {over[0].finding.rule} stands against {name} from the boot {over[0].boot}, which is over"
        waits = any(each.probe in EVENT_PROBES and each.finding.verdict is not Verdict.BAD for each in standings)
        if waits != (f"stands/{name}" in state.wakes):
            yield f"6: something stands against {name} that expires: {waits}; called: {not waits}"
        visit = state.maintenance.visits.get(name)
        marked = any(each.during is not None for each in standings)
        unproven = state.hosts[name].state in (HostState.OUT_FAILED, HostState.VERIFYING)
        if marked and visit is None and f"look/{name}" not in state.wakes and not unproven:
            yield f"6: what an operation may have caused on {name} is never judged"


def _holds(state: ClusterState) -> Iterator[str]:
    """7: health holds exactly those hosts that it took and has not let go."""
    health = state.health
    for host in state.hosts.values():
        case = health.cases[health.case_of[host.id]] if host.id in health.case_of else None
        wanted = case is not None and case.taken and case.stage != "returning"
        if wanted != (host.hold_of(HEALTH) is not None):
            told = f"{case.id} is {case.state.value} {case.stage}" if case is not None else "no case"
            yield f"7: {host.id} is held by health: {not wanted}; {told}"
        if host.at_fault and host.state is HostState.READY:
            yield f"2: {host.id} is in service, and counts as failed"
        if wanted and not host.at_fault:
            yield f"2: {host.id} is held by health, and does not count as failed"


def _case(state: ClusterState, derived: Derived, case: Case) -> Iterator[str]:
    """6: somebody acts next."""
    at = f"{case.id} of {case.host} ({case.state.value} {case.stage})"
    host = state.hosts[case.host]
    if not case.reason.sentence or not case.findings:
        yield f"6: {at} has no reason, or no proof"
    if (case.operation is not None) != (case.stage == "operation"):
        yield f"6: {at} has the operation {case.operation}"
    if (case.state is _S.REMEDY) != bool(case.stage):
        yield f"6: {at}: a remedy has a stage, and nothing else has"
    if case.state is _S.OBSERVED and (case.taken or _acts(state, derived, host)):
        yield f"6: {at} is only observed, and its pool is acted on, or it was taken"
    elif case.state is _S.WAITING:
        yield from _waiting(state, derived, case, at)
    elif case.state is _S.HELD and case.reason.token not in _FOR_PEOPLE:
        yield f"6: {at} waits for a person, and says {case.reason.token}"
    elif case.state is _S.REMEDY:
        yield from _remedy(state, case, at)


def _acts(state: ClusterState, derived: Derived, host: Host) -> bool:
    pool = derived.pools.of(host.spec)
    return pool is not None and state.health.modes.get(pool.name, "act" if pool.act else "observe") == "act"


def _waiting(state: ClusterState, derived: Derived, case: Case, at: str) -> Iterator[str]:
    host, token = state.hosts[case.host], case.reason.token
    if not case.taken:
        pool = derived.pools.of(host.spec)
        assert pool is not None, at
        breaker = state.health.breakers.get(pool.name)
        if token is not Token.BREAKER_TRIPPED or breaker is None or breaker.reason is None:
            yield f"6: {at} waits for a breaker that is not tripped ({token})"
            return
        by_rate = breaker.by is None and "window_s" in breaker.reason.numbers
        if by_rate and f"breaker/{pool.name}" not in state.wakes:
            yield f"6: {at} waits for the rate of its pool, and nothing will call it"
    elif token is Token.HOST_AWAY:
        if f"away/{case.host}" not in state.wakes:
            yield f"6: {at} waits for its host, and nothing ends that"
    elif token is not Token.HELD or not any(hold.owner != HEALTH for hold in host.holds):
        yield f"6: {at} waits ({token}), and nobody else holds its host"


def _remedy(state: ClusterState, case: Case, at: str) -> Iterator[str]:
    host = state.hosts[case.host]
    if case.stage == "operation" and case.operation not in state.maintenance.operations:
        yield f"6: {at} waits for {case.operation}, which has ended"
    elif case.stage == "looking" and f"look/{case.host}" not in state.wakes:
        yield f"6: {at} waits until the probes have looked again, and nothing will call it"
    elif case.stage == "returning":
        visited, away = case.host in state.maintenance.visits, not host.connected
        if host.state is not HostState.VERIFYING and not visited and not away:
            yield f"6: {at} returns, and its host is {host.state.value}"


def _operations(state: ClusterState) -> Iterator[str]:
    """10: what health asked of the planner is wanted still, or was taken back."""
    wanted = {case.operation for case in state.health.cases.values()}
    wanted |= {errand.operation for errand in state.health.errands.values()}
    for operation in state.maintenance.operations.values():
        ends = operation.ends_as is not None or operation.state is OperationState.VERIFYING
        if operation.by == HEALTH and operation.id not in wanted and not ends:
            yield f"10: {operation.id} of health on {operation.executor} is wanted by nobody"
