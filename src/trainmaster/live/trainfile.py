"""A `[[train]]` table of a file: a maintenance train as somebody wishes it.

    [[train]]
    name = "weekly"
    cluster = "desk"               # its units; or hosts = "h[0-3]", or domains
    kind = "compute"               # of the cluster's units; the default
    domain_size_hosts = 1          # the most units of a stop; or domain_size = "3%", or both: the stricter
    # domains = ["h[0-1]", "h2"]   # a host list a stop, instead of cluster or hosts and a size
    cycle_h = 168.0                # from one visit of a unit to the next
    components = ["gpu-driver"]    # what it brings; default: everything that is due
    stop_limit_h = 8.0             # what has not begun by then is carried over
    evict_after_h = 2.0            # jobs that could not be moved by then are stopped; default: never
    emergency = false              # contracts of jobs are not read; it ends after one cycle
    mode = "observe"               # or "act"; default: as it is, and observe for a new train

Whether there are such units and components is known where the fleet is: see `core/maintenance/building.py`.
"""

from typing import Final, Literal

from trainmaster.core.base.hostlist import HostListError, parse
from trainmaster.core.base.ids import NAME_PATTERN, ComponentName, TrainName
from trainmaster.core.base.time import HOUR, Duration
from trainmaster.core.fleet.inventory import UNIT_KINDS
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.live.capacityfile import read_share
from trainmaster.live.tomlfile import Table

_LONGEST_H: Final = 3660 * 24.0
_SHORTEST_H: Final = 1 / 3600


def read_train(table: Table) -> TrainWish:
    """The wish of a table. Notes in the document what is wrong, and finishes the table."""
    name = table.text("name", may_be_empty=False)
    if name and not NAME_PATTERN.fullmatch(name):
        fix = "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"
        table.note("name", f"{name!r} is not a name", fix)
    cluster, hosts, domains = table.text("cluster", ""), table.text("hosts", ""), table.texts("domains", ())
    _check_units(table, hosts, domains)
    sized = table.has("domain_size") or table.has("domain_size_hosts")
    size = None if table.has("domains") and not sized else read_share(table, "domain_size")
    if table.has("domains") and sized:
        table.note("domains", "both domains and a size are given", "name the domains, or say how large they may be")
    found = TrainWish(
        name=TrainName(name),
        cluster=cluster,
        kind=table.choice("kind", "compute", UNIT_KINDS),
        hosts=hosts,
        domain_size=size,
        domains=domains,
        cycle=_hours(table, "cycle_h", None),
        components=tuple(ComponentName(each) for each in table.texts("components", ())),
        stop_limit=_hours(table, "stop_limit_h", 8.0),
        evict_after=_evict_after(table),
        emergency=table.flag("emergency"),
        mode=_mode(table),
    )
    table.finish()
    return found


def _check_units(table: Table, hosts: str, domains: tuple[str, ...]) -> None:
    given = [key for key in ("cluster", "hosts", "domains") if table.has(key)]
    if len(given) != 1:
        said = " and ".join(given) if given else "no units"
        fix = 'give one of cluster = "C", hosts = "h[0-3]", domains = ["h[0-1]", "h2"]'
        table.note(given[1] if given else "cluster", f"{said} are given", fix)
    for key, text in (("hosts", hosts), *(("domains", each) for each in domains)):
        try:
            if text:
                parse(text)
        except HostListError as error:
            table.note(key, f"{error.reason} at character {error.position + 1} of {text!r}", error.fix)


def _hours(table: Table, key: str, usual: float | None, least: float = _SHORTEST_H) -> Duration:
    return Duration(round(table.number(key, usual, least, _LONGEST_H) * HOUR))


def _evict_after(table: Table) -> Duration | None:
    found = _hours(table, "evict_after_h", 0.0, 0.0)
    return found if table.has("evict_after_h") else None


def _mode(table: Table) -> Literal["observe", "act"] | None:
    mode = table.choice("mode", "observe", ("observe", "act"))
    if not table.has("mode"):
        return None
    return "act" if mode == "act" else "observe"
