"""RMA: a part on its way to its vendor and back, with the proof that goes along.

A return is opened by a person or by a case that ended in rma, at most one at a time for a slot. While it is open, a
look that sees another part in the slot names the successor and advises to close it; nothing closes by itself, since
only a person knows what the vendor said.

A part that was found without fault is remembered for it: in the slot that it came from the next fault asks for another
thing than another part (`advice`), and wherever it shows up again it is named (`named`), so that nobody hunts a new
fault of a known part.

The *bundle* is what a vendor wants to see: everything that is known of the part and of its slot, with the lines that
prove it, in an order and a form that give the same bytes each time.
"""

from typing import Final

from trainmaster.core.base.ids import CaseId, HostId, Owner, RmaId, rma_id
from trainmaster.core.base.machine import Machine, State
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.book import Health, Rma
from trainmaster.core.health.events import PartsSeen, RmaClosed, RmaOpened, RmaOutcome
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.offender.advice import is_slot_of
from trainmaster.core.health.offender.identity import Change, part_in
from trainmaster.core.health.offender.notes import of_part, of_slot
from trainmaster.core.health.offender.record import History, Incident, Return, Tenancy
from trainmaster.core.health.words import SUSPECT
from trainmaster.core.step import Step

EVIDENCE: Final = 16
"""Findings that go along at most, the newest."""
CLOSED_KEPT: Final = 200
"""Closed returns that are kept with their proof; of older ones it stays known what was sent, and what came of it."""
RETURNS_KEPT: Final = 4_096
RETURNED_PART: Final = "returned-part"


class RmaState(State):
    """How far a part has come."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    """Another part is in its slot."""
    CLOSED = "closed"


RMA_MACHINE: Final = Machine(
    "rma",
    RmaState.OPEN,
    [
        (RmaState.OPEN, RmaState.SUCCEEDED, "another part was seen in its slot"),
        (RmaState.SUCCEEDED, RmaState.OPEN, "the part itself is in its slot again"),
        (RmaState.OPEN, RmaState.CLOSED, "a person says what came of it"),
        (RmaState.SUCCEEDED, RmaState.CLOSED, "a person says what came of it"),
    ],
)


def state_of(rma: Rma) -> RmaState:
    """Read off the return, which has no other state than what is known of it."""
    if rma.closed_at is not None:
        return RmaState.CLOSED
    return RmaState.SUCCEEDED if rma.successor else RmaState.OPEN


def open_of(health: Health, host: HostId, unit: str) -> Rma | None:
    """The return that is open for a slot."""
    its = (rma for rma in health.rmas.values() if rma.closed_at is None and rma.host == host and rma.unit == unit)
    return next(its, None)


def opened(step: Step, event: RmaOpened) -> Rma:
    """Sends back what is in the slot now. If that is under way already, it stays one return."""
    health = step.state.health
    known = open_of(health, event.host, event.unit)
    if known is not None:
        return known
    return _open(step, event.host, event.unit, event.by, event.reason, event.case)


def open_for(step: Step, host: HostId, unit: str, reason: str, case: CaseId, by: Owner) -> RmaId:
    """What a case that ends in rma calls. Returns the return of the slot, an open one if there is one."""
    known = open_of(step.state.health, host, unit)
    return (known or _open(step, host, unit, by, reason, case)).id


def _open(step: Step, host: HostId, unit: str, by: Owner, reason: str, case: CaseId | None) -> Rma:
    health = step.state.health
    history = health.history
    health.returned += 1
    name = rma_id(health.returned)
    part = part_in(history, host, unit)
    serial = part.serial if part is not None else ""
    rma = Rma(
        id=name,
        host=host,
        unit=unit,
        serial=serial,
        model=part.model if part is not None else "",
        opened_at=step.now,
        by=by,
        reason=reason,
        case=case,
        evidence=_evidence(health, host, unit),
    )
    health.rmas[name] = rma
    chassis = history.chassis.get(host, "")
    history.returns.append(Return(rma=name, host=host, chassis=chassis, unit=unit, serial=serial, at=step.now))
    del history.returns[:-RETURNS_KEPT]
    return rma


def _evidence(health: Health, host: HostId, unit: str) -> tuple[Finding, ...]:
    """What stands against the slot, and what its cases had for proof, the newest first; each finding once."""
    standing = [each.finding for each in health.standings.get(host, ())]
    its = [case for case in (*health.closed, *health.cases.values()) if case.host == host]
    its.sort(key=lambda case: (case.opened_at, case.id), reverse=True)
    found = [*standing, *(finding for case in its for finding in case.findings)]
    return tuple(dict.fromkeys(each for each in found if each.unit == unit or "host" in (unit, each.unit)))[:EVIDENCE]


def closed(step: Step, event: RmaClosed) -> None:
    """A person says what came of it. Raises `KeyError` if there is none of this id, `IllegalTransition` if it is
    closed."""
    health = step.state.health
    rma = health.rmas[event.rma]
    RMA_MACHINE.step(rma.id, (), state_of(rma), RmaState.CLOSED, step.now, event.reason)
    rma.closed_at, rma.outcome, rma.closed_why = step.now, event.outcome, event.reason
    returns = health.history.returns
    for number, sent in enumerate(returns):
        if sent.rma == rma.id:
            returns[number] = sent.but(outcome=event.outcome, closed_at=step.now)
    ended = sorted((each for each in health.rmas.values() if each.closed_at is not None), key=_ended)
    for each in ended[: max(0, len(ended) - CLOSED_KEPT)]:
        del health.rmas[each.id]


def _ended(rma: Rma) -> tuple[Instant, int]:
    assert rma.closed_at is not None, rma.id
    return rma.closed_at, int(rma.id.partition("-")[2])


def looked(step: Step, event: PartsSeen, changes: tuple[Change, ...]) -> None:
    """A look at a host: open returns follow it to its new name, and learn what is in their slots now."""
    health = step.state.health
    renamed = {HostId(each.before): each.host for each in changes if each.kind == "renamed"}
    arrived = {each.unit: each.serial for each in changes if each.kind in ("swapped", "moved")}
    for rma in health.rmas.values():
        if rma.closed_at is not None:
            continue
        rma.host = renamed.get(rma.host, rma.host)
        if rma.host != event.host:
            continue
        part = part_in(health.history, rma.host, rma.unit)
        there = part.serial if part is not None else ""
        if rma.serial and there == rma.serial:
            rma.successor = ""
        elif rma.serial and there:
            rma.successor = there
        elif rma.unit in arrived:
            rma.successor = arrived[rma.unit] or "unknown"


def advice_of(rma: Rma) -> str:
    """What to do about a return now, in one sentence; empty: nothing, it is closed."""
    match state_of(rma):
        case RmaState.OPEN:
            return f"exchange {rma.serial or 'the part'} in {rma.unit} of {rma.host}, and send it in with the bundle"
        case RmaState.SUCCEEDED:
            return (
                f"{rma.successor} is in {rma.unit} of {rma.host} now: close it as soon as the vendor has answered "
                f"(`trainmaster rma close {rma.id} --outcome replaced`, or no-fault-found)"
            )
        case _:
            return ""


def named(history: History, host: HostId) -> tuple[Finding, ...]:
    """Parts of a host that were sent back before: said as soon as they are seen, unless they merely wait in their old
    slot to be taken out."""
    sent = {each.serial: each for each in history.returns if each.serial and each.serial not in history.cloned_parts}
    if not sent:
        return ()
    found = []
    for tenancy in history.tenancies.get(host, ()):
        before = sent.get(tenancy.part.serial)
        if before is None or tenancy.until is not None:
            continue
        at_home = is_slot_of(history, before, host, tenancy.part.slot)
        if at_home and not before.outcome:
            continue
        found.append(_named(tenancy, before))
    return tuple(sorted(found, key=lambda each: each.unit))


_CAME_OF_IT: Final = {
    "": "is on its way back",
    "replaced": "was replaced as faulty",
    "repaired": "was repaired",
    "no-fault-found": "was found without fault",
    "withdrawn": "was kept after all",
}


def _named(tenancy: Tenancy, before: Return) -> Finding:
    part = tenancy.part
    summary = (
        f"{part.serial} {_CAME_OF_IT[before.outcome]} as {before.rma}, sent from {before.unit} of {before.host}, "
        "and is in service here"
    )
    return Finding(
        unit=part.slot,
        verdict=SUSPECT.verdict,
        remedy=SUSPECT.remedy,
        rule=RETURNED_PART,
        summary=summary,
        next_evidence=("a deep verification of this part", f"trainmaster rma show {before.rma}"),
        offence=False,
    )


# --- the bundle


class Bundle(Value):
    """All that is known of a part that is sent back. Encoded, it is the same bytes each time."""

    rma: RmaId
    opened_at: Instant
    reason: str
    host: HostId
    chassis: str
    unit: str
    serial: str
    model: str
    tenancies: tuple[Tenancy, ...]
    """Where the part has been, and what else was in the slot."""
    part_incidents: tuple[Incident, ...]
    part_older: int
    slot_incidents: tuple[Incident, ...]
    slot_older: int
    findings: tuple[Finding, ...]
    former_returns: tuple[Return, ...]
    """Of the part and of the slot, without this one."""
    outcome: RmaOutcome | None
    successor: str


def bundle(health: Health, name: RmaId) -> Bundle:
    """The bundle of a return. Raises `KeyError`."""
    rma, history = health.rmas[name], health.history
    part, slot = of_part(history, rma.serial), of_slot(history, rma.host, rma.unit)
    tenancies = [
        each
        for its in history.tenancies.values()
        for each in its
        if (rma.serial and each.part.serial == rma.serial)
        or (each.part.slot == rma.unit and its is history.tenancies.get(rma.host))
    ]
    former = [
        each
        for each in history.returns
        if each.rma != name
        and ((rma.serial and each.serial == rma.serial) or is_slot_of(history, each, rma.host, rma.unit))
    ]
    return Bundle(
        rma=rma.id,
        opened_at=rma.opened_at,
        reason=rma.reason,
        host=rma.host,
        chassis=history.chassis.get(rma.host, ""),
        unit=rma.unit,
        serial=rma.serial,
        model=rma.model,
        tenancies=tuple(sorted(tenancies, key=lambda each: (each.since, each.host, each.part.slot))),
        part_incidents=part.incidents,
        part_older=part.older,
        slot_incidents=slot.incidents,
        slot_older=slot.older,
        findings=rma.evidence,
        former_returns=tuple(former),
        outcome=rma.outcome,
        successor=rma.successor,
    )
