"""How history is written from within the engine: one call each, for whoever sees that something happened."""

from typing import Final

from trainmaster.core.base.ids import CaseId, HostId, JobId
from trainmaster.core.base.time import DAY, after
from trainmaster.core.health.events import Gone, HealthReported, PartsSeen
from trainmaster.core.health.offender import rma
from trainmaster.core.health.offender.advice import Escalation, advice
from trainmaster.core.health.offender.identity import Change, looked, part_in
from trainmaster.core.health.offender.notes import note
from trainmaster.core.health.offender.place import place_of
from trainmaster.core.health.offender.record import Incident, IncidentKind
from trainmaster.core.health.words import Answer, Remedy, Verdict
from trainmaster.core.step import Step

DAYS_ALONE: Final = 35
"""So long the jobs that a host ran by itself are counted, by day."""
PROBE: Final = "offenders"
"""Who says what history says of a host."""
WAKE: Final = "lemons/all"
"""The survey of all hosts, see `daily`."""
EVERY: Final = DAY
_NOTHING: Final = Answer(verdict=Verdict.OK, remedy=Remedy.NONE)


def remember(
    step: Step,
    host: HostId,
    kind: IncidentKind,
    unit: str = "host",
    *,
    rule: str = "",
    answer: Answer = _NOTHING,
    outcome: str = "",
    case: CaseId | None = None,
    job: JobId | None = None,
    nodes: int = 0,
    offence: bool = True,
) -> Incident:
    """Writes down what happened to a unit just now, with chassis, part and place as they are."""
    if WAKE not in step.state.wakes:
        step.wake(WAKE, after(step.now, EVERY))
    return note(
        step.state.health.history,
        Incident(
            at=step.now, kind=kind, host=host, unit=unit, place=place_of(step.state.hosts, host), rule=rule,
            verdict=answer.verdict, remedy=answer.remedy, outcome=outcome, case=case, job=job, nodes=nodes,
            offence=offence,
        ),
    )  # fmt: skip


def advise(step: Step, host: HostId, unit: str, case: CaseId | None = None) -> Escalation | None:
    """What history asks for, now that this unit fails; see `advice`. `case`: the present one, if it is noted."""
    health = step.state.health
    part = part_in(health.history, host, unit)
    return advice(
        health.history,
        host,
        unit,
        part.serial if part is not None else "",
        step.now,
        health.conduct.limits,
        case=case,
        place=place_of(step.state.hosts, host),
    )


def parts_seen(step: Step, event: PartsSeen) -> tuple[Change, ...]:
    """The parts of a host, as its agent sees them now; what has changed. Returns that are open learn of it."""
    state = step.state

    def alive(name: HostId) -> bool:
        """Its agent runs in the boot of its last look. One that was not heard since the server restarted may."""
        host = state.hosts.get(name)
        here = host is not None and (host.connected or host.is_unheard())
        return here and host is not None and host.boot == state.health.history.boots.get(name)

    changes = looked(state.health.history, event, alive)
    rma.looked(step, event, changes)
    return changes


def report_of_parts(step: Step, event: PartsSeen) -> HealthReported:
    """What history says of the parts that are there, as the report of a probe of the server's own: parts that were sent
    back before are named."""
    health = step.state.health
    findings = rma.named(health.history, event.host)
    units = {each.unit for each in findings}
    gone = tuple(
        Gone(unit=each.finding.unit, rule=each.finding.rule)
        for each in health.standings.get(event.host, ())
        if each.probe == PROBE and each.finding.rule == rma.RETURNED_PART and each.finding.unit not in units
    )
    return HealthReported(at=event.at, host=event.host, boot=event.boot, probe=PROBE, findings=findings, gone=gone)


def lost(step: Step, host: HostId) -> None:
    """A host was lost while in service."""
    remember(step, host, "lost")


def in_service(step: Step, host: HostId) -> None:
    """A host has passed its verification; the first time its life in service begins."""
    step.state.health.history.first_seen.setdefault(host, step.now)


def repaired(step: Step, host: HostId) -> None:
    """A person says that the host is repaired: what was before makes it no lemon, except how often that happened."""
    step.state.health.history.repaired[host] = step.now


def job_began(step: Step, hosts: tuple[HostId, ...]) -> None:
    """A job starts. What a host runs by itself is counted, for the rate at which it fails there."""
    if len(hosts) != 1:
        return
    days = step.state.health.history.alone.setdefault(hosts[0], [])
    today = step.now // DAY
    if days and days[-1][0] == today:
        days[-1] = (today, days[-1][1] + 1)
    else:
        days[:] = [*(each for each in days if each[0] > today - DAYS_ALONE), (today, 1)]


def job_failed(step: Step, host: HostId, job: JobId, nodes: int, offence: bool) -> None:
    """A job was interrupted, and this host is the first cause: by itself, or because the job's worker failed there."""
    remember(step, host, "job-failed", job=job, nodes=nodes, offence=offence)
