"""Whether to try again.

Two limits, both of the job as a whole (a count on each agent can be escaped by moving on to the next host):
- the same failure, at start, several times in a row: nothing will change, whichever hosts are taken. Stop, keep the
  text, blame no host. The row ends when the signature changes or a step is completed.
- more failures of any kind within a window than the budget allows: a crash loop.
Losses of hosts are not the job's fault and do not count here.
"""

from collections.abc import Sequence

from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.scheduling.job import FailureNote
from trainmaster.core.scheduling.request import RestartBudget


class Advice(Value):
    again: bool
    reason: Reason
    """Why not, or how much is left."""


def advise(budget: RestartBudget, failures: Sequence[FailureNote], now: Instant) -> Advice:
    """Judges after the newest failure, which is the last of `failures`."""
    assert failures
    row = _same_in_a_row(failures)
    if row >= budget.same_failure_limit:
        hosts = len({note.host for note in failures[-row:]})
        sentence = (
            f"failed {row} times in a row at start with the same error, on {hosts} host(s): {failures[-1].signature}"
        )
        return _stop(
            Token.SAME_FAILURE_REPEATED, sentence, {"times": row, "limit": budget.same_failure_limit, "hosts": hosts}
        )
    recent = sum(1 for note in failures if note.at > now - budget.window)
    window_s = in_seconds(budget.window)
    if recent > budget.max_restarts:
        sentence = f"{recent} failures within {window_s:g} s; the budget allows {budget.max_restarts} restarts"
        return _stop(Token.RESTART_BUDGET_SPENT, sentence, {"failures": recent, "max_restarts": budget.max_restarts})
    left = budget.max_restarts - recent
    sentence = f"restart {recent} of {budget.max_restarts} within {window_s:g} s"
    return Advice(again=True, reason=Reason(token=Token.RESTART, sentence=sentence, numbers={"left": left}))


def _stop(token: Token, sentence: str, numbers: dict[str, int | float | str]) -> Advice:
    return Advice(again=False, reason=Reason(token=token, sentence=sentence, numbers=numbers))


def _same_in_a_row(failures: Sequence[FailureNote]) -> int:
    last = failures[-1]
    row = 0
    for note in reversed(failures):
        if not note.at_start or note.signature != last.signature:
            break
        row += 1
    return row
