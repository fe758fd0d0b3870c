"""Returns that a person opens or closes, and the host they concern.

A part that is sent back leaves its host incomplete, so the host is out for as long: opening a return holds it, in a
case that waits for the return, whatever the mode of its pool and its breaker say. That is no decision of health, it is
a person's, and people are asked by nobody. What runs for the host at that moment is taken back: a reset of a part that
is on its way to its vendor proves nothing.

The return itself stands against the host, so it is shown like every finding. When it is closed, that and what asked for
it is over, whatever came of it; with nothing else bad and no other return the host goes back, through the verification
that health demands. Who releases the host before says that it works without the part, or with another; the return stays
open then, since only the vendor's answer ends it.
"""

from typing import Final

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.health import cases, ladder, remedies, standing
from trainmaster.core.health.book import Case, CaseState, Health, Rma
from trainmaster.core.health.events import RmaClosed, RmaOpened
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender import acts as offenders
from trainmaster.core.health.offender import rma
from trainmaster.core.health.words import Remedy, Verdict
from trainmaster.core.step import Step

SENT_BACK: Final = "sent-back"


def opened(step: Step, event: RmaOpened) -> None:
    """A person sends a part back: its host is held until that is over."""
    before = step.state.health.returned
    made = rma.opened(step, event)
    if step.state.health.returned == before:
        return  # it is under way already
    standing.own(step, made.host, _finding(made), standing.RETURN)
    bad = standing.bad(step, made.host)
    case = cases.of_host(step, made.host) or cases.begin(step, made.host, bad)
    why = f"{made.id}: {event.reason}"
    remedies.withdraw(step, case, because(Token.WANTS_RMA, why))
    if not case.taken or case.stage == "returning":
        case.closed_how = ""
        cases.take(step, case)
    step.unwake(f"away/{case.host}")
    if not _is_open(step, case):
        case.rma = made.id
    made.case = case.id
    cases.hand_over(step, case, Remedy.RMA, why)


def _finding(made: Rma) -> Finding:
    return Finding(
        unit=made.unit,
        verdict=Verdict.BAD,
        remedy=Remedy.RMA,
        rule=SENT_BACK,
        summary=f"goes back as {made.id}: {made.reason}",
        evidence=(made.reason,),
        offence=False,
    )


def _is_open(step: Step, case: Case) -> bool:
    known = step.state.health.rmas.get(case.rma) if case.rma is not None else None
    return known is not None and known.closed_at is None


def open_at(health: Health, host: HostId) -> list[Rma]:
    """Returns of a host that are open, oldest first."""
    return [one for one in health.rmas.values() if one.host == host and one.closed_at is None]


def closed(step: Step, event: RmaClosed) -> None:
    """A person says what came of it. Raises `KeyError` if there is none of this id, `IllegalTransition` if it is
    closed."""
    one = step.state.health.rmas[event.rma]
    rma.closed(step, event)
    for case in sorted(step.state.health.cases.values(), key=Case.number):
        if case.state is CaseState.HELD and one.id in (case.rma, _asked_by(one, case)):
            _over(step, case, one, f"{one.id} is closed as {event.outcome}: {event.reason}")


def _asked_by(one: Rma, case: Case) -> object:
    return one.id if one.case == case.id else None


def _over(step: Step, case: Case, one: Rma, why: str) -> None:
    """What the return was for stands no more; the host goes back if nothing else keeps it."""
    standing.settle(step, case.host, one.unit)
    others, bad = open_at(step.state.health, case.host), standing.bad(step, case.host)
    if others:
        case.rma = others[0].id
        cases.hand_over(step, case, Remedy.RMA, f"{why}; {others[0].id} is open still")
    elif bad:
        worst = bad[0].finding
        case.unit, case.rule, case.rma = worst.unit, worst.rule, None
        remedy = worst.remedy if ladder.is_for_people(worst.remedy) else Remedy.TRIAGE
        cases.hand_over(step, case, remedy, f"{why}, and {worst.unit} is bad: {worst.summary}")
    else:
        if one.outcome in ("replaced", "repaired"):
            offenders.repaired(step, case.host)
        cases.let_go(step, case, "released", why)
