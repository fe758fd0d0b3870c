"""Which host keeps the copies of which: a copy in memory helps only if it does not die together with the original.

Hosts stand in a ring, those of one failure domain (a rack, a power row) side by side, and each sends to the one that
stands a whole domain further, measured by the largest domain. So everybody keeps the copies of exactly one other, which
is as even as can be, and everybody's copies lie in another domain, unless more than half of all hosts are in one; then
as many as there are hosts outside of it, and the rest at least on another host.

The ring follows the places of the hosts in the job, not their names: a spare that takes a lost host's place in the same
domain takes its part in the ring as well, and nobody else's peer changes. Rejected: ranking by a hash of the names
(stable, but some host then keeps three copies and another none) and pairs (an odd host is left over, and two hosts of
a pair often go together).
"""

from collections.abc import Iterable

from trainmaster.core.base.value import Value


class Member(Value):
    """A host of a job. `place` is its lowest rank; `domain` names what fails together, empty: the host alone."""

    host: str
    place: int
    domain: str = ""


def peers(members: Iterable[Member]) -> dict[str, str]:
    """For each host the one that keeps its copies; nothing for a host that is alone. The order of input is of no
    matter."""
    listed = sorted(members, key=lambda member: member.place)
    assert len({member.host for member in listed}) == len(listed), "a host is one member"
    assert len({member.place for member in listed}) == len(listed), "a place is one host's"
    domains: dict[str, list[str]] = {}
    for member in listed:
        domains.setdefault(_domain(member), []).append(member.host)
    ring = [host for domain in domains.values() for host in domain]
    if len(ring) < 2:
        return {}
    shift = max(map(len, domains.values())) % len(ring) or 1
    return {host: ring[(at + shift) % len(ring)] for at, host in enumerate(ring)}


def _domain(member: Member) -> str:
    return f"domain {member.domain}" if member.domain else f"host {member.host}"
