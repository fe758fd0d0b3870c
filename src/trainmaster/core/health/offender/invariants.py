"""What must hold of history: everything is there once, where its identities say, and within its bounds."""

from collections.abc import Iterator
from itertools import pairwise

from trainmaster.core.base.ids import HostId
from trainmaster.core.health.offender.identity import ENDED_TENANCIES
from trainmaster.core.health.offender.notes import INCIDENTS, TALLIES
from trainmaster.core.health.offender.record import History


def broken(history: History) -> Iterator[str]:
    """Sentences about what does not hold; none if all is well."""
    yield from _parts(history)
    yield from _hosts(history)
    yield from _incidents(history)


def _parts(history: History) -> Iterator[str]:
    found: dict[str, HostId] = {}
    for host, tenancies in history.tenancies.items():
        here = [each for each in tenancies if each.until is None]
        slots = [each.part.slot for each in here]
        if len(set(slots)) < len(slots):
            yield f"a slot of {host} holds two parts: {sorted(slots)}"
        if len(tenancies) - len(here) > ENDED_TENANCIES:
            yield f"{host} keeps {len(tenancies) - len(here)} tenancies that have ended"
        for each in here:
            serial = each.part.serial
            if serial in history.cloned_parts:
                yield f"{serial} identifies nothing, and is in {each.part.slot} of {host}"
            if serial and found.setdefault(serial, host) != host:
                yield f"{serial} is in {host} and in {found[serial]}"
    if found != history.where:
        wrong = sorted(set(found.items()) ^ set(history.where.items()))
        yield f"it is not known rightly where {wrong[0][0]} is"


def _hosts(history: History) -> Iterator[str]:
    told = [serial for serial in history.chassis.values() if serial]
    if len(set(told)) < len(told):
        yield f"two hosts have one chassis: {sorted(told)}"
    if not history.cloned_chassis.isdisjoint(told):
        yield "a chassis whose serial identifies nothing has a host"
    for host, names in history.formerly.items():
        if host in names or len(set(names)) < len(names):
            yield f"{host} was called {names}"


def _incidents(history: History) -> Iterator[str]:
    for host, its in history.incidents.items():
        if any(one.at > other.at for one, other in pairwise(its)):
            yield f"incidents of {host} are not in order"
        if len(its) > INCIDENTS or len(history.older.get(host, ())) > TALLIES:
            yield f"{host} keeps {len(its)} incidents and {len(history.older.get(host, ()))} tallies"
        for each in its:
            if each.part and host not in history.carriers.get(each.part, ()):
                yield f"{each.part} does not find what happened to it in {host}"
            if each.place and host not in history.places.get(each.place, ()):
                yield f"{each.place} does not find what happened to {host} there"
