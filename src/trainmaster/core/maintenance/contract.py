"""What jobs may ask of maintenance, and what they get.

A job that says nothing is moved to a spare after a checkpoint. Its contract may ask for notice, for not being touched
before an instant, and for being let to its end when that is soon. A contract delays planned work; emergencies and
failures do not read it.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from trainmaster.core.base.ids import AttemptId, HostId, JobId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import Instant, after, in_seconds
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.maintenance.operation import Operation
from trainmaster.core.recovery.attempt import Attempt, is_alike
from trainmaster.core.scheduling.job import Job
from trainmaster.core.step import Step

TOKENS: Final = frozenset({Token.JOB_PROTECTED, Token.JOB_ENDS_SOON, Token.NO_REPLACEMENT, Token.REPLACEMENT_PROMISED})
"""Refusals of a job, which hold up nobody else."""


class Supply:
    """What there is to replace hosts of an attempt with, at one moment."""

    __slots__ = ("_claims", "free", "spares")

    def __init__(self, step: Step, attempt: Attempt) -> None:
        hosts = step.state.hosts
        self.spares = {name for name in attempt.spares if hosts[name].is_usable()}
        self.free = step.derived.free.count(attempt.cluster, attempt.stack)
        self._claims: tuple[set[HostId], int] | None = None

    def claims(self, step: Step, attempt: Attempt) -> tuple[set[HostId], int]:
        """Members that were told to leave, or are on their way, and still need somebody in their place; and what others
        were promised. Counted only where it matters, since it takes a look at all members."""
        if self._claims is None:
            leaving = step.derived.draining.union(step.derived.planner.noticed.get(attempt.id, ()))
            self._claims = leaving & step.derived.members_of(attempt), _promised(step, attempt)
        return self._claims


Supplies = dict[AttemptId, Supply]
"""Who asks for many operations in a row keeps them, for as long as nothing else happens in between."""


def refusal(step: Step, operation: Operation, known: Supplies | None = None) -> Reason | None:
    """Why a job on one of the units does not allow it now. Asks for a wake-up where time alone will change that."""
    if operation.spec.priority is Priority.EMERGENCY or operation.by == HEALTH:
        return None
    told = operation.job is not None or operation.evict_at is not None
    return next(iter(refusals(step, operation.units, told, operation.job, known).values()), None)


def refusals(
    step: Step, units: Sequence[HostId], told: bool, job: JobId | None = None, known: Supplies | None = None
) -> dict[HostId, Reason]:
    """The units whose jobs do not allow that all of these leave now, with why. `told`: a job that can't be moved will
    be stopped after a checkpoint, so a lack of spares is no reason. `job`: it leaves as a whole, and asked for it."""
    found: dict[HostId, Reason] = {}
    known = known if known is not None else {}
    for attempt, members in _hit(step, units):
        spec = step.state.jobs[attempt.job]
        reason = _protected(step, spec) or _ends_soon(step, spec, attempt) if attempt.job != job else None
        if reason is None and not told:
            supply = known.get(attempt.id)
            if supply is None:
                supply = known[attempt.id] = Supply(step, attempt)
            reason = _unreplaced(step, spec, attempt, members, units, supply)
        if reason is not None:
            found |= dict.fromkeys(members, reason)
    return found


def _hit(step: Step, units: Sequence[HostId]) -> list[tuple[Attempt, list[HostId]]]:
    """The running attempts whose members are among the units, with those members."""
    hit: dict[AttemptId, list[HostId]] = {}
    for unit in units:
        host = step.state.hosts[unit]
        if host.allocation is not None and host.role == "member":
            hit.setdefault(host.allocation, []).append(unit)
    attempts = ((step.state.attempts[name], members) for name, members in hit.items())
    return [(attempt, members) for attempt, members in attempts if attempt.is_live()]


def _call_by(step: Step, at: Instant) -> None:
    """Lines are served at this instant, or earlier if somebody else in them asked for that."""
    known = step.state.wakes.get("lines/all")
    if known is None or at < known:
        step.wake("lines/all", at)


def _protected(step: Step, job: Job) -> Reason | None:
    until = job.spec.contract.protected_until
    if until is None or until <= step.now:
        return None
    _call_by(step, until)
    left_s = in_seconds(until - step.now)
    sentence = f"{job.spec.name} ({job.id}) is not to be touched for another {left_s:.0f} s"
    return because(Token.JOB_PROTECTED, sentence, left_s=round(left_s, 3))


def expected_end(job: Job, attempt: Attempt) -> Instant | None:
    """When the job should end by its own estimate, which counts from its placement."""
    expected = job.spec.contract.expected_duration
    return after(attempt.placed_at, expected) if expected is not None else None


def _ends_soon(step: Step, job: Job, attempt: Attempt) -> Reason | None:
    end, patience = expected_end(job, attempt), job.spec.contract.wait_for_end
    if end is None or patience == 0 or not step.now < end <= step.now + patience:
        return None
    _call_by(step, end)
    left_s = in_seconds(end - step.now)
    sentence = f"{job.spec.name} ({job.id}) should end in {left_s:.0f} s; it is let to its end"
    return because(Token.JOB_ENDS_SOON, sentence, left_s=round(left_s, 3))


def _unreplaced(
    step: Step, job: Job, attempt: Attempt, members: list[HostId], units: Sequence[HostId], supply: Supply
) -> Reason | None:
    """Whether hosts are there for those that leave: free ones, and spares of the attempt that stay. Who was let go
    before and has not gone yet takes one as well."""
    if job.spec.on_drain == "finish":
        return None
    leaving, hosts, index = set(units), step.state.hosts, step.derived.free
    spares = len(supply.spares) - len(supply.spares & leaving)
    free = supply.free - len([unit for unit in leaving if unit in index and hosts[unit].stack == attempt.stack])
    lost = f"{job.spec.name} ({job.id}) would lose {len(members)} of its hosts"
    short = len(members) - spares - free
    if 0 < short <= job.spec.spares - spares and _are_coming(step, attempt, leaving, short):
        sentence = f"{lost}; a spare of it is in maintenance, or its successor is, and will be back"
        return because(Token.REPLACEMENT_PROMISED, sentence, leaving=len(members), spares=spares, coming=short)
    if short > 0:
        sentence = f"{lost}; left to replace them: spares {spares}, free hosts {max(0, free)}"
        return because(Token.NO_REPLACEMENT, sentence, leaving=len(members), spares=spares, free=max(0, free))
    told, promised = supply.claims(step, attempt)
    going = len(told - leaving)
    if spares + free >= len(members) + going + promised:
        return None
    sentence = (
        f"{lost}; spares {spares} and free hosts {free} are left, and {going} of its hosts and {promised} of other jobs"
        f" that leave already get them first"
    )
    numbers = {"leaving": len(members), "spares": spares, "free": free, "going": going, "promised": promised}
    return Reason(token=Token.REPLACEMENT_PROMISED, sentence=sentence, numbers=dict(numbers))


def _are_coming(step: Step, attempt: Attempt, leaving: set[HostId], wanted: int) -> bool:
    """Whether so many hosts that may be spares of the attempt are worked on. An attempt that lacks spares is served
    before the queue, so they come to it."""
    visits, hosts = step.state.maintenance.visits, step.state.hosts
    there = (unit for unit in visits if unit not in leaving and is_alike(hosts[unit], attempt))
    away = (unit for unit in there if hosts[unit].state is not HostState.READY)
    return len(list(islice(away, wanted))) == wanted


def _promised(step: Step, attempt: Attempt) -> int:
    """Free hosts that other attempts of these hosts' kind will need for members that were told to leave."""
    promised = 0
    for name, units in step.derived.planner.noticed.items():
        other = step.state.attempts[name]
        if name != attempt.id and (other.cluster, other.stack) == (attempt.cluster, attempt.stack):
            promised += max(0, len(units) - len(other.spares))
    return promised
