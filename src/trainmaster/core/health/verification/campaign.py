"""Hosts on which distinct programs fail.

One program that fails on one host may be the program, even if it fails there a hundred times. Three different ones that
fail on one host and on none of its peers, which ran as much: that is the host. The number of faults says nothing (one
bad region of memory makes any number of them), so the answer stands after the third program and not after the last.
"""

from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.health.verification.outcome import Outcome, Result

LEAST_PROGRAMS: Final = 3
_TASK: Final = "campaign"


class Tally(Value):
    """What ran on a host."""

    host: str
    programs: int
    """Distinct ones that ran."""
    failing: int
    """Distinct ones that failed."""
    faults: int = 0


def judge(tallies: Sequence[Tally]) -> tuple[Result, ...]:
    """A result a host, in their order."""
    return tuple(_one(tally, [other for other in tallies if other is not tally]) for tally in tallies)


def _one(tally: Tally, peers: Sequence[Tally]) -> Result:
    assert 0 <= tally.failing <= tally.programs, tally
    proving = [peer for peer in peers if peer.failing == 0 and peer.programs >= LEAST_PROGRAMS]
    failing_peers = [peer.host for peer in peers if peer.failing]
    outcome, sentence = Outcome.PASS, f"none of {tally.programs} programs failed"
    if tally.programs == 0:
        outcome, sentence = Outcome.NOT_RUN, "nothing ran on it"
    elif tally.failing and (failing_peers or not proving):
        what = f"and some on {', '.join(failing_peers[:3])}" if failing_peers else "and no peer shows how many should"
        outcome, sentence = Outcome.INVALID, f"{tally.failing} programs failed on it, {what}"
    elif tally.failing >= LEAST_PROGRAMS:
        sentence = f"{tally.failing} different programs failed on it and none on {len(proving)} peers: it is the host"
        outcome = Outcome.FAIL
    elif tally.failing:
        outcome = Outcome.INVALID
        sentence = f"{tally.failing} programs failed on it: fewer than {LEAST_PROGRAMS} may be the programs"
    numbers: dict[str, int | float] = {"programs": tally.programs, "failing": tally.failing, "faults": tally.faults}
    return Result(task=_TASK, part="programs", unit=tally.host, outcome=outcome, sentence=sentence, numbers=numbers)
