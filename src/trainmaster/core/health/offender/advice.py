"""Advice: when the history of what has failed asks for more than the present finding does.

The present fault counts as one more, whether or not it is noted yet. Rules, the first that holds decides:

1. the part fails in a second slot: it is the part (rma), unless the slot has failed with another part as well
2. the slot had a part that was sent back and found without fault, or it fails with another part than before: it is not
   the part; board, cable or feed (triage)
3. the part was sent back before and came back: rma, with the number of the former one
4. so many cases of one part: rma
5. so many cases of one slot: triage
6. so many cases of one host, whatever its slots: triage, unless the host is new and early failures are to be expected
7. so many cases at one place of a rack, of different hosts: triage, and it is the place

A fault that follows the part or stays with the slot decides at once, counts decide after; the window is that of the
limits. Scores over a fleet are another question (`lemon`): they need peers, and are asked once a day.
"""

from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.ids import CaseId, HostId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import DAY, Duration, Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.conduct import OffenderLimits
from trainmaster.core.health.offender.notes import cases, of_host, of_part, of_place, of_slot
from trainmaster.core.health.offender.place import height_hint
from trainmaster.core.health.offender.record import History, Incident, Return
from trainmaster.core.health.words import Remedy

SENT_BACK: Final = Duration(365 * DAY)
"""So long a part that was sent back is remembered for it."""


class Escalation(Value):
    """What history asks for."""

    remedy: Remedy
    """triage or rma."""
    reason: Reason
    suspect: str
    """`part SERIAL`, `slot gpu 0000:1b:00 of h3`, `host h3`, `place r0007/3`."""
    look_at: tuple[str, ...] = ()
    """What to test or to exchange, the likeliest first."""

    @property
    def told(self) -> str:
        """The reason, and where to look."""
        look = "" if self.remedy is Remedy.RMA else f"; look at {', '.join(self.look_at)}"
        return self.reason.sentence + look


class _Asked(Value):
    host: HostId
    unit: str
    part: str
    slot_cases: tuple[Incident, ...]
    part_cases: tuple[Incident, ...]
    host_cases: tuple[Incident, ...]
    place_cases: tuple[Incident, ...]
    place: str
    returns: tuple[Return, ...]
    """Of the slot or of the part."""
    days: float
    now: Instant


def advice(
    history: History,
    host: HostId,
    unit: str,
    part: str,
    now: Instant,
    limits: OffenderLimits,
    case: CaseId | None = None,
    place: str = "",
) -> Escalation | None:
    """What the history of a unit that fails now asks for; None: nothing beyond the finding.

    `part`: serial of what is in the slot; empty: unknown. `case`: the present one, if it is noted already, so that it
    is not counted twice. `place`: of the host; empty: places are not asked about.
    """
    since = Instant(now - limits.window)
    known = "" if part in history.cloned_parts else part

    def past(incidents: Sequence[Incident]) -> tuple[Incident, ...]:
        return tuple(each for each in cases(incidents) if case is None or each.case != case)

    asked = _Asked(
        host=host,
        unit=unit,
        part=known,
        slot_cases=past(of_slot(history, host, unit, since).incidents),
        part_cases=past(of_part(history, known, since).incidents),
        host_cases=past(of_host(history, host, since).incidents),
        place_cases=past(of_place(history, place, since).incidents),
        place=place,
        returns=_returns(history, host, unit, known, now),
        days=limits.window / DAY,
        now=now,
    )
    is_new = host not in history.first_seen or now - history.first_seen[host] < limits.early_life
    found = (
        _moved_along(asked)
        or _no_fault_found(history, asked)
        or _stayed(asked)
        or _sent_back(asked)
        or _same_part(asked, limits)
        or _same_slot(asked, limits)
        or (None if is_new else _same_host(asked, limits))
        or _same_place(asked, limits)
    )
    assert found is None or found.remedy in (Remedy.TRIAGE, Remedy.RMA)
    if found is None or found.remedy is Remedy.RMA:
        return found
    hint = height_hint(history, place, since)
    return found.but(look_at=(hint, *found.look_at)) if hint else found


def is_slot_of(history: History, sent: Return, host: HostId, unit: str) -> bool:
    """Whether a part was sent back from this slot, whatever the host was called then."""
    if sent.unit != unit:
        return False
    chassis = history.chassis.get(host, "")
    if sent.chassis and chassis:
        return sent.chassis == chassis
    return sent.host == host or sent.host in history.formerly.get(host, ())


def _returns(history: History, host: HostId, unit: str, part: str, now: Instant) -> tuple[Return, ...]:
    return tuple(
        sent
        for sent in history.returns
        if now - (sent.closed_at or sent.at) <= SENT_BACK
        and (is_slot_of(history, sent, host, unit) or (part and sent.serial == part))
    )


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{suffix}"


def _at_slot(asked: _Asked) -> str:
    return f"{asked.unit} of {asked.host}" if asked.unit != "host" else str(asked.host)


def _elsewhere(asked: _Asked) -> list[Incident]:
    """Cases of the part in other slots than the present one."""
    return [each for each in asked.part_cases if each not in asked.slot_cases]


def _other_parts(asked: _Asked) -> list[str]:
    """Parts with which the slot failed before, other than the present one."""
    return sorted({each.part for each in asked.slot_cases if each.part} - {asked.part}) if asked.part else []


def _moved_along(asked: _Asked) -> Escalation | None:
    away, others = _elsewhere(asked), _other_parts(asked)
    if not away or others:
        return None
    before = away[-1]
    sentence = (
        f"the fault moved along with {asked.part}: it failed in {before.unit} of {before.host}, "
        f"and now in {_at_slot(asked)}"
    )
    reason = because(Token.PART_OFFENDS, sentence, cases=len(asked.part_cases) + 1, slots=2, window_days=asked.days)
    return Escalation(remedy=Remedy.RMA, reason=reason, suspect=f"part {asked.part}", look_at=("the part",))


def _no_fault_found(history: History, asked: _Asked) -> Escalation | None:
    sent = [
        each
        for each in asked.returns
        if each.outcome == "no-fault-found" and is_slot_of(history, each, asked.host, asked.unit)
    ]
    if not sent:
        return None
    times = f"{len(sent)} times, last as {sent[-1].rma}" if len(sent) > 1 else f"as {sent[-1].rma}"
    sentence = (
        f"a part of {_at_slot(asked)} was sent back {times} and no fault was found; the slot fails again, "
        "so another part is no answer"
    )
    reason = because(Token.NO_FAULT_FOUND, sentence, returned=len(sent), cases=len(asked.slot_cases) + 1)
    return _not_the_part(asked, reason)


def _not_the_part(asked: _Asked, reason: Reason) -> Escalation:
    kind = asked.unit.partition(" ")[0]
    look = {
        "gpu": ("the baseboard or riser of the slot", "power cables of the slot", "cooling at this height"),
        "nic": ("cable and optics", "the switch port at the other end", "the riser of the slot"),
        "port": ("cable and optics", "the switch port at the other end", "the card"),
        "link": ("cable and optics", "the other end of the link"),
        "dimm": ("the memory channel of the board", "the CPU socket"),
        "disk": ("the backplane and its cable", "the disk controller"),
    }.get(kind, ("the board", "power", "cooling"))
    if asked.place:
        look = (*look, f"the place {asked.place}: feed, cooling, neighbours")
    return Escalation(remedy=Remedy.TRIAGE, reason=reason, suspect=f"slot {_at_slot(asked)}", look_at=look)


def _stayed(asked: _Asked) -> Escalation | None:
    others = _other_parts(asked)
    if not others:
        return None
    parts = len(others) + 1
    sentence = (
        f"{ordinal(len(asked.slot_cases) + 1)} case of {_at_slot(asked)} in {asked.days:g} d, with {parts} different "
        "parts in it: the slot is the suspect, not the part"
    )
    reason = because(Token.SLOT_OFFENDS, sentence, cases=len(asked.slot_cases) + 1, parts=parts, window_days=asked.days)
    return _not_the_part(asked, reason)


def _sent_back(asked: _Asked) -> Escalation | None:
    sent = [each for each in asked.returns if asked.part and each.serial == asked.part]
    if not sent:
        return None
    last = sent[-1]
    how = f"and came back ({last.outcome})" if last.outcome else "and never arrived, it seems"
    sentence = f"{asked.part} was sent back as {last.rma} from {last.unit} of {last.host} {how}; it fails again"
    reason = because(Token.PART_OFFENDS, sentence, returned=len(sent), cases=len(asked.part_cases) + 1)
    return Escalation(remedy=Remedy.RMA, reason=reason, suspect=f"part {asked.part}", look_at=("the part",))


def _same_part(asked: _Asked, limits: OffenderLimits) -> Escalation | None:
    count = len(asked.part_cases) + 1
    if not asked.part or count < limits.same_part_cases:
        return None
    sentence = f"{ordinal(count)} case of {asked.part} in {asked.days:g} d, all in {_at_slot(asked)}"
    reason = because(Token.PART_OFFENDS, sentence, cases=count, limit=limits.same_part_cases, window_days=asked.days)
    return Escalation(remedy=Remedy.RMA, reason=reason, suspect=f"part {asked.part}", look_at=("the part",))


def _same_slot(asked: _Asked, limits: OffenderLimits) -> Escalation | None:
    count = len(asked.slot_cases) + 1
    if count < limits.same_slot_cases:
        return None
    known = "" if asked.part else "; which part was in it is not known"
    sentence = f"{ordinal(count)} case of {_at_slot(asked)} in {asked.days:g} d{known}"
    reason = because(Token.SLOT_OFFENDS, sentence, cases=count, limit=limits.same_slot_cases, window_days=asked.days)
    return _not_the_part(asked, reason)


def _same_host(asked: _Asked, limits: OffenderLimits) -> Escalation | None:
    count = len(asked.host_cases) + 1
    if count < limits.same_host_cases:
        return None
    units = len({each.unit for each in asked.host_cases} | {asked.unit})
    sentence = f"{ordinal(count)} case of {asked.host} in {asked.days:g} d, in {units} of its units"
    reason = because(
        Token.HOST_OFFENDS, sentence, cases=count, units=units, limit=limits.same_host_cases, window_days=asked.days
    )
    look = ("power and cooling of the host", "the board", "firmware and BIOS settings")
    return Escalation(remedy=Remedy.TRIAGE, reason=reason, suspect=f"host {asked.host}", look_at=look)


def _same_place(asked: _Asked, limits: OffenderLimits) -> Escalation | None:
    """Different hosts that failed at one place, one after the other. A host alone says nothing about its place."""
    chassis = {each.chassis or str(each.host) for each in asked.place_cases}
    count = len(asked.place_cases) + 1
    if len(chassis) < 2 or count < limits.same_place_cases:
        return None
    sentence = f"{ordinal(count)} case at {asked.place} in {asked.days:g} d, of {len(chassis)} different hosts there"
    reason = because(
        Token.PLACE_OFFENDS, sentence, cases=count, hosts=len(chassis), limit=limits.same_place_cases,
        window_days=asked.days,
    )  # fmt: skip
    look = ("feed and power shelf", "cooling at this height", "cable and switch port")
    return Escalation(remedy=Remedy.TRIAGE, reason=reason, suspect=f"place {asked.place}", look_at=look)
