"""Which remedy comes next: the lowest rung that can help and was not tried often enough.

What a finding asks for says where the ladder is entered; what was tried in the same fault session says how far it was
climbed. A rung whose work the catalogue does not have is passed over, and the choice says so. After the top comes
triage, which is a person's. *diagnose* is no rung among the others: it finds out, it mends nothing; where the catalogue
has no way to find out, a person has to.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from trainmaster.core.base.ids import KindName
from trainmaster.core.base.value import Value
from trainmaster.core.health.conduct import Rung
from trainmaster.core.health.words import OK, Answer, Remedy, Verdict

DEEP_CHECK: Final = Rung(remedy=Remedy.DIAGNOSE, kind=KindName("deep-check"))
"""How a suspect is looked into, unless the ladder has a rung of its own for it."""

_FOR_PEOPLE: Final = (Remedy.TRIAGE, Remedy.RMA, Remedy.CONFIG)


class Choice(Value):
    """What follows."""

    rung: Rung | None
    """None: nothing that runs by itself."""
    remedy: Remedy
    """That of the rung, or what a person has to do."""
    number: int = 0
    """Which try of the rung it is, from 1."""
    passed_over: tuple[str, ...] = ()
    """Why lower rungs are not used, a sentence each."""


def rank(remedy: Remedy) -> tuple[int, int]:
    """Grows with how much a remedy takes."""
    return Answer(verdict=OK.verdict, remedy=remedy).rank


def choose(
    ladder: Sequence[Rung], wanted: Remedy, tried: Mapping[Remedy, int], problem: Callable[[KindName], str]
) -> Choice:
    """The next remedy for what asks for `wanted`. `tried`: how often each was tried and did not help. `problem`: why a
    kind of operation can't be used on the host; empty: it can."""
    if wanted in _FOR_PEOPLE:
        return Choice(rung=None, remedy=wanted)
    if wanted in (Remedy.NONE, Remedy.RESTART_APP):
        return Choice(rung=None, remedy=Remedy.TRIAGE)
    passed: list[str] = []
    for rung in _rungs(ladder, wanted):
        times = tried.get(rung.remedy, 0)
        why = problem(rung.kind)
        if why:
            passed.append(f"{rung.remedy} is passed over: {why}")
        elif times >= rung.tries:
            passed.append(f"{rung.remedy} was tried {times} of {rung.tries} times")
        else:
            return Choice(rung=rung, remedy=rung.remedy, number=times + 1, passed_over=tuple(passed))
    return Choice(rung=None, remedy=Remedy.TRIAGE, passed_over=tuple(passed))


def _rungs(ladder: Sequence[Rung], wanted: Remedy) -> list[Rung]:
    """Those that can help, from the foot."""
    if wanted is Remedy.DIAGNOSE:
        return [rung for rung in ladder if rung.remedy is Remedy.DIAGNOSE] or [DEEP_CHECK]
    least = max(rank(wanted), rank(Remedy.RESET_GPU))
    return [rung for rung in ladder if rank(rung.remedy) >= least and rung.remedy not in _FOR_PEOPLE]


def is_for_people(remedy: Remedy) -> bool:
    return remedy in _FOR_PEOPLE


def worst_of(answers: Sequence[Answer]) -> Remedy:
    """The remedy of the worst answer."""
    assert all(answer.verdict is Verdict.BAD for answer in answers), answers
    return max(answers, key=lambda answer: answer.rank).remedy
