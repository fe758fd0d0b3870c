"""What stands against hosts: events of probes become standings, and leave again."""

from trainmaster.core.health.book import Standing
from trainmaster.core.health.events import HealthReported, PartsSeen
from trainmaster.core.health.offender import acts
from trainmaster.core.step import Step


def reported(step: Step, event: HealthReported) -> None:
    """Findings of a probe: new ones stand, known ones are renewed, what is gone stands no more. What another boot saw
    of the present one says nothing."""
    host = step.state.hosts[event.host]
    if host.boot and event.boot != host.boot:
        return
    step.state.health.looked[event.host] = event.boot
    gone = {(each.unit, each.rule) for each in event.gone}
    known = {(each.finding.unit, each.finding.rule): each for each in step.state.health.standings.get(event.host, ())}
    known = {key: each for key, each in known.items() if not (each.probe == event.probe and key in gone)}
    for finding in event.findings:
        key = finding.unit, finding.rule
        before = known.get(key)
        since = before.since if before is not None else event.at
        known[key] = Standing(probe=event.probe, boot=event.boot, finding=finding, since=since, last=event.at)
    step.state.health.standings[event.host] = tuple(known[key] for key in sorted(known))


def parts_seen(step: Step, event: PartsSeen) -> None:
    """The parts of a host, as an agent sees them now."""
    step.state.health.looked[event.host] = event.boot
    acts.parts_seen(step, event)
    report = acts.report_of_parts(step, event)
    if report.findings or report.gone:
        reported(step, report)
