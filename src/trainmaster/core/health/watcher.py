"""What can be seen of health only where two states meet: a watcher that looks before and after every event.

It keeps books of its own (what was taken when, what each verification was asked to prove) and applies the conduct to
them. It reads the state and changes nothing.
"""

from collections.abc import Iterable, Iterator

from trainmaster.core.base.ids import CaseId, EffectId, HostId, OperationId, PoolName
from trainmaster.core.base.time import Instant
from trainmaster.core.effects import AnyEffect, VerifyHost
from trainmaster.core.events import AnyEvent, BreakerSet, EffectEnded, HealthConductDeclared, RmaOpened
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.health.book import CaseState
from trainmaster.core.health.conduct import HEALTH, PoolConduct
from trainmaster.core.health.ladder import DEEP_CHECK
from trainmaster.core.health.words import Verdict
from trainmaster.core.state import ClusterState, Derived


class Watcher:
    """Call `before` ahead of every event and `after` behind it."""

    def __init__(self) -> None:
        self._taken: dict[PoolName, dict[HostId, Instant]] = {}
        """What health took out of service, by pool."""
        self._asked: dict[EffectId, frozenset[str]] = {}
        """What verifications were to prove."""
        self._owed: dict[HostId, frozenset[str]] = {}
        """What hosts that were let go have to prove."""
        self._states: dict[HostId, HostState] = {}
        self._holds: dict[HostId, frozenset[str]] = {}
        self._cases: dict[CaseId, CaseState] = {}
        self._tripped: dict[PoolName, bool] = {}
        self._operations: set[OperationId] = set()
        self._closed = 0

    def before(self, state: ClusterState) -> None:
        self._states = {name: host.state for name, host in state.hosts.items()}
        self._holds = {name: frozenset(hold.owner for hold in host.holds) for name, host in state.hosts.items()}
        self._cases = {name: case.state for name, case in state.health.cases.items()}
        self._tripped = {name: breaker.by is not None for name, breaker in state.health.breakers.items()}
        self._operations = set(state.maintenance.operations)
        self._closed = state.health.opened - len(state.health.cases)

    def after(
        self, state: ClusterState, derived: Derived, event: AnyEvent, effects: Iterable[AnyEffect]
    ) -> Iterator[str]:
        """Sentences about what does not hold."""
        for effect in effects:
            if isinstance(effect, VerifyHost):
                self._asked[effect.id] = frozenset(effect.tasks)
        if isinstance(event, HealthConductDeclared):
            known = {pool.name for pool in event.conduct.pools}
            self._taken = {name: times for name, times in self._taken.items() if name in known}
        if isinstance(event, BreakerSet) and not event.tripped:
            self._taken.pop(event.pool, None)
        for name, owners in self._holds.items():
            if HEALTH in owners and state.hosts[name].hold_of(HEALTH) is None:
                self._owed[name] = frozenset(state.health.conduct.verify)
        yield from self._takes(state, derived, event)
        yield from self._fixed(state, event)
        yield from self._requests(state)
        yield from _tries(state)

    def _takes(self, state: ClusterState, derived: Derived, event: AnyEvent) -> Iterator[str]:
        """2: what health takes out of service it may take, by rate and by level; nothing of a pool that is observed or
        whose breaker a person tripped."""
        if isinstance(event, RmaOpened):
            return  # a person took it
        fresh = [name for name, host in state.hosts.items() if host.hold_of(HEALTH) and HEALTH not in self._holds[name]]
        again = {case.host for case in state.health.cases.values() if len(case.tries) > 0}
        for name in fresh:
            pool = derived.pools.of(state.hosts[name].spec)
            serves = self._states[name] in (HostState.READY, HostState.VERIFYING) and not self._holds[name]
            host = state.hosts[name]
            if host.state is HostState.OUT_FAILED or any(hold.owner != HEALTH for hold in host.holds):
                serves = False  # it failed by itself, or somebody else took it, just now
            if name in again and self._cases.get(state.health.case_of[name]) is CaseState.REMEDY:
                continue  # it was on its way back
            if pool is None or state.health.modes.get(pool.name, "act" if pool.act else "observe") != "act":
                yield f"2: {name} was taken, and its pool is only observed"
            elif serves and self._tripped.get(pool.name) and not isinstance(event, BreakerSet):
                yield f"2: {name} was taken, and a person tripped the breaker of {pool.name}"
            elif serves:
                yield from self._counted(state, derived, pool, name)

    def _counted(self, state: ClusterState, derived: Derived, pool: PoolConduct, name: HostId) -> Iterator[str]:
        known = self._taken.get(pool.name, {}).items()
        others = {host: at for host, at in known if at + pool.rate_window > state.now and host != name}
        self._taken[pool.name] = {**others, name: state.now}
        if len(others) + 1 > pool.rate_hosts:
            yield f"2: {name} was taken, the host {len(others) + 1} of {pool.name} within the window"
        out = {case.host for case in state.health.cases.values() if case.taken}
        hosts = [host for host in state.hosts.values() if derived.pools.of(host.spec) == pool]
        mine = sum(1 for host in hosts if host.id in out)
        before = sum(
            1
            for host in hosts
            if host.id in out or self._states[host.id] in (HostState.READY, HostState.DRAINING, HostState.VERIFYING)
        )
        most = max(pool.level_hosts, int(pool.level_percent * before / 100))
        held = sum(1 for host in hosts if host.id in out and host.id != name and HEALTH in self._holds[host.id])
        if held + 1 > most:
            yield f"2: {name} was taken, and {mine} of {before} hosts of {pool.name} are out by health"

    def _fixed(self, state: ClusterState, event: AnyEvent) -> Iterator[str]:
        """3: a case that was fixed ends with a verification of all that the conduct demands, and nothing bad or newly
        unknown stands then."""
        count = state.health.opened - len(state.health.cases) - self._closed
        if isinstance(event, EffectEnded) and event.effect in self._asked:
            tasks = self._asked.pop(event.effect)
            if event.outcome == "done":
                self._owed[event.host] = self._owed.get(event.host, frozenset()) - tasks
        for case in state.health.closed[len(state.health.closed) - count :] if count else ():
            host = state.hosts[case.host]
            if case.closed_how != "fixed" or host.state is not HostState.READY:
                continue
            if self._states[case.host] is HostState.READY:
                yield f"3: {case.id} is fixed, and {case.host} was in service all the time"
            if self._owed.get(case.host):
                yield f"3: {case.id} is fixed, and {case.host} did not prove {sorted(self._owed[case.host])}"
            for each in state.health.standings.get(case.host, ()):
                is_new = each.finding.verdict is Verdict.UNKNOWN and each.since >= case.opened_at
                if is_new and each.probe != "kernel-log" and each.since < case.since:
                    yield f"3: {case.id} is fixed, and {each.finding.unit} is unknown"

    def _requests(self, state: ClusterState) -> Iterator[str]:
        """1: health acts on what stands, and on nothing that is over."""
        for case in state.health.cases.values():
            if case.operation is None or case.operation in self._operations:
                continue
            standings = state.health.standings.get(case.host, ())
            doubts = (Verdict.BAD, Verdict.UNKNOWN)
            if not any(each.finding.verdict in doubts for each in standings):
                yield f"1: {case.operation} was asked for {case.id}, and nothing bad stands against {case.host}"
            if case.host in state.hosts and any(
                hold.owner.startswith("person:") and hold.owner in self._holds[case.host]
                for hold in state.hosts[case.host].holds
            ):
                yield f"7: {case.operation} was asked for {case.id}, while a person holds {case.host}"


def _tries(state: ClusterState) -> Iterator[str]:
    """4: no remedy is tried more often than its rung allows, whatever ladder holds now."""
    most = {rung.remedy: rung.tries for rung in (*state.health.conduct.ladder, DEEP_CHECK)}
    for case in state.health.cases.values():
        tried = [attempt.remedy for attempt in case.tries if attempt.outcome != "cancelled"]
        for remedy in set(tried):
            if tried.count(remedy) > most.get(remedy, 1):
                yield f"4: {case.id} tried {remedy} {tried.count(remedy)} times, and it may {most.get(remedy, 1)} times"
