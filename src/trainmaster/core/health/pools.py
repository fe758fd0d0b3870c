"""Which pool a host belongs to: the first one of the conduct that matches it.

Derived from the conduct and the declared hosts, and made anew when either changes; answers are kept, since every
verdict asks.
"""

from collections.abc import Iterable

from trainmaster.core.base.hostlist import parse
from trainmaster.core.base.ids import HostId, PoolName
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.health.conduct import HealthConduct, PoolConduct


class PoolIndex:
    """Who is in which pool."""

    def __init__(self, conduct: HealthConduct, hosts: Iterable[HostSpec]) -> None:
        self._hosts = list(hosts)
        self.reread(conduct)

    def reread(self, conduct: HealthConduct) -> None:
        """The conduct is another one. Raises `HostListError` for a host list that can't be read; see `check`."""
        self._pools = [(pool, frozenset(parse(pool.hosts)) if pool.hosts else None) for pool in conduct.pools]
        self._found: dict[HostId, PoolConduct | None] = {}
        self._members: dict[PoolName, tuple[HostId, ...]] | None = None

    def add(self, spec: HostSpec) -> None:
        """A host that was declared now."""
        self._hosts.append(spec)
        self._members = None

    def of(self, spec: HostSpec) -> PoolConduct | None:
        """The pool of a host; None: no pool names it."""
        if spec.id not in self._found:
            self._found[spec.id] = self._find(spec)
        return self._found[spec.id]

    def _find(self, spec: HostSpec) -> PoolConduct | None:
        for pool, named in self._pools:
            if named is not None:
                if spec.id in named:
                    return pool
            elif pool.cluster in ("", spec.cluster) and pool.kind == spec.kind:
                return pool
        return None

    def members(self, name: PoolName) -> tuple[HostId, ...]:
        """The hosts of a pool, in the order of their declaration."""
        if self._members is None:
            found: dict[PoolName, list[HostId]] = {}
            for spec in self._hosts:
                pool = self.of(spec)
                if pool is not None:
                    found.setdefault(pool.name, []).append(spec.id)
            self._members = {pool: tuple(hosts) for pool, hosts in found.items()}
        return self._members.get(name, ())
