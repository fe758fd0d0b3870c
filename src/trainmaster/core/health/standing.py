"""What stands against hosts: findings of probes become standings, and leave again.

Two kinds of source. A *state* is looked at anew again and again (NVML, counters, links): its probe says when it holds
no longer. An *event* was written once (the kernel log) and never says that it is over: it ends with its boot, where a
boot is what it asks for, with the remedy that answers it, or when it was not seen again for long. So a reboot forgets
a lost GPU, and does not forget a part that has to be sent back.

What a report says of another boot than the present one says nothing of now: it goes to the history alone. What is seen
while an operation works on the host may be its doing (a reset loses the GPU for a moment); it stands, marked with the
operation, and is judged when the probes have looked again after it.

Everything is bounded: standings a host (the worst are kept) and the text of each finding.
"""

from collections.abc import Iterable
from typing import Final

from trainmaster.core.base.ids import HostId, OperationId
from trainmaster.core.base.time import Instant, after, seconds
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.health.book import Standing
from trainmaster.core.health.events import HealthReported, PartsSeen
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.health.words import OK, Remedy, Verdict
from trainmaster.core.maintenance.visit import VisitPhase
from trainmaster.core.step import Step

TRAINING: Final = "training"
"""What jobs tell of the hosts that they run on."""
EVENT_PROBES: Final = frozenset({"kernel-log", TRAINING})
VERIFICATION: Final = "verification"
"""Findings of the server itself carry this as their probe: the host failed to prove that it works."""
DIAGNOSIS: Final = "diagnosis"
"""And this: somebody looked into a suspect, and it failed."""
RETURN: Final = "rma"
"""And this: a person sends a part back."""

STANDINGS_MAX: Final = 64
EVIDENCE_BYTES: Final = 4_096
TEXT_MAX: Final = 400
NAMES_MAX: Final = 16

ECHO: Final = seconds(10)
"""Lines of what an operation did are still read for so long after it."""

BEYOND_A_BOOT: Final = frozenset({Remedy.TRIAGE, Remedy.RMA, Remedy.CONFIG})
"""What asks for these is not mended by booting."""
ANSWERS: Final = {
    Remedy.DIAGNOSE: frozenset({Remedy.DIAGNOSE}),
    Remedy.RESET_GPU: frozenset({Remedy.RESET_GPU_LATER, Remedy.RESET_GPU}),
    Remedy.REBOOT: frozenset({Remedy.RESET_GPU_LATER, Remedy.RESET_GPU, Remedy.REBOOT}),
}
"""What events ask for, that is answered when a remedy was carried out."""

_AT_WORK: Final = (VisitPhase.APPLYING, VisitPhase.REBOOTING, VisitPhase.CHECKING, VisitPhase.RETURNING)


def reported(step: Step, event: HealthReported) -> None:
    """Findings of a probe: new ones stand, known ones are renewed, what is gone stands no more."""
    host = step.state.hosts[event.host]
    if host.boot and event.boot != host.boot:
        _too_late(step, event)
        return
    step.state.health.looked[event.host] = event.boot
    gone = {(each.unit, each.rule) for each in event.gone}
    known = {_key(each.finding): each for each in at(step, host.id)}
    known = {key: each for key, each in known.items() if not (each.probe == event.probe and key in gone)}
    for finding in event.findings:
        if finding.verdict is Verdict.SKIPPED or finding.answer == OK:
            known.pop(_key(finding), None)
            continue
        stands = _renewed(step, event, host, known.get(_key(finding)), _bounded(finding))
        known[_key(finding)] = stands
    _store(step, host.id, known.values())


def _key(finding: Finding) -> tuple[str, str]:
    return finding.unit, finding.rule


def _too_late(step: Step, event: HealthReported) -> None:
    """From a boot that is over: it happened, and it does not hold."""
    for finding in event.findings:
        if finding.verdict is Verdict.BAD and not finding.echo_of:
            offenders.remember(
                step,
                event.host,
                "verdict",
                finding.unit,
                rule=finding.rule,
                answer=finding.answer,
                outcome="of an earlier boot",
                offence=finding.offence,
            )


def _renewed(step: Step, event: HealthReported, host: Host, before: Standing | None, finding: Finding) -> Standing:
    stands = Standing(
        probe=event.probe,
        boot=event.boot,
        finding=finding,
        since=before.since if before is not None else event.at,
        last=event.at,
        during=_at_work(step, host, event),
    )
    if before is None or finding.answer.rank > before.finding.answer.rank:
        return stands  # who took it on has not seen this
    return stands.but(
        acknowledged_by=before.acknowledged_by,
        acknowledged_until=before.acknowledged_until,
        acknowledged_why=before.acknowledged_why,
    )


def _at_work(step: Step, host: Host, event: HealthReported) -> OperationId | None:
    """The operation that may have caused what is seen now. What the kernel writes after a boot is no doing of it."""
    visit = step.state.maintenance.visits.get(host.id)
    if visit is None or visit.phase not in _AT_WORK:
        return None
    name = visit.current or next(iter((*visit.applied, *visit.unchecked)), None)
    if event.probe in EVENT_PROBES:
        if visit.phase is VisitPhase.CHECKING:
            return None
        if visit.phase is VisitPhase.RETURNING and step.now > visit.since + ECHO:
            return None
    return name


def _bounded(finding: Finding) -> Finding:
    evidence: list[str] = []
    left = EVIDENCE_BYTES
    for line in finding.evidence[:NAMES_MAX]:
        kept = line[: min(left, 1_024)]
        evidence.append(kept)
        left -= len(kept)
        if left <= 0:
            break
    return finding.but(
        evidence=tuple(evidence),
        lines=finding.lines[: len(evidence)],
        summary=finding.summary[:TEXT_MAX],
        cause_of=finding.cause_of[:NAMES_MAX],
        next_evidence=tuple(text[:TEXT_MAX] for text in finding.next_evidence[:NAMES_MAX]),
    )


def at(step: Step, host: HostId) -> tuple[Standing, ...]:
    """What stands against a host."""
    return step.state.health.standings.get(host, ())


def _store(step: Step, host: HostId, standings: Iterable[Standing]) -> None:
    """Keeps the worst ones, asks for the wake-up of those that expire, and says that the host is to be looked at."""
    found = sorted(standings, key=lambda each: (each.finding.answer.rank, each.last), reverse=True)
    kept = tuple(sorted(found[:STANDINGS_MAX], key=lambda each: _key(each.finding)))
    if kept:
        step.state.health.standings[host] = kept
    else:
        step.state.health.standings.pop(host, None)
    step.doubt(host)
    expire = step.state.health.conduct.expire
    ends = [after(each.last, expire) for each in kept if _expires(each)]
    wake = f"stands/{host}"
    if not ends:
        step.unwake(wake)
    elif step.state.wakes.get(wake) != min(ends):
        step.wake(wake, min(ends))
    step.ailing.append(host)


def _expires(standing: Standing) -> bool:
    return standing.probe in EVENT_PROBES and standing.finding.verdict is not Verdict.BAD


def expired(step: Step, name: HostId) -> None:
    """Events that were not seen again for so long stand no more. How long that is may have changed meanwhile."""
    expire = step.state.health.conduct.expire
    _store(step, name, [each for each in at(step, name) if not (_expires(each) and each.last + expire <= step.now)])


def _keep(step: Step, host: HostId, kept: list[Standing]) -> None:
    if len(kept) < len(at(step, host)):
        _store(step, host, kept)


def booted(step: Step, name: HostId) -> None:
    """The host registered, perhaps under another boot: states are told anew, and events ended with their boot unless
    they ask for what no boot gives."""
    boot = step.state.hosts[name].boot
    _keep(step, name, [each for each in at(step, name) if each.boot == boot or outlives_a_boot(each)])


def outlives_a_boot(standing: Standing) -> bool:
    """Of events what no boot mends; and what the server itself found, until it finds otherwise."""
    if standing.probe in EVENT_PROBES:
        return standing.finding.remedy in BEYOND_A_BOOT
    return standing.probe in (VERIFICATION, DIAGNOSIS, RETURN, offenders.PROBE)


def answered(step: Step, name: HostId, remedy: Remedy, asked_at: Instant) -> None:
    """A remedy was carried out: the events that asked for it, and those that it caused itself, are over. States are
    looked at again by their probes."""
    answers = ANSWERS.get(remedy, frozenset())

    def holds(each: Standing) -> bool:
        if each.probe not in EVENT_PROBES or each.finding.remedy in BEYOND_A_BOOT:
            return True
        return each.during is None and not (each.finding.remedy in answers and each.last <= asked_at)

    _keep(step, name, [each for each in at(step, name) if holds(each)])


def looked_again(step: Step, name: HostId) -> None:
    """The probes had time to look after an operation: the events of that time were its doing, and what states still
    say is true."""
    kept = []
    for each in at(step, name):
        if each.during is None:
            kept.append(each)
        elif each.probe not in EVENT_PROBES or each.finding.remedy in BEYOND_A_BOOT:
            kept.append(each.but(during=None))
    if len(kept) < len(at(step, name)) or any(each.during is not None for each in at(step, name)):
        _store(step, name, kept)


def own(step: Step, name: HostId, finding: Finding, probe: str = VERIFICATION) -> None:
    """A finding of the server itself."""
    stands = Standing(
        probe=probe, boot=step.state.hosts[name].boot, finding=_bounded(finding), since=step.now, last=step.now
    )
    others = [each for each in at(step, name) if _key(each.finding) != _key(finding)]
    _store(step, name, [*others, stands])


def verified(step: Step, name: HostId) -> None:
    """The host has proved that it works."""
    _keep(step, name, [each for each in at(step, name) if each.probe != VERIFICATION])


def clear(step: Step, name: HostId) -> None:
    """Somebody says that the host is repaired."""
    if at(step, name):
        _store(step, name, [])


def settle(step: Step, name: HostId, unit: str) -> None:
    """The return of a unit is over, and with it what asked for it: all that stands, if the host itself went back."""

    def asked(each: Standing) -> bool:
        same = each.finding.unit == unit
        return same or (unit == "host" and each.probe != RETURN)

    _keep(step, name, [each for each in at(step, name) if not asked(each)])


def bad(step: Step, name: HostId) -> tuple[Standing, ...]:
    """What is bad of a host by itself, the worst first; not what may be the doing of an operation."""
    found = [each for each in at(step, name) if _is_bad(each) and each.during is None]
    return tuple(sorted(found, key=lambda each: each.finding.answer.rank, reverse=True)) if found else ()


def _is_bad(standing: Standing) -> bool:
    return standing.finding.verdict is Verdict.BAD and not standing.finding.echo_of


def doubtful(step: Step, name: HostId, since: Instant, units: Iterable[str]) -> tuple[Standing, ...]:
    """What keeps a host from returning although nothing is bad: a state that is unknown since then or of these units,
    and what may be the doing of an operation or the fault itself. Events that were not read are past; whether the host
    works is what its verification says."""
    units = frozenset(units)

    def doubts(each: Standing) -> bool:
        if each.finding.verdict is Verdict.UNKNOWN and each.probe not in EVENT_PROBES:
            return each.since >= since or each.finding.unit in units
        return _is_bad(each) and each.during is not None

    return tuple(each for each in at(step, name) if doubts(each))


def parts_seen(step: Step, event: PartsSeen) -> None:
    """The parts of a host, as an agent sees them now."""
    step.state.health.looked[event.host] = event.boot
    offenders.parts_seen(step, event)
    report = offenders.report_of_parts(step, event)
    if report.findings or report.gone:
        reported(step, report)
