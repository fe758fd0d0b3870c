"""Once a day, while anything stands in the history of the last weeks, all hosts are surveyed for lemons; what is found
goes the way of every finding: it stands against the host, opens a case, and is advised or acted on by its pool.
"""

from typing import Final

from trainmaster.core.base.time import Instant, after
from trainmaster.core.health import standing
from trainmaster.core.health.events import Gone, HealthReported
from trainmaster.core.health.offender.acts import EVERY, PROBE, WAKE
from trainmaster.core.health.offender.lemon import Subject, Suspect, survey
from trainmaster.core.health.offender.record import LEMON
from trainmaster.core.step import Step

_GONE: Final = (Gone(unit="host", rule=LEMON),)


def suspects(step: Step) -> tuple[Suspect, ...]:
    """Hosts at or near the limit now, the worst first."""
    state = step.state
    subjects = [
        Subject(host=host.id, pod=host.spec.pod) for host in state.hosts.values() if host.spec.kind == "compute"
    ]
    return survey(state.health.history, subjects, step.now, state.health.conduct.limits)


def look(step: Step, _: str) -> None:
    """The daily survey."""
    state = step.state
    health = state.health
    found = {each.host: each.finding() for each in suspects(step) if each.answer is not None}
    for name, host in state.hosts.items():
        known = any(each.probe == PROBE and each.finding.rule == LEMON for each in health.standings.get(name, ()))
        finding = found.get(name)
        if finding is None and not known:
            continue
        findings, gone = ((finding,), ()) if finding is not None else ((), _GONE)
        event = HealthReported(at=step.now, host=name, boot=host.boot, probe=PROBE, findings=findings, gone=gone)
        standing.reported(step, event)
    start = Instant(step.now - health.conduct.limits.window)
    if any(its and its[-1].at >= start for its in health.history.incidents.values()):
        step.wake(WAKE, after(step.now, EVERY))
