"""Where a host came to, as far as its health is concerned: ready, out, lost."""

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.base.time import after
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.health import cases, errands, remedies, standing
from trainmaster.core.health.book import CaseState
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.health.verification.outcome import Outcome, of_agents_sentence
from trainmaster.core.health.words import Remedy, Verdict
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.maintenance.visit import MAINTENANCE
from trainmaster.core.step import Step


def ready(step: Step, name: HostId) -> None:
    """The host is in service. A limit that is a share of the pool may allow more now."""
    _has_passed(step, name)
    pool = cases.pool_of(step, name)
    if pool is not None and pool.name in step.state.health.breakers:
        cases.due(step, pool.name)
    case = cases.of_host(step, name)
    if case is not None and case.stage == "returning":
        cases.close(step, case, case.closed_how, "it has passed its verification")


def out(step: Step, name: HostId) -> None:
    """The host is out of production, or has passed its verification and is held still."""
    host = step.state.hosts[name]
    case = cases.of_host(step, name)
    if case is None and standing.at(step, name):
        errands.consider(step, name)
    if not (host.story and host.story[-1].start == HostState.VERIFYING.word):
        return
    _has_passed(step, name)
    if case is None:
        return
    others = [hold.owner for hold in host.holds if hold.owner not in (HEALTH, MAINTENANCE)]
    if case.stage == "returning" and others:
        cases.close(step, case, case.closed_how, f"it has passed its verification; {others[0]} holds it still")
    elif case.state is CaseState.WAITING:
        step.ailing.append(name)


def _has_passed(step: Step, name: HostId) -> None:
    """What was seen while something worked on it is judged when the probes have looked again."""
    if not standing.at(step, name):
        return
    standing.verified(step, name)
    if any(each.during is not None for each in standing.at(step, name)) and f"look/{name}" not in step.state.wakes:
        step.wake(f"look/{name}", after(step.now, cases.LOOK_AGAIN))


def lost(step: Step, name: HostId) -> None:
    """The host was lost, or failed its verification."""
    host = step.state.hosts[name]
    if host.state is not HostState.OUT_FAILED:
        step.ailing.append(name)  # it is back already
        return
    if host.connected and host.story[-1].start == HostState.VERIFYING.word:
        _verification_failed(step, host)
    case = cases.of_host(step, name)
    if case is None:
        return
    if case.stage == "returning" and (standing.bad(step, name) or not host.connected):
        cases.retake(step, case)
    elif case.stage == "returning":  # not by what was repaired: who worked on it, or a person, brings it back
        cases.close(step, case, "lost", f"its fault was mended, and it was lost since: {host.reason.sentence}")
    elif case.stage == "operation" and not host.connected:
        _never_began(step, host)
    else:
        step.ailing.append(name)


def _verification_failed(step: Step, host: Host) -> None:
    """What could not be run or judged is no offence, and no reason to boot: the host is not known to be well."""
    has_failed = of_agents_sentence(host.reason.sentence.partition(": ")[2]) is Outcome.FAIL
    finding = Finding(
        unit="host",
        verdict=Verdict.BAD if has_failed else Verdict.UNKNOWN,
        remedy=Remedy.REBOOT if has_failed else Remedy.DIAGNOSE,
        rule="verification",
        summary=host.reason.sentence,
        evidence=(host.reason.sentence,),
        offence=has_failed,
    )
    case = step.state.health.case_of.get(host.id)
    offenders.remember(
        step, host.id, "verification", rule=finding.rule, answer=finding.answer, case=case, offence=has_failed,
        outcome="failed" if has_failed else "not-run",
    )  # fmt: skip
    standing.own(step, host.id, finding)


def _never_began(step: Step, host: Host) -> None:
    """The host was lost before its remedy began; what had begun has failed, and says so itself."""
    case = cases.of_host(step, host.id)
    assert case is not None, host.id
    operation = step.state.maintenance.operations.get(case.operation) if case.operation is not None else None
    if operation is None or operation.state in (OperationState.RUNNING, OperationState.VERIFYING):
        return
    remedies.withdraw(step, case, because(Token.HOST_AWAY, f"{host.id} was lost before it began"))
    cases.advance(step, case)
