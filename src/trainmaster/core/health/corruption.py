"""A job says that a host computed or kept something wrongly: its replicas disagree, and this host's is the odd one.

One flipped bit may be chance: memory without ECC flips some, and a look at the host proves nothing. So the first time
the host is suspect, to be diagnosed with exact references; the second time within the days that history looks back it
is bad, whatever a check says, since only training at full load may show it.
"""

from typing import Final

from trainmaster.core.base.ids import HostId, JobId
from trainmaster.core.base.time import DAY, Instant
from trainmaster.core.health import standing
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.health.offender.notes import of_host
from trainmaster.core.health.words import SUSPECT, TRIAGE
from trainmaster.core.step import Step

RULE: Final = "replicas-disagree"
AGAIN_WITHIN: Final = 35 * DAY


def suspected(step: Step, host: HostId, job: JobId, nodes: int, sentence: str) -> None:
    """Writes it into the host's history, and lets it stand against the host."""
    since = Instant(step.now - AGAIN_WITHIN)
    again = any(each.rule == RULE for each in of_host(step.state.health.history, host, since).incidents)
    answer = TRIAGE if again else SUSPECT
    offenders.remember(step, host, "job-failed", rule=RULE, answer=answer, job=job, nodes=nodes)
    finding = Finding(
        unit="host",
        verdict=answer.verdict,
        remedy=answer.remedy,
        rule=RULE,
        summary=f"{sentence}{'; not the first time' if again else ''}",
        evidence=(sentence,),
        confidence="high" if again else "medium",
        next_evidence=("its verification with exact references; ECC counters of its memory and GPUs",),
    )
    standing.own(step, host, finding, standing.TRAINING)
