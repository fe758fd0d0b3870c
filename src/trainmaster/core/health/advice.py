"""What health would do with a bad host, in one sentence with numbers: the remedy, who would be hit, what would be left.

Written when a case is observed, by the functions that would decide if the pool were acted on. Nothing here changes
anything, so views may ask again at any time.
"""

from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.commands import plan_drain
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.health import breaker
from trainmaster.core.health.book import Case
from trainmaster.core.health.conduct import HEALTH, PoolConduct
from trainmaster.core.health.ladder import Choice
from trainmaster.core.health.words import Remedy
from trainmaster.core.step import Step

_FOR_PEOPLE = {
    Remedy.TRIAGE: "hold it until a person has looked",
    Remedy.RMA: "hold it, and open an RMA",
    Remedy.CONFIG: "hold it until its setup is corrected",
}


def of(step: Step, case: Case, pool: PoolConduct | None, choice: Choice) -> Reason:
    """The advice of a case."""
    what = _what(case, choice)
    parts = [f"{case.unit}: {case.findings[0].summary}", f"would {what}", *choice.passed_over, _who(step, case)]
    numbers: dict[str, int | float | str] = {"remedy": choice.remedy}
    if pool is None:
        parts.append("no pool of health has the host, so nothing is done")
    else:
        level = breaker.level(step, pool)
        serves = step.state.hosts[case.host].state is HostState.READY
        left, total = level.in_service - serves, level.in_service + level.out
        parts.append(f"{left} of {total} hosts of {pool.name} would be in service")
        numbers |= {"left": left, "hosts": total}
        refusal = breaker.limit(step, pool)
        parts += [f"the breaker would not let it: {refusal.sentence}"] if refusal is not None else []
    return Reason(token=Token.HEALTH_OBSERVES, sentence="; ".join(parts), numbers=numbers)


def _what(case: Case, choice: Choice) -> str:
    if choice.rung is None:
        return _FOR_PEOPLE[choice.remedy]
    return f"drain {case.host} and run {choice.rung.kind} ({choice.remedy}, try {choice.number} of {choice.rung.tries})"


def _who(step: Step, case: Case) -> str:
    """The job that would have to move."""
    host = step.state.hosts[case.host]
    if host.state is not HostState.READY:
        return f"{host.id} is {host.state.value}"
    (item,) = plan_drain(step.state, [host.id], HEALTH)
    return item.sentence if item.job is not None else "no job runs on it"
