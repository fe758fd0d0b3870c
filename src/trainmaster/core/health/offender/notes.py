"""Notes: incidents are written once, kept one by one for a while, then counted, and found by each of their identities.

Bounded by construction: a host keeps so many incidents of so many days, and so many tallies of what came before. A
storm fills its own host's book and nobody else's.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from trainmaster.core.base.ids import CaseId, HostId
from trainmaster.core.base.time import DAY, Duration, Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.offender.identity import part_in
from trainmaster.core.health.offender.record import LEMON, History, Incident, Tally

KEPT: Final = Duration(90 * DAY)
"""Longer than any window of a policy; what is older is counted."""
INCIDENTS: Final = 256
"""Of a host, one by one."""
TALLIES: Final = 64
ALWAYS: Final = Instant(0)


class Past(Value):
    """What is known of one identity."""

    incidents: tuple[Incident, ...]
    """Oldest first."""
    older: int
    """Offences before those, or that were too many to keep."""
    first: Instant | None
    """The very first one; None: there is nothing."""


def note(history: History, incident: Incident) -> Incident:
    """Writes an incident down, with the chassis and the part of now where it names none. Returns it as written."""
    host = incident.host
    part = part_in(history, host, incident.unit)
    full = incident.but(
        chassis=incident.chassis or history.chassis.get(host, ""),
        part=incident.part or (part.serial if part is not None else ""),
    )
    its = history.incidents.setdefault(host, [])
    place = len(its)
    while place and its[place - 1].at > full.at:  # events of several agents may come in another order
        place -= 1
    its.insert(place, full)
    for index, key in ((history.carriers, full.part), (history.places, full.place)):
        if key and host not in index.get(key, ()):
            index[key] = sorted([*index.get(key, ()), host])
    _age(history, host, Instant(its[-1].at - KEPT))
    return full


def of_host(history: History, host: HostId, since: Instant = ALWAYS) -> Past:
    """All that happened to the host under its present name and those before."""
    return _past(history, (host,), since, lambda _: True)


def of_slot(history: History, host: HostId, unit: str, since: Instant = ALWAYS) -> Past:
    """Of one slot, whatever parts it held."""
    return _past(history, (host,), since, lambda each: each.unit == unit)


def of_part(history: History, serial: str, since: Instant = ALWAYS) -> Past:
    """Of one part, wherever it was. Nothing if its serial identifies it not."""
    if not serial or serial in history.cloned_parts:
        return Past(incidents=(), older=0, first=None)
    return _past(history, history.carriers.get(serial, ()), since, lambda each: each.part == serial)


def of_place(history: History, place: str, since: Instant = ALWAYS) -> Past:
    """Of one place in a rack, whatever hosts stood there."""
    if not place:
        return Past(incidents=(), older=0, first=None)
    return _past(history, history.places.get(place, ()), since, lambda each: each.place == place)


def cases(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
    """The offences among them that opened a case: one for each case, the first."""
    found: dict[CaseId | int, Incident] = {}
    for number, each in enumerate(incidents):
        if each.kind == "verdict" and each.offence and each.rule != LEMON:
            found.setdefault(each.case if each.case is not None else number, each)
    return tuple(found.values())


def _past(history: History, hosts: Sequence[HostId], since: Instant, fits: Callable[[Incident | Tally], bool]) -> Past:
    incidents = [each for host in hosts for each in history.incidents.get(host, ()) if fits(each)]
    tallies = [each for host in hosts for each in history.older.get(host, ()) if fits(each)]
    incidents.sort(key=lambda each: each.at)
    recent = tuple(each for each in incidents if each.at >= since)
    before = sum(each.offence for each in incidents[: len(incidents) - len(recent)])
    first = min([each.first for each in tallies] + [each.at for each in incidents], default=None)
    return Past(incidents=recent, older=before + sum(each.offences for each in tallies), first=first)


def _age(history: History, host: HostId, before: Instant) -> None:
    """Counts what is too old, or too much, to be kept one by one."""
    its = history.incidents[host]
    kept = max(0, len(its) - INCIDENTS)
    while its[kept].at < before:
        kept += 1
    if not kept:
        return
    tallies = {_alike(each): each for each in history.older.get(host, ())}
    for each in its[:kept]:
        one = Tally(
            unit=each.unit, part=each.part, place=each.place, kind=each.kind, rule=each.rule,
            count=1, offences=int(each.offence), first=each.at, last=each.at,
        )  # fmt: skip
        known = tallies.get(_alike(one))
        tallies[_alike(one)] = one if known is None else _merged(known, one)
    history.incidents[host] = its[kept:]
    history.older[host] = _few(list(tallies.values()))


def _alike(tally: Tally) -> tuple[str, ...]:
    return tally.unit, tally.part, tally.place, tally.kind, tally.rule


def _merged(one: Tally, other: Tally) -> Tally:
    return one.but(
        count=one.count + other.count,
        offences=one.offences + other.offences,
        first=min(one.first, other.first),
        last=max(one.last, other.last),
    )


def _blurred(tally: Tally, level: int) -> Tally:
    """Without its rule, then without its part, then as one of its host's."""
    if level == 0:
        return tally.but(rule="")
    if level == 1:
        return tally.but(rule="", part="")
    return tally.but(rule="", part="", unit="host", place="", kind="verdict")


def _few(tallies: list[Tally]) -> list[Tally]:
    """They lose what tells them apart, until they are few."""
    tallies.sort(key=lambda each: (each.first, _alike(each)))
    for level in range(3):
        if len(tallies) <= TALLIES:
            break
        found: dict[tuple[str, ...], Tally] = {}
        for each in (_blurred(each, level) for each in tallies):
            known = found.get(_alike(each))
            found[_alike(each)] = each if known is None else _merged(known, each)
        tallies = sorted(found.values(), key=lambda each: (each.first, _alike(each)))
    return tallies
