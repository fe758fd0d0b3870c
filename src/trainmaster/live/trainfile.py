"""The `[[train]]` tables of a file: maintenance trains as somebody wants them.

    [[train]]
    name = "weekly"
    cluster = "roce"               # its units of one kind are the pool; or hosts = "h[0-63]"
    kind = "compute"               # the default; compute, storage, switch, controller
    domain_size = "3%"             # the most units of a stop, of the pool, rounded down, at least 1
    domain_size_hosts = 47         # or so many; where both are given the smaller one
    # domains = ["h[0-7]", "h[8-15]"]   # instead of a pool and a size: the stops one by one
    cycle_days = 7                 # from one visit of a unit to the next; or cycle_s
    components = ["gpu-driver"]    # what it brings; default: everything that is due
    stop_limit_s = 28800           # what has not begun by then is carried over
    evict_after_s = 3600           # jobs that can't move are stopped then, after a checkpoint; default: never
    emergency = false              # true: contracts of jobs are not read, stops follow at once, one cycle
    mode = "observe"               # or "act"; default: that of the train that is there, else observe

Whether the fleet has such units, and room for such stops, is decided by `core/maintenance/building.py`.
"""

from typing import Final

from trainmaster.core.base.ids import NAME_PATTERN, ComponentName, TrainName
from trainmaster.core.base.time import Duration, in_seconds, seconds
from trainmaster.core.fleet.inventory import UNIT_KINDS
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.live.capacityfile import read_share
from trainmaster.live.tomlfile import Table

_DAY_S: Final = 86_400.0
_LONGEST_S: Final = 3660 * _DAY_S
MODES: Final = ("observe", "act")


def read_trains(root: Table) -> tuple[TrainWish, ...]:
    """The trains of a file, in order. Notes what is wrong; the caller finishes `root`."""
    wishes: list[TrainWish] = []
    for table in root.tables("train"):
        wish = _train(table)
        if wish.name and any(wish.name == other.name for other in wishes):
            table.note("name", f"a train {wish.name} stands above", "rename one of them")
        wishes.append(wish)
    return tuple(wishes)


def _train(table: Table) -> TrainWish:
    usual = TrainWish(name=TrainName("usual"), cycle=seconds(7 * _DAY_S))
    name = table.text("name", may_be_empty=False)
    if name and not NAME_PATTERN.fullmatch(name):
        fix = "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"
        table.note("name", f"{name!r} is not a name", fix)
    wish = usual.but(
        name=TrainName(name),
        cluster=table.text("cluster", ""),
        kind=table.choice("kind", usual.kind, UNIT_KINDS),
        hosts=table.text("hosts", "", may_be_empty=False),
        domains=table.texts("domains", ()),
        domain_size=read_share(table, "domain_size") if _has_size(table) or not table.has("domains") else None,
        cycle=_cycle(table),
        components=tuple(ComponentName(one) for one in table.texts("components", ())),
        stop_limit=seconds(table.number("stop_limit_s", in_seconds(usual.stop_limit), 1.0, _LONGEST_S)),
        evict_after=seconds(table.number("evict_after_s", 0.0, 0.0, _LONGEST_S))
        if table.has("evict_after_s")
        else None,
        emergency=table.flag("emergency"),
        mode=table.choice("mode", MODES[0], MODES) if table.has("mode") else None,
    )
    _check_pool(table)
    _know_all(table)
    table.finish()
    return wish


def _has_size(table: Table) -> bool:
    return table.has("domain_size") or table.has("domain_size_hosts")


def _cycle(table: Table) -> Duration:
    cycle_s, days = table.number("cycle_s", 0.0, 1.0, _LONGEST_S), table.number("cycle_days", 0.0, 0.001, 3660.0)
    if table.has("cycle_s") == table.has("cycle_days"):
        reason = "two lengths of a cycle" if table.has("cycle_s") else "it does not say how long a cycle is"
        table.note("cycle_days", reason, "give one of cycle_days and cycle_s")
    return seconds(cycle_s or days * _DAY_S or _DAY_S)


def _check_pool(table: Table) -> None:
    given = [key for key in ("cluster", "hosts", "domains") if table.has(key)]
    if not given:
        table.note("cluster", "it says not whom it visits", "give one of cluster, hosts and domains")
    elif len(given) > 1:
        table.note(given[1], f"{' and '.join(given)} say whom it visits", "keep one of them")
    if table.has("domains") and _has_size(table):
        table.note("domains", "the stops are named, so there is no size to divide by", "remove domain_size")


def _know_all(table: Table) -> None:
    """Keys that were not asked for because others stand in their place are no unknown ones."""
    if table.has("mode"):
        return
    table.text("mode", MODES[0])
    table.number("evict_after_s", 0.0, 0.0, _LONGEST_S)
