"""Identity: which host, which part. What an agent tells of its parts is compared with the look before, and history goes
to whom it belongs.

*Chassis.* A serial that is new under a name, and known under another whose agent is away, is a rename: the history goes
along, and the old name keeps none. A name that tells another serial than before while most of its parts are the same
has a new board; with other parts, it is another host that got the name, and the history of the former one waits on the
shelf until its serial shows up again.

*Parts.* Another serial in a slot is a swap: the old part's tenancy ends, the slot's history stays. A serial that shows
up elsewhere has moved, with its history. A part that is merely not seen has not left: a GPU that fell off the bus is
still in its slot, and most of them come back.

*Unknown is not identity.* Empty serials and what vendors write in place of one are no serials. Two that are there at
the same time with one serial are two things: the serial is taken from both, for good, and by it nothing is found. To
guess which of them is meant would blame a part that did nothing.

Limits: a host that tells no chassis and is renamed starts anew (its parts do not); two hosts whose agents both have
been away are told apart by who comes first.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.health.events import PartsSeen
from trainmaster.core.health.offender.record import History, Tally, Tenancy, on_shelf
from trainmaster.core.health.part import Part

ENDED_TENANCIES: Final = 64
"""So many are kept of a host."""
_NAMES: Final = 8
_SAME_HOST: Final = 0.5
"""A host whose board was exchanged keeps more than this share of its parts."""

_NO_SERIAL: Final = frozenset(
    {
        "", "0", "1", "x", "none", "null", "n/a", "na", "unknown", "unspecified", "not specified", "not available",
        "not applicable",
        "default string", "default", "system serial number", "chassis serial number", "base board serial number",
        "serial number", "serial", "no serial", "invalid", "empty", "oem", "o.e.m.", "filled by o.e.m.",
        "not settable", "error", "undefined", "tbd", "test", "sernum", "0123456789", "1234567890", "123456789",
        "12345678", "01234567890123456789ab",
    }
)  # fmt: skip
_PLACEHOLDER: Final = re.compile(r"to be filled|default string|^\[?(?:no|not) |^(.)\1+$|^[\W_]+$", re.IGNORECASE)

ChangeKind = Literal["swapped", "moved", "renamed", "board-swapped", "exchanged", "cloned", "identified"]


class Change(Value):
    """What a look has brought to light."""

    kind: ChangeKind
    host: HostId
    unit: str
    """The slot, or `host`."""
    serial: str
    """What is there now; empty: unknown."""
    before: str
    """Of a swap: the serial of the part that was there. Of a move: `HOST UNIT`. Of a rename: the old name. Of an
    exchange or another board: the serial before. Of a clone: the host that tells the same."""
    sentence: str


def usable(serial: str) -> str:
    """The serial if it can identify anything, without blanks around it; else nothing."""
    text = serial.strip()
    return "" if text.lower() in _NO_SERIAL or _PLACEHOLDER.search(text) else text


def looked(history: History, seen: PartsSeen, alive: Callable[[HostId], bool]) -> tuple[Change, ...]:
    """Takes in a look at a host. `alive`: whether the agent of another host runs in the very boot of its last look, so
    that what it told then is there now."""
    changes = [*_chassis(history, seen, alive), *_Look(history, seen, alive).apply()]
    history.boots[seen.host] = seen.boot
    assert seen.host in history.chassis
    return tuple(changes)


def part_in(history: History, host: HostId, unit: str) -> Part | None:
    """The part that is in a slot, as last seen."""
    tenancy = next(
        (each for each in history.tenancies.get(host, ()) if each.until is None and each.part.slot == unit), None
    )
    return tenancy.part if tenancy is not None else None


# --- chassis


def _chassis(history: History, seen: PartsSeen, alive: Callable[[HostId], bool]) -> list[Change]:
    host, told, known = seen.host, usable(seen.chassis), history.chassis.get(seen.host, "")
    if told in history.cloned_chassis:
        told, known = "", ""
    if not told or told == known:
        history.chassis[host] = known
        return []
    holder = next((name for name, serial in history.chassis.items() if serial == told), None)
    assert holder != host
    if holder is not None and alive(holder):
        history.cloned_chassis.add(told)
        history.chassis[holder] = history.chassis[host] = ""
        sentence = f"{holder} and {host} both tell the chassis {told}, so it identifies neither"
        return [_change("cloned", host, "host", "", holder, sentence)]
    if known and _kept_parts(history, seen):
        if holder is not None:
            history.chassis[holder] = ""
        history.chassis[host] = told
        sentence = f"{host} tells the chassis {told} instead of {known} and kept its parts: its board was exchanged"
        return [_change("board-swapped", host, "host", told, known, sentence)]
    changes = []
    if known:
        _carry(history, host, on_shelf(known))
        sentence = f"{host} is another host now: chassis {told} instead of {known}, whose history waits for it"
        changes.append(_change("exchanged", host, "host", told, known, sentence))
    if holder is not None:
        _carry(history, holder, host)
        words = f"chassis {told} is back, as {host}" if holder == on_shelf(told) else f"{holder} is {host} now"
        changes.append(_change("renamed", host, "host", told, holder, f"{words}; its history goes along"))
    history.chassis[host] = told
    return changes


def _change(kind: ChangeKind, host: HostId, unit: str, serial: str, before: str, sentence: str) -> Change:
    return Change(kind=kind, host=host, unit=unit, serial=serial, before=before, sentence=sentence)


def _kept_parts(history: History, seen: PartsSeen) -> bool:
    """Most of the parts that were in the host are there still."""
    before = {each.part.serial for each in history.tenancies.get(seen.host, ()) if each.until is None}
    before.discard("")
    now = {usable(part.serial) for part in seen.parts}
    return len(before & now) >= max(2.0, len(before) * _SAME_HOST)


def _carry(history: History, old: HostId, new: HostId) -> None:
    """All that stands under one name, to stand under another."""
    assert old != new, old
    incidents = history.incidents.pop(old, [])
    if incidents:
        history.incidents[new] = sorted([*history.incidents.get(new, ()), *incidents], key=lambda each: each.at)
    older: list[Tally] = history.older.pop(old, [])
    if older:
        history.older[new] = [*history.older.get(new, ()), *older]
    tenancies = history.tenancies.pop(old, [])
    if tenancies:
        history.tenancies[new] = [*tenancies, *history.tenancies.get(new, ())]
    for tenancy in tenancies:
        if history.where.get(tenancy.part.serial) == old:
            history.where[tenancy.part.serial] = new
    for index, keys in (
        (history.carriers, {each.part for each in incidents} | {each.part for each in older}),
        (history.places, {each.place for each in incidents} | {each.place for each in older}),
    ):
        for key in sorted(keys - {""}):
            index[key] = sorted({new if name == old else name for name in index.get(key, ())} | {new})
    if old in history.first_seen:
        first = history.first_seen.pop(old)
        history.first_seen[new] = min(first, history.first_seen.get(new, first))
    if old in history.repaired:
        repaired = history.repaired.pop(old)
        history.repaired[new] = max(repaired, history.repaired.get(new, repaired))
    if old in history.alone:
        history.alone[new] = sorted([*history.alone.get(new, ()), *history.alone.pop(old)])
    names = history.formerly.pop(old, [])
    if not old.startswith(on_shelf("")):
        names = [*(name for name in names if name != old), old]
    names = [name for name in dict.fromkeys([*history.formerly.get(new, ()), *names]) if name != new]
    if names:
        history.formerly[new] = names[-_NAMES:]
    history.boots.pop(old, None)
    history.chassis[new] = history.chassis.pop(old, "")


# --- parts


class _Look:
    """One look at the parts of a host, compared with the one before."""

    def __init__(self, history: History, seen: PartsSeen, alive: Callable[[HostId], bool]) -> None:
        self.history, self.host, self.at, self.alive = history, seen.host, seen.at, alive
        self.chassis = history.chassis[seen.host]
        self.told = {part.slot: part for part in _identified(history, seen)}
        self.changes: list[Change] = []

    def apply(self) -> list[Change]:
        for slot in sorted(self.told):
            part, there = self.told[slot], self._open(self.host, slot)
            if there is None:
                self._arrive(part, self.at)
            elif not self._differs(there.part, part):
                self._set(there, there.but(missing_since=None))
            elif not there.part.serial and part.serial and not _is_other_model(there.part, part):
                self._drop(there)
                self._arrive(part, there.since)
                self._tell(
                    "identified", slot, part.serial, "", f"{slot} of {self.host} tells its serial now: {part.serial}"
                )
            else:
                self._end(self.host, there)
                self._arrive(part, self.at)
                new = part.serial or f"another {part.model}"
                sentence = f"{slot} of {self.host} holds {new} instead of {there.part.serial or there.part.model}"
                self._tell("swapped", slot, part.serial, there.part.serial, sentence)
        self._miss()
        self._prune()
        return self.changes

    def _differs(self, before: Part, now: Part) -> bool:
        """A serial that is not told says nothing, but another model is another part."""
        if now.serial:
            return now.serial != before.serial
        return _is_other_model(before, now)

    def _arrive(self, part: Part, since: Instant) -> None:
        holder = self.history.where.get(part.serial) if part.serial else None
        if holder is not None:
            part = self._from(holder, part)
        here = Tenancy(host=self.host, chassis=self.chassis, part=part, since=since)
        self.history.tenancies.setdefault(self.host, []).append(here)
        if part.serial:
            self.history.where[part.serial] = self.host

    def _from(self, holder: HostId, part: Part) -> Part:
        """The part is known elsewhere: it left there, or it is two parts. As what it is known here."""
        held = [
            each for each in self.history.tenancies[holder] if each.until is None and each.part.serial == part.serial
        ]
        if holder == self.host:
            for each in held:
                if _card(each.part.slot) != _card(part.slot):
                    self._end(holder, each)
                    before = f"{holder} {each.part.slot}"
                    sentence = f"{part.serial} moved within {holder}: from {each.part.slot} to {part.slot}"
                    self._tell("moved", part.slot, part.serial, before, sentence)
            return part
        if self.alive(holder) and any(each.missing_since is None for each in held):
            self.history.cloned_parts.add(part.serial)
            self.history.where.pop(part.serial)
            for each in held:
                self._swap_in(holder, each, each.but(part=each.part.but(serial="")))
            sentence = f"{holder} and {self.host} both hold {part.serial}, so the serial identifies neither part"
            self._tell("cloned", part.slot, "", holder, sentence)
            return part.but(serial="")
        for each in held:
            self._end(holder, each)
            before = f"{holder} {each.part.slot}"
            sentence = f"{part.serial} moved from {each.part.slot} of {holder} to {part.slot} of {self.host}"
            self._tell("moved", part.slot, part.serial, before, sentence)
        return part

    def _open(self, host: HostId, slot: str) -> Tenancy | None:
        its = self.history.tenancies.get(host, ())
        return next((each for each in its if each.until is None and each.part.slot == slot), None)

    def _end(self, host: HostId, tenancy: Tenancy) -> None:
        self._swap_in(host, tenancy, tenancy.but(until=self.at))
        serial = tenancy.part.serial
        still = any(each.until is None and each.part.serial == serial for each in self.history.tenancies[host])
        if serial and not still and self.history.where.get(serial) == host:
            del self.history.where[serial]

    def _set(self, before: Tenancy, now: Tenancy) -> None:
        if before != now:
            self._swap_in(self.host, before, now)

    def _swap_in(self, host: HostId, before: Tenancy, now: Tenancy) -> None:
        its = self.history.tenancies[host]
        its[its.index(before)] = now

    def _drop(self, tenancy: Tenancy) -> None:
        self.history.tenancies[self.host].remove(tenancy)

    def _tell(self, kind: ChangeKind, unit: str, serial: str, before: str, sentence: str) -> None:
        self.changes.append(_change(kind, self.host, unit, serial, before, sentence))

    def _miss(self) -> None:
        """Parts that are not there. A kind of which nothing was seen at all could not be read."""
        kinds = {part.kind for part in self.told.values()}
        for each in tuple(self.history.tenancies.get(self.host, ())):
            absent = each.until is None and each.part.slot not in self.told and each.part.kind in kinds
            if absent and each.missing_since is None:
                self._set(each, each.but(missing_since=self.at))

    def _prune(self) -> None:
        its = self.history.tenancies.get(self.host, [])
        ended = sorted((each for each in its if each.until is not None), key=lambda each: each.until or 0)
        for each in ended[: max(0, len(ended) - ENDED_TENANCIES)]:
            its.remove(each)


def _is_other_model(before: Part, now: Part) -> bool:
    return bool(before.model and now.model and before.model != now.model)


def _identified(history: History, seen: PartsSeen) -> list[Part]:
    """The parts, with serials only where they identify them."""
    parts = [part.but(serial=usable(part.serial)) for part in seen.parts]
    cards = {(part.serial, _card(part.slot)) for part in parts if part.serial}
    counts = Counter(serial for serial, _ in cards)
    for serial in sorted(serial for serial, count in counts.items() if count > 1):
        history.cloned_parts.add(serial)
        history.where.pop(serial, None)
    return [part.but(serial="") if part.serial in history.cloned_parts else part for part in parts]


def _card(slot: str) -> str:
    """Functions of one card, and name spaces of one disk, are one part in several units."""
    return re.sub(r"(?<=:[0-9a-f]{2})\.[0-9a-f]$|(?<=nvme\d)n\d+$|(?<=nvme\d\d)n\d+$", "", slot)
