"""A rank hung on a host, and was ended for it.

Once says nothing of the host: what hangs is mostly the program. If it happens there again, whatever the job, the host
is suspect, so that it is diagnosed when it is free, and its place goes to a spare. It never becomes bad by that alone:
a program that hangs on its rank 0 would take one good host after the other out.
"""

from typing import Final

from trainmaster.core.base.ids import HostId, JobId
from trainmaster.core.base.time import DAY, Instant
from trainmaster.core.health import standing
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.health.offender.notes import of_host
from trainmaster.core.health.words import SUSPECT
from trainmaster.core.step import Step

RULE: Final = "rank-hung"
AGAIN_WITHIN: Final = 35 * DAY


def count(step: Step, host: HostId) -> int:
    """How often ranks hung there, as far back as it matters."""
    since = Instant(step.now - AGAIN_WITHIN)
    return sum(1 for each in of_host(step.state.health.history, host, since).incidents if each.rule == RULE)


def noted(step: Step, host: HostId, job: JobId, nodes: int, sentence: str) -> None:
    """Writes it into the host's history; from the second time on it stands against the host."""
    before = count(step, host)
    offenders.remember(step, host, "job-failed", rule=RULE, job=job, nodes=nodes, offence=False)
    if before == 0:
        return
    finding = Finding(
        unit="host",
        verdict=SUSPECT.verdict,
        remedy=SUSPECT.remedy,
        rule=RULE,
        summary=f"{sentence}; ranks hung here {before} times before" if before > 1 else f"{sentence}; the second time",
        evidence=(sentence,),
        confidence="low",
        next_evidence=("its verification; whether the same job hangs on other hosts too",),
    )
    standing.own(step, host, finding, standing.TRAINING)
