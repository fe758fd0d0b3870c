"""The `[health]` table of a file: how verdicts on hosts are acted on.

    [health]
    verify = ["quick"]             # tasks that a host must pass, beside the usual ones, before it returns from a case
    expire_h = 24                  # an event that was not seen again for so long stands no more

    [[health.pool]]                # hosts that are acted on together; the first pool that has a host is its pool
    name = "training"
    cluster = "roce"               # or hosts = "h[0-63]"; default: all clusters
    kind = "compute"               # the default; compute, storage, switch, controller
    mode = "observe"               # the default: says what it would do; "act" does it
    rate_hosts = 2                 # health takes so many hosts within the window at most,
    rate_window_s = 3600
    level_hosts = 1                # and so many may be out by it at once, or
    level_percent = 2.0            # of the hosts in service or out by it; the larger counts

    [[health.rung]]                # the ladder, from its foot; default: reset-gpu, then reboot twice; then a person
    remedy = "reset-gpu"           # diagnose, reset-gpu, reboot
    kind = "gpu-reset"             # of the catalogue; passed over where it has none
    tries = 1                      # in one fault session

    [health.limits]                # when history outweighs the present finding
    window_days = 28
    same_slot_cases = 3            # triage instead of the next remedy
    same_part_cases = 3            # rma
    same_host_cases = 5
    same_place_cases = 4
    lemon_score = 1.0
    cool_down_days = 7             # so long without a case, the ladder begins at its foot again
    early_life_days = 30

A file without the table observes all hosts and acts on none. Pools that were promoted by hand keep their mode when the
file is read again. What can never work is found by `core/health/check.py`.
"""

from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.ids import NAME_PATTERN, KindName, PoolName
from trainmaster.core.base.time import DAY, HOUR, Duration, in_seconds, seconds
from trainmaster.core.fleet.inventory import UNIT_KINDS, HostSpec
from trainmaster.core.health.check import RUNGS, problems
from trainmaster.core.health.conduct import DEFAULT_LADDER, HealthConduct, OffenderLimits, PoolConduct, Rung
from trainmaster.core.health.words import Remedy
from trainmaster.core.maintenance.catalogue import Catalogue
from trainmaster.live.tomlfile import Table

_MODES: Final = ("observe", "act")
_HOSTS_LIMIT: Final = 1_000_000
_TASKS_LIMIT: Final = 16


def read_health(root: Table, units: Sequence[HostSpec]) -> HealthConduct | None:
    """The conduct in `root`'s table `health`; None: there is none. Notes in the document what is wrong. The caller
    finishes `root`."""
    if not root.has("health"):
        return None
    table = root.table("health")
    usual = HealthConduct()
    conduct = HealthConduct(
        pools=tuple(_pool(pool) for pool in table.tables("pool")),
        ladder=tuple(_rung(rung) for rung in table.tables("rung")) or DEFAULT_LADDER,
        limits=_limits(table.table("limits")),
        verify=table.texts("verify", ())[:_TASKS_LIMIT],
        expire=seconds(3600 * table.number("expire_h", usual.expire / HOUR, 0.1, 8760.0)),
    )
    table.finish()
    if not table.document.problems:  # what is misread would only add echoes
        for problem in problems(conduct, units, Catalogue()):
            table.document.note((*table.path, *problem.path), problem.reason, problem.fix)
    return conduct


def _pool(table: Table) -> PoolConduct:
    usual = PoolConduct(name=PoolName("usual"))
    name = table.text("name", may_be_empty=False)
    if name and not NAME_PATTERN.fullmatch(name):
        fix = "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"
        table.note("name", f"{name!r} is not a name", fix)
    pool = PoolConduct(
        name=PoolName(name),
        cluster=table.text("cluster", ""),
        kind=table.choice("kind", usual.kind, UNIT_KINDS),
        hosts=table.text("hosts", "", may_be_empty=False),
        act=table.choice("mode", _MODES[0], _MODES) == "act",
        rate_hosts=table.integer("rate_hosts", usual.rate_hosts, 1, _HOSTS_LIMIT),
        rate_window=seconds(table.number("rate_window_s", in_seconds(usual.rate_window), 1.0, 30 * 86_400.0)),
        level_hosts=table.integer("level_hosts", usual.level_hosts, 1, _HOSTS_LIMIT),
        level_percent=table.number("level_percent", usual.level_percent, 0.0, 100.0),
    )
    if table.has("cluster") and table.has("hosts"):
        table.note("hosts", "cluster and hosts say which hosts it has", "keep one of them")
    table.finish()
    return pool


def _rung(table: Table) -> Rung:
    words = [str(remedy) for remedy in RUNGS]
    remedy = Remedy(table.choice("remedy", None, words) or words[0])
    kind = table.text("kind", may_be_empty=False)
    rung = Rung(remedy=remedy, kind=KindName(kind), tries=table.integer("tries", 1, 1, 100))
    table.finish()
    return rung


def _limits(table: Table) -> OffenderLimits:
    usual = OffenderLimits()

    def days(key: str, default: Duration) -> Duration:
        return seconds(86_400 * table.number(key, default / DAY, 0.01, 3660.0))

    def count(key: str, default: int) -> int:
        return table.integer(key, default, 2, 10_000)

    limits = OffenderLimits(
        window=days("window_days", usual.window),
        same_slot_cases=count("same_slot_cases", usual.same_slot_cases),
        same_part_cases=count("same_part_cases", usual.same_part_cases),
        same_host_cases=count("same_host_cases", usual.same_host_cases),
        same_place_cases=count("same_place_cases", usual.same_place_cases),
        lemon_score=table.number("lemon_score", usual.lemon_score, 0.0, 1_000.0),
        cool_down=days("cool_down_days", usual.cool_down),
        early_life=days("early_life_days", usual.early_life),
    )
    table.finish()
    return limits
