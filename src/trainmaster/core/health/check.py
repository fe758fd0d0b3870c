"""What is wrong with a conduct: pools that have no host, ladders that cannot be climbed. Checked before it becomes an
event, with everything that is wrong at once; the engine believes what passed.

A rung whose kind the catalogue does not have is no error: it is passed over, and said to be, so that one conduct serves
fleets with different catalogues.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from trainmaster.core.base.hostlist import HostListError, parse
from trainmaster.core.base.ids import HostId, PoolName
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.health.conduct import HealthConduct, PoolConduct, Rung
from trainmaster.core.health.ladder import rank
from trainmaster.core.health.pools import PoolIndex
from trainmaster.core.health.words import Remedy
from trainmaster.core.maintenance.catalogue import Catalogue, takes_capacity
from trainmaster.core.maintenance.problem import Problem, error
from trainmaster.core.step import Step

RUNGS: Final = (Remedy.DIAGNOSE, Remedy.RESET_GPU, Remedy.REBOOT)
"""Remedies that an operation can carry out."""


def problems(conduct: HealthConduct, units: Sequence[HostSpec], catalogue: Catalogue) -> list[Problem]:
    """What is wrong, with paths into the declaration: ("pool", 0, "cluster")."""
    found = [*_pools(conduct.pools, units), *_ladder(conduct.ladder, catalogue)]
    return found or list(_shadowed(conduct, units))


def _pools(pools: Sequence[PoolConduct], units: Sequence[HostSpec]) -> Iterator[Problem]:
    known = {unit.id for unit in units}
    for place, pool in enumerate(pools):
        told = f"pool {pool.name}"
        if any(pool.name == other.name for other in pools[:place]):
            yield error(("pool", place, "name"), told, f"a pool {pool.name} stands above", "rename one of them")
        if pool.hosts:
            yield from _named(place, pool, known)
        elif pool.cluster and all(unit.cluster != pool.cluster for unit in units):
            clusters = ", ".join(sorted({unit.cluster for unit in units})) or "none"
            path = ("pool", place, "cluster")
            yield error(path, told, f"there is no cluster {pool.cluster!r}", f"name one of {clusters}")
        if pool.rate_hosts < 1:
            fix = 'write mode = "observe" for a pool that nothing is to be taken from'
            yield error(("pool", place, "rate_hosts"), told, "it could never take a host", fix)


def _named(place: int, pool: PoolConduct, known: set[HostId]) -> Iterator[Problem]:
    path, told = ("pool", place, "hosts"), f"pool {pool.name}"
    try:
        named = parse(pool.hosts)
    except HostListError as bad:
        yield error(path, told, f"{bad.reason} at character {bad.position + 1} of {pool.hosts!r}", bad.fix)
        return
    strange = [name for name in named if name not in known]
    if strange:
        yield error(path, told, f"the fleet has no host {strange[0]}", "name hosts of the fleet")


def _ladder(ladder: Sequence[Rung], catalogue: Catalogue) -> Iterator[Problem]:
    for place, rung in enumerate(ladder):
        path, told = ("rung", place, "remedy"), f"rung {rung.remedy}"
        if rung.remedy not in RUNGS:
            fix = f"write one of {', '.join(RUNGS)}"
            yield error(path, told, f"no operation carries {rung.remedy} out", fix)
        if any(rung.remedy is other.remedy for other in ladder[:place]):
            yield error(path, told, f"{rung.remedy} stands twice", "write tries = 2 in one of them")
        if rung.tries < 1:
            yield error(("rung", place, "tries"), told, "it is never tried", "write at least 1, or leave the rung out")
        kind = catalogue.kind(rung.kind)
        if kind is not None and (kind.scope != "host" or not takes_capacity(kind)):
            why = f"is done on a {kind.scope}" if kind.scope != "host" else "leaves the host in service"
            fix = "name a kind of scope host that disturbs at least by drain"
            yield error(("rung", place, "kind"), told, f"{rung.kind} {why}", fix)
    climbed = [(place, rung.remedy) for place, rung in enumerate(ladder) if rung.remedy is not Remedy.DIAGNOSE]
    for (_, lower), (place, upper) in pairwise(climbed):
        if rank(upper) < rank(lower):
            reason = f"it takes less than {lower} before it"
            yield error(("rung", place, "remedy"), f"rung {upper}", reason, "exchange them")


def _shadowed(conduct: HealthConduct, units: Sequence[HostSpec]) -> Iterator[Problem]:
    """Pools that have no host: none matches, or all belong to pools before them."""
    index = PoolIndex(conduct, units)
    for place, pool in enumerate(conduct.pools):
        if not index.members(pool.name):
            reason = "no host belongs to it, or all of them belong to pools above"
            yield error(("pool", place, "name"), f"pool {pool.name}", reason, "remove it, or put it above the others")


def check_conduct(step: Step, conduct: HealthConduct) -> Reason | None:
    """Why a conduct can't be declared."""
    units = [host.spec for host in step.state.hosts.values()]
    found = problems(conduct, units, step.state.maintenance.catalogue)
    if not found:
        return None
    first = found[0]
    return because(Token.BAD_CONDUCT, f"{first.place}: {first.reason}; {first.fix}", problems=len(found))


def no_pool(conduct: HealthConduct, name: PoolName) -> Reason | None:
    """Why a pool can't be promoted, or its breaker set: nobody knows it."""
    known = [pool.name for pool in conduct.pools]
    if name in known:
        return None
    listed = ", ".join(known) or "none; [health] of the fleet file declares them"
    return because(Token.NO_SUCH_POOL, f"there is no pool {name!r}; pools: {listed}", pools=len(known))
