"""A small yard for tests of history: hosts, looks, faults, by short words."""

from collections.abc import Iterable

from trainmaster.core.base.ids import BootId, CaseId, HostId
from trainmaster.core.base.time import DAY, Instant
from trainmaster.core.health.conduct import OffenderLimits
from trainmaster.core.health.events import PartsSeen
from trainmaster.core.health.offender.advice import Escalation, advice
from trainmaster.core.health.offender.identity import Change, looked, part_in
from trainmaster.core.health.offender.notes import note
from trainmaster.core.health.offender.record import History, Incident, IncidentKind
from trainmaster.core.health.part import Part
from trainmaster.core.health.words import RESET

LIMITS = OffenderLimits()
OLD = Instant(0)


def day(number: float) -> Instant:
    return Instant(round(number * DAY))


def gpu(slot: int, serial: str = "", model: str = "H100") -> Part:
    return Part(kind="gpu", slot=f"gpu 0000:{slot:02x}:00", serial=serial, model=model)


def slot(number: int) -> str:
    return gpu(number).slot


class Yard:
    """Hosts whose agents are away unless they are in `here`."""

    def __init__(self) -> None:
        self.history = History()
        self.here: set[str] = set()
        self._boots = self._cases = 0

    def look(self, host: str, chassis: str, parts: Iterable[Part], at: Instant = OLD) -> list[Change]:
        self._boots += 1
        seen = PartsSeen(at=at, host=HostId(host), boot=BootId(f"b{self._boots}"), chassis=chassis, parts=tuple(parts))
        return list(looked(self.history, seen, lambda name: name in self.here))

    def case(
        self,
        host: str,
        unit: str,
        at: Instant,
        *,
        place: str = "",
        offence: bool = True,
        kind: IncidentKind = "verdict",
    ) -> Incident:
        self._cases += 1
        return note(
            self.history,
            Incident(
                at=at, kind=kind, host=HostId(host), unit=unit, place=place, rule="xid-79", verdict=RESET.verdict,
                remedy=RESET.remedy, case=CaseId(f"case-{self._cases}"), offence=offence,
            ),
        )  # fmt: skip

    def advice(
        self, host: str, unit: str, at: Instant, place: str = "", limits: OffenderLimits = LIMITS
    ) -> Escalation | None:
        part = part_in(self.history, HostId(host), unit)
        serial = part.serial if part is not None else ""
        return advice(self.history, HostId(host), unit, serial, at, limits, place=place)

    def in_service(self, *hosts: str) -> None:
        """For so long that they are not new any more."""
        self.history.first_seen.update({HostId(host): Instant(-400 * DAY) for host in hosts})
