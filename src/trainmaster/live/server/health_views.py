"""What the API shows of the health of hosts, built from the state; nothing here changes anything."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from trainmaster.core.base.ids import HostId, Owner, RmaId
from trainmaster.core.base.reasons import Reason, because
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.health import advice, breaker, cases, judged, stuck
from trainmaster.core.health.book import Attempt, Case, CaseState, Rma, Standing
from trainmaster.core.health.conduct import PoolConduct
from trainmaster.core.health.offender import daily, notes, rma
from trainmaster.core.health.offender.lemon import Suspect
from trainmaster.core.health.offender.place import place_of
from trainmaster.core.health.words import UNKNOWN, Verdict
from trainmaster.core.step import Step
from trainmaster.live.server.health_resources import (
    CaseView,
    HealthView,
    HostHealth,
    HostVerdict,
    LemonView,
    PoolView,
    RmaDetail,
    RmaView,
    StandingView,
    TryView,
)

LEMONS_SHOWN: Final = 20


def standing_view(standing: Standing) -> StandingView:
    return StandingView(
        finding=standing.finding,
        probe=standing.probe,
        since=standing.since,
        last=standing.last,
        acknowledged_by=standing.acknowledged_by,
        acknowledged_until=standing.acknowledged_until,
        acknowledged_why=standing.acknowledged_why,
    )


def verdict_view(step: Step, host: Host) -> HostVerdict:
    """What holds for a host, and what it rests on."""
    health = step.state.health
    found, pool = judged.judge(health, host), step.derived.pools.of(host.spec)
    deciding, case = found.standing, cases.of_host(step, host.id)
    return HostVerdict(
        host=host.id,
        verdict=found.answer.verdict,
        remedy=found.answer.remedy,
        sentence=found.sentence,
        unit=deciding.finding.unit if deciding is not None else "host",
        pool=pool.name if pool is not None else None,
        mode="act" if cases.acts(step, pool) else "observe",
        case=case.id if case is not None else None,
        case_reason=shown_reason(step, case).sentence if case is not None else "",
        since=deciding.since if deciding is not None else None,
        acknowledged_by=_taken_on(deciding, step.now),
        standings=tuple(standing_view(one) for one in judged.ordered(health, host.id)),
    )


def _taken_on(standing: Standing | None, now: Instant) -> Owner | None:
    if standing is None or (standing.acknowledged_until is not None and standing.acknowledged_until <= now):
        return None
    return standing.acknowledged_by


def verdicts(step: Step, hosts: Iterable[Host], wanted: str, everything: bool) -> tuple[HostVerdict, ...]:
    """Worst first, in the order of declaration; ok ones only if they are wanted."""
    found = []
    for host in sorted(hosts, key=lambda host: host.position):
        answer = judged.judge(step.state.health, host).answer
        if answer.verdict.value == wanted if wanted else everything or answer.verdict is not Verdict.OK:
            found.append((answer.rank, host))
    found.sort(key=lambda row: row[0], reverse=True)
    return tuple(verdict_view(step, host) for _, host in found)


def shown_reason(step: Step, case: Case) -> Reason:
    """Why a case is where it is. The advice of one that is only observed is of now, since jobs come and go."""
    if case.state is CaseState.OBSERVED:
        return advice.of(step, case, cases.pool_of(step, case.host), cases.choose(step, case))
    waits = stuck.waits(step, case)
    return case.reason.but(sentence=f"{case.reason.sentence}; {waits}") if waits else case.reason


def case_view(step: Step, case: Case) -> CaseView:
    return CaseView(
        id=case.id,
        host=case.host,
        unit=case.unit,
        rule=case.rule,
        remedy=case.remedy,
        state=case.state.value,
        since=case.since,
        opened_at=case.opened_at,
        reason=shown_reason(step, case),
        operation=case.operation,
        tries=tuple(_try(one) for one in case.tries),
        rma=case.rma,
        closed_how=case.closed_how if case.state is CaseState.CLOSED else "",
        findings=case.findings,
        story=case.story,
    )


def _try(one: Attempt) -> TryView:
    return TryView(at=one.at, remedy=one.remedy, operation=one.operation, outcome=one.outcome or "running")


def case_views(step: Step, hosts: set[HostId] | None, everything: bool) -> tuple[CaseView, ...]:
    """Open ones, oldest first; then closed ones, newest first."""
    health = step.state.health
    found = sorted(health.cases.values(), key=Case.number)
    found += reversed(health.closed) if everything else ()
    return tuple(case_view(step, case) for case in found if hosts is None or case.host in hosts)


def pool_view(step: Step, pool: PoolConduct) -> PoolView:
    level, known = breaker.level(step, pool), step.state.health.breakers.get(pool.name)
    reason = breaker.limit(step, pool)
    mine = [case for case in step.state.health.cases.values() if step.derived.pools.of(_spec(step, case)) == pool]
    return PoolView(
        name=pool.name,
        mode="act" if cases.acts(step, pool) else "observe",
        hosts=level.in_service + level.out,
        out=level.out,
        level_most=level.most,
        taken=level.taken,
        rate_most=level.rate_hosts,
        rate_window_s=in_seconds(pool.rate_window),
        tripped=known is not None and known.tripped_at is not None,
        reason=reason,
        cases=len(mine),
    )


def _spec(step: Step, case: Case) -> HostSpec:
    return step.state.hosts[case.host].spec


def lemon_view(suspect: Suspect) -> LemonView:
    return LemonView(host=suspect.host, score=suspect.score, limit=suspect.limit, sentence=suspect.reason.sentence)


def health_view(step: Step) -> HealthView:
    """One screen of the whole fleet."""
    health = step.state.health
    counts: Counter[str] = Counter()
    fresh = 0
    for host in step.state.hosts.values():
        found = judged.judge(health, host)
        counts[found.answer.verdict.value] += 1
        is_new = found.answer.rank >= UNKNOWN.rank and _taken_on(found.standing, step.now) is None
        fresh += is_new
    return HealthView(
        index=step.state.index,
        at=step.now,
        verdicts=dict(counts),
        pools=tuple(pool_view(step, pool) for pool in health.conduct.pools),
        cases=dict(Counter(case.state.value for case in health.cases.values())),
        unacknowledged=fresh,
        lemons=tuple(lemon_view(one) for one in daily.suspects(step)[:LEMONS_SHOWN]),
        rmas=sum(one.closed_at is None for one in health.rmas.values()),
    )


def rma_view(one: Rma) -> RmaView:
    return RmaView(
        id=one.id,
        host=one.host,
        unit=one.unit,
        serial=one.serial,
        model=one.model,
        state="open" if one.closed_at is None else "closed",
        opened_at=one.opened_at,
        by=one.by,
        reason=one.reason,
        case=one.case,
        closed_at=one.closed_at,
        outcome=one.outcome,
        closed_why=one.closed_why,
        successor=one.successor,
    )


def rma_detail(step: Step, name: RmaId) -> RmaDetail:
    """A return with its proof."""
    one = step.state.health.rmas[name]
    return RmaDetail(
        index=step.state.index,
        at=step.now,
        rma=rma_view(one),
        bundle=rma.bundle(step.state.health, name),
        advice=rma.advice_of(one),
    )


def host_health(step: Step, host: Host) -> HostHealth:
    """All of one host."""
    health, name = step.state.health, host.id
    past = notes.of_host(health.history, name)
    parts = health.history.tenancies.get(name, [])
    return HostHealth(
        index=step.state.index,
        at=step.now,
        verdict=verdict_view(step, host),
        cases=case_views(step, {name}, everything=True),
        chassis=health.history.chassis.get(name, ""),
        place=place_of(step.state.hosts, name),
        incidents=tuple(sorted(past.incidents, key=lambda one: one.at, reverse=True)),
        parts=tuple(sorted(parts, key=lambda one: (one.until is not None, -one.since))),
        lemon=next((lemon_view(one) for one in daily.suspects(step) if one.host == name), None),
        rmas=tuple(rma_view(one) for one in health.rmas.values() if one.host == name),
    )


def needs_attention(step: Step) -> Iterator[tuple[Instant, Reason]]:
    """Cases that wait for a person or for a breaker, remedies that can't begin, and advice that nobody follows."""
    for case in step.state.health.cases.values():
        asked = stuck.asks(step, case)
        if asked:
            yield case.since, because(case.reason.token, f"{case.host} ({case.id}): {asked}", **case.reason.numbers)
        elif case.state is not CaseState.REMEDY:
            reason = shown_reason(step, case)
            yield case.since, because(reason.token, f"{case.host} ({case.id}): {reason.sentence}", **reason.numbers)
