"""Cases: a fault of a host, from its first bad verdict to its end.

`examine` is the heart. It is called whenever something else stands against a host, or the host came to another place,
and takes the next step of its case. What it decides on is always what stands at that moment; no old report is ever
replayed, so a promotion or a breaker that is reset acts on what still holds and on nothing else.

    bad verdict -> observed: the advice is written down, the host stays as it is
                -> act: breaker -> hold -> remedy (an operation of the planner) -> the probes look again
                   -> let go, verification -> closed; or the next rung; or a person

A host has one case at a time. What else is found bad joins it and may raise the rung, as long as nothing is carried out
yet. The hold of health stays from the moment the host is taken until nothing bad stands: between a remedy that did not
help and the next one it never goes back to production. Holds of others are never touched, and where a person holds the
host, health waits.
"""

from typing import Final

from trainmaster.core.base.ids import HostId, PoolName, case_id
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import HOUR, MINUTE, Duration, after, in_seconds
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Hold, Host, HostState
from trainmaster.core.health import advice, breaker, ladder, remedies, standing
from trainmaster.core.health.book import CASE_MACHINE, CLOSED_KEPT, Attempt, Case, CaseState, Standing
from trainmaster.core.health.conduct import HEALTH, PoolConduct
from trainmaster.core.health.ladder import Choice
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.health.offender import rma
from trainmaster.core.health.offender.record import IncidentKind
from trainmaster.core.health.words import Answer, Remedy, Verdict
from trainmaster.core.maintenance import gate
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.maintenance.visit import MAINTENANCE, VERSIONS
from trainmaster.core.step import Step

_S = CaseState

FINDINGS_MAX: Final = 8
LOOK_AGAIN: Final = Duration(2 * MINUTE)
"""Probes look at least once a minute; after that long, what they still say is true."""
AWAY_LIMIT: Final = Duration(HOUR)
"""How long a case waits for a host that is lost; then a person has to look."""

_NO_MATTER: Final = frozenset({HEALTH, MAINTENANCE, VERSIONS})
"""Holds that do not keep health from working on a host: its own, and those of the planner, which shares its visit."""
_HANDED: Final = {
    Remedy.TRIAGE: (Token.WANTS_TRIAGE, "a person has to look"),
    Remedy.RMA: (Token.WANTS_RMA, "the part goes back to its vendor"),
    Remedy.CONFIG: (Token.WANTS_CONFIG, "its setup has to be corrected"),
}


def of_host(step: Step, name: HostId) -> Case | None:
    """The open case of a host."""
    health = step.state.health
    found = health.case_of.get(name)
    return health.cases[found] if found is not None else None


def pool_of(step: Step, name: HostId) -> PoolConduct | None:
    return step.derived.pools.of(step.state.hosts[name].spec)


def acts(step: Step, pool: PoolConduct | None) -> bool:
    """Whether health acts on the pool, or only says what it would do."""
    if pool is None:
        return False
    mode = step.state.health.modes.get(pool.name)
    return pool.act if mode is None else mode == "act"


def move(step: Step, case: Case, state: CaseState, reason: Reason) -> None:
    """Takes an edge of the case machine."""
    case.story = CASE_MACHINE.step(case.id, case.story, case.state, state, step.now, reason.sentence)
    case.state, case.since, case.reason = state, step.now, reason
    if state is not _S.REMEDY:
        case.stage = ""


def examine(step: Step, name: HostId) -> None:
    """What stands against the host, or where it is, has changed: takes the next step of its case."""
    case, bad = of_host(step, name), standing.bad(step, name)
    if case is None:
        if bad:
            consider(step, begin(step, name, bad))
        return
    if bad:
        _join(case, bad)
    if case.state in (_S.OBSERVED, _S.WAITING):
        consider(step, case)
    elif case.state is _S.HELD:
        _worse(step, case)
    elif case.stage == "operation":
        _under_way(step, case, bad)
    elif case.stage == "looking":
        looked(step, case)
    elif bad:  # on its way back
        retake(step, case)


# --- opening and joining


def begin(step: Step, name: HostId, bad: tuple[Standing, ...]) -> Case:
    """A case of a host that has none."""
    health, worst = step.state.health, bad[0].finding
    health.opened += 1
    case = Case(
        id=case_id(health.opened),
        host=name,
        unit=worst.unit,
        rule=worst.rule,
        remedy=worst.remedy,
        since=step.now,
        opened_at=step.now,
        reason=because(Token.HEALTH_OBSERVES, f"{worst.unit}: {worst.summary}"),
    )
    _join(case, bad)
    health.cases[case.id] = case
    health.case_of[name] = case.id
    _note(step, case, "verdict", worst.answer)
    return case


def _join(case: Case, bad: tuple[Standing, ...]) -> None:
    """What is bad now becomes the proof, the worst first; what was bad before stands behind it."""
    worst = bad[0].finding
    if case.state in (_S.OBSERVED, _S.WAITING) or ladder.rank(worst.remedy) >= ladder.rank(case.remedy):
        case.unit, case.rule, case.remedy = worst.unit, worst.rule, worst.remedy
    now = tuple(each.finding for each in bad[:FINDINGS_MAX])
    known = {(each.unit, each.rule) for each in now}
    before = tuple(each for each in case.findings if (each.unit, each.rule) not in known)
    case.findings = (*now, *before)[:FINDINGS_MAX]


def _note(step: Step, case: Case, kind: IncidentKind, answer: Answer, outcome: str = "") -> None:
    """Writes into the history of the unit that is to blame."""
    offenders.remember(
        step,
        case.host,
        kind,
        case.unit,
        rule=case.rule,
        answer=answer,
        outcome=outcome,
        case=case.id,
        offence=case.findings[0].offence,
    )


# --- not taken yet, or waiting


def consider(step: Step, case: Case) -> None:
    """An observed case, or one that waits: whether it may go on now, by what stands now."""
    bad, pool = standing.bad(step, case.host), pool_of(step, case.host)
    if case.taken:
        _go_on(step, case, bool(bad))
        return
    if not bad:
        close(step, case, "cleared", "nothing bad stands against it any more")
        return
    if pool is None or not acts(step, pool):
        reason = advice.of(step, case, pool, choose(step, case))
        if case.state is _S.WAITING:
            move(step, case, _S.OBSERVED, reason)
        case.reason = reason
        return
    host = step.state.hosts[case.host]
    if not _is_out(host):
        counted = breaker.is_counted(step, pool, host.id)
        refusal = None if counted else _others_first(step, case, pool)
        refusal = refusal or breaker.refusal(step, pool, host.id)
        if refusal is not None:
            _wait(step, case, refusal)
            return
        breaker.take(step, pool, host.id)
    take(step, case)
    advance(step, case)


def _others_first(step: Step, case: Case, pool: PoolConduct) -> Reason | None:
    """Cases that wait for the breaker of the pool are served in their order."""
    if case.state is _S.WAITING:
        return None
    waiting = sum(1 for other in _waiting(step, pool) if other is not case)
    if not waiting:
        return None
    due(step, pool.name)
    told = "1 case waits for the breaker" if waiting == 1 else f"{waiting} cases wait for the breaker"
    return because(Token.BREAKER_TRIPPED, f"{told} of {pool.name} before it", waiting=waiting)


def _waiting(step: Step, pool: PoolConduct) -> list[Case]:
    """Cases that wait for the breaker of a pool, oldest first."""
    cases = [case for case in step.state.health.cases.values() if case.state is _S.WAITING and not case.taken]
    return sorted((case for case in cases if pool_of(step, case.host) == pool), key=Case.number)


def _is_out(host: Host) -> bool:
    """Taking it takes nothing: it is out, or on its way out, by somebody else or by itself."""
    return host.state in (HostState.OUT_FAILED, HostState.EXPECTED) or bool(host.holds)


def _wait(step: Step, case: Case, reason: Reason) -> None:
    if case.state is not _S.WAITING:
        move(step, case, _S.WAITING, reason)
    case.reason = reason


def take(step: Step, case: Case) -> None:
    """Holds the host. What waited for capacity to work on it takes none any more."""
    case.taken = True
    told = f"{case.id}: {case.unit}: {case.findings[0].summary}"
    hosts.take_out(step, step.state.hosts[case.host], Hold(owner=HEALTH, reason=told, since=step.now))
    gate.unit_lost(step, case.host)


def _go_on(step: Step, case: Case, is_bad: bool) -> None:
    """It is held by health, and waited for somebody else or for the host itself."""
    if _is_blocked(step, case):
        return
    if is_bad or not _may_return(step, case):
        advance(step, case)
    else:
        let_go(step, case, "cleared", "nothing bad stands against it any more")


def _is_blocked(step: Step, case: Case) -> bool:
    """It waits for somebody else, or for the host; for that not for ever."""
    blocked, away = _blocked(step.state.hosts[case.host]), f"away/{case.host}"
    if blocked is None or blocked.token is not Token.HOST_AWAY:
        step.unwake(away)
    elif away not in step.state.wakes:
        step.wake(away, after(step.now, AWAY_LIMIT))
    if blocked is not None:
        _wait(step, case, blocked)
    return blocked is not None


def _blocked(host: Host) -> Reason | None:
    """What keeps health from working on a host that it holds."""
    for hold in host.holds:
        if hold.owner not in _NO_MATTER:
            return because(Token.HELD, f"{hold.owner} holds {host.id}: {hold.reason}; health waits for that")
    if not host.connected and host.state in (HostState.OUT_FAILED, HostState.EXPECTED):
        return because(Token.HOST_AWAY, f"{host.id} is lost ({host.reason.sentence}); nothing can be run on it")
    return None


# --- remedies


def choose(step: Step, case: Case) -> Choice:
    """What comes next on the ladder; or triage or rma, where the history of the unit asks for that."""
    host, conduct = step.state.hosts[case.host], step.state.health.conduct
    history = offenders.advise(step, case.host, case.unit, case.id) if case.findings[0].offence else None
    if history is not None and ladder.rank(history.remedy) > ladder.rank(case.remedy):
        return Choice(rung=None, remedy=history.remedy, passed_over=(history.told,))
    return ladder.choose(
        conduct.ladder, case.remedy, tried(step, case), lambda kind: remedies.problem(step, host, kind)
    )


def tried(step: Step, case: Case) -> dict[Remedy, int]:
    """How often each remedy was carried out, or failed, in the present fault session: in this case, and in those before
    it about the same unit, as far as each began within the cool-down after the one before."""
    found: dict[Remedy, int] = {}
    cool_down, since = step.state.health.conduct.limits.cool_down, case.opened_at
    for incident in reversed(step.state.health.history.incidents.get(case.host, [])):
        if incident.at + cool_down < since:
            break
        if incident.unit != case.unit or incident.case == case.id or incident.case is None:
            continue
        since = min(since, incident.at)
        if incident.kind == "remedy" and incident.outcome in ("done", "failed"):
            found[incident.remedy] = found.get(incident.remedy, 0) + 1
    for attempt in case.tries:
        if _counts(attempt, attempt.remedy):
            found[attempt.remedy] = found.get(attempt.remedy, 0) + 1
    return found


def _counts(attempt: Attempt, remedy: Remedy) -> bool:
    """A try of this remedy that came to its end."""
    return attempt.remedy is remedy and attempt.outcome in ("done", "failed")


def advance(step: Step, case: Case) -> None:
    """The host is held, and nothing is under way: the next remedy, or a person."""
    assert case.taken, case.id
    assert case.operation is None, case.id
    if _is_blocked(step, case):
        return
    choice = choose(step, case)
    if choice.rung is None:
        hand_over(step, case, choice.remedy, "; ".join((case.findings[0].summary, *choice.passed_over)))
        return
    if not acts(step, pool_of(step, case.host)):
        hand_over(step, case, Remedy.TRIAGE, f"{case.findings[0].summary}; the pool is only observed now")
        return
    operation = remedies.request(step, case, choice)
    passed = f"; {'; '.join(choice.passed_over)}" if choice.passed_over else ""
    before = choice.number - 1 - sum(_counts(each, choice.remedy) for each in case.tries[:-1])
    earlier = f" ({before} of them in earlier cases)" if before else ""
    sentence = f"{operation}: {choice.rung.kind}, try {choice.number} of {choice.rung.tries}{earlier}{passed}"
    move(step, case, _S.REMEDY, because(Token.REMEDY_RUNS, sentence, tries=len(case.tries)))
    case.stage = "operation"


def hand_over(step: Step, case: Case, remedy: Remedy, why: str) -> None:
    """Nothing that runs by itself is left: the host stays out until a person has done what is to be done."""
    token, told = _HANDED[remedy]
    case.remedy = remedy
    if remedy is Remedy.RMA and case.rma is None:
        case.rma = rma.open_for(step, case.host, case.unit, case.findings[0].summary, case.id, HEALTH)
    reason = because(token, f"{told}: {why}")
    if case.state is _S.HELD:
        case.reason = reason
    else:
        _note(step, case, "ticket", Answer(verdict=Verdict.BAD, remedy=remedy))
        move(step, case, _S.HELD, reason)


def _worse(step: Step, case: Case) -> None:
    """Something else was found while a person has to look."""
    if case.remedy is Remedy.RMA and case.rma is None:
        case.rma = rma.open_for(step, case.host, case.unit, case.findings[0].summary, case.id, HEALTH)
    token, told = _HANDED.get(case.remedy, _HANDED[Remedy.TRIAGE])
    if token is not case.reason.token:
        case.reason = because(token, f"{told}: {case.findings[0].summary}")


def _under_way(step: Step, case: Case, bad: tuple[Standing, ...]) -> None:
    """A remedy was asked for. Until it begins it can be exchanged for a better one, or given up."""
    operation = step.state.maintenance.operations.get(case.operation) if case.operation is not None else None
    if operation is None or operation.state in (OperationState.RUNNING, OperationState.VERIFYING):
        return
    if bad and ladder.rank(case.remedy) > ladder.rank(case.tries[-1].remedy):
        reason = because(Token.REMEDY_RUNS, f"{case.unit} asks for more: {case.findings[0].summary}")
        remedies.withdraw(step, case, reason)
        advance(step, case)
    elif not bad and _may_return(step, case):
        why = "nothing bad stands against it any more"
        remedies.withdraw(step, case, because(Token.CASE_CLOSED, why))
        let_go(step, case, "cleared", why)


def operation_ended(step: Step, operation: Operation) -> None:
    """A remedy has ended, one way or another."""
    case = of_host(step, operation.executor) if operation.by == HEALTH else None
    if case is None or case.operation != operation.id:
        return
    case.operation = None
    outcome = remedies.OUTCOMES.get(operation.state, "cancelled")
    remedies.end(case, outcome)
    answer = Answer(verdict=Verdict.BAD, remedy=case.tries[-1].remedy)
    _note(step, case, "remedy", answer, "not-run" if outcome == "cancelled" else outcome)
    why = operation.reason.sentence if operation.reason is not None else outcome
    if outcome == "cancelled":
        hand_over(step, case, Remedy.TRIAGE, f"{operation.id} was not carried out: {why}")
    elif outcome == "failed" and standing.bad(step, case.host):
        advance(step, case)
    else:
        if outcome == "done":
            assert operation.started_at is not None, operation.id
            standing.answered(step, case.host, case.tries[-1].remedy, operation.started_at)
        case.stage, case.look_until = "looking", after(step.now, LOOK_AGAIN)
        step.wake(f"look/{case.host}", case.look_until)
        looked(step, case)


def looked(step: Step, case: Case) -> None:
    """A remedy was carried out: the host goes back if nothing stands against it. The probes get time to look again."""
    assert case.look_until is not None, case.id
    bad = standing.bad(step, case.host)
    if not bad and _may_return(step, case):
        last = case.tries[-1]
        if last.outcome == "done":
            let_go(step, case, "fixed", f"{last.remedy} was carried out")
        else:
            let_go(step, case, "cleared", "nothing bad stands against it any more")
    elif step.now < case.look_until:
        left_s = in_seconds(case.look_until - step.now)
        doubts = (*bad, *standing.doubtful(step, case.host, case.opened_at, [case.unit]))
        sentence = f"{doubts[0].finding.unit}: {doubts[0].finding.summary}; the probes look again for {left_s:.0f} s"
        case.reason = because(Token.LOOKS_AGAIN, sentence, left_s=round(left_s, 3))
    elif bad:
        advance(step, case)
    else:
        doubt = standing.doubtful(step, case.host, case.opened_at, [case.unit])[0].finding
        hand_over(step, case, Remedy.TRIAGE, f"{doubt.unit} is unknown, which is not healthy: {doubt.summary}")


def _may_return(step: Step, case: Case) -> bool:
    """Nothing is unknown that was known before, and nothing is left to be judged."""
    return not standing.doubtful(step, case.host, case.opened_at, [case.unit])


def look_again(step: Step, name: HostId) -> None:
    """The probes had their time."""
    standing.looked_again(step, name)
    case = of_host(step, name)
    if case is not None and case.stage == "looking":
        looked(step, case)


def away_too_long(step: Step, name: HostId) -> None:
    """A host that was lost did not come back in time."""
    case = of_host(step, name)
    if case is not None and case.state is _S.WAITING and case.reason.token is Token.HOST_AWAY:
        hand_over(step, case, Remedy.TRIAGE, f"{name} did not come back within {in_seconds(AWAY_LIMIT):g} s")


# --- back


def let_go(step: Step, case: Case, how: str, why: str) -> None:
    """Health lifts its hold, and no other; the host returns through the verification that health demands. The case is
    closed when it has passed, or at once where the return is another's business."""
    host, verify = step.state.hosts[case.host], step.state.health.conduct.verify
    if host.state in (HostState.DRAINING, HostState.READY):  # nobody has worked on it
        hosts.lift(step, host, HEALTH, why)
        close(step, case, how, why)
        return
    others = [hold.owner for hold in host.holds if hold.owner not in (HEALTH, MAINTENANCE)]
    visited = host.id in step.state.maintenance.visits
    if others or visited or not host.connected or host.state is HostState.VERIFYING:
        hosts.lift(step, host, HEALTH, why)
        if not (host.state is HostState.VERIFYING and host.verified):
            host.demands = tuple(dict.fromkeys((*host.demands, *verify)))
    else:
        hosts.bring_back(step, host, HEALTH, verify, why)
    if others or how != "fixed":
        close(step, case, how, f"{why}; {others[0]} holds {host.id} still" if others else why)
        return
    case.stage, case.closed_how = "returning", how
    case.reason = because(Token.VERIFICATION_PENDING, f"{why}; it proves that it works before it takes work")


def retake(step: Step, case: Case) -> None:
    """It was on its way back, and is bad again. It is out already, so nobody is asked."""
    case.closed_how = ""
    take(step, case)
    advance(step, case)


def close(step: Step, case: Case, how: str, why: str) -> None:
    """The end of a case; its host is not held by health any more."""
    health, host = step.state.health, step.state.hosts[case.host]
    assert host.hold_of(HEALTH) is None, case.id
    assert case.operation is None, case.id
    move(step, case, _S.CLOSED, because(Token.CASE_CLOSED, f"{how}: {why}"))
    case.closed_how = how
    del health.cases[case.id], health.case_of[case.host]
    health.closed.append(case)
    if len(health.closed) >= 2 * CLOSED_KEPT:
        health.closed = health.closed[-CLOSED_KEPT:]
    step.unwake(f"away/{case.host}")
    pool = pool_of(step, case.host)
    if pool is not None and case.taken:
        due(step, pool.name)


def due(step: Step, pool: PoolName) -> None:
    """More hosts of the pool may be taken now than before."""
    if pool not in step.pools_due:
        step.pools_due.append(pool)


def serve(step: Step, name: PoolName) -> None:
    """Cases of a pool that wait for its breaker, oldest first, until it refuses."""
    pool = next((each for each in step.state.health.conduct.pools if each.name == name), None)
    if pool is None:
        return
    for case in _waiting(step, pool):
        consider(step, case)
        if case.state is _S.WAITING and not case.taken:
            return
    breaker.refusal(step, pool)
