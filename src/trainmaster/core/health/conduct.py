"""How verdicts are acted on: pools and their mode, the limits of the breaker, ladders of remedies, limits of offenders.

Data, declared with the fleet. A *pool* is a set of hosts that health acts on together; its mode is *observe* (write the
advice that would have been followed) until it is promoted to *act*. The first pool that matches a host is its pool;
what no pool names is observed.

The *breaker* of a pool limits what health takes out by itself: by rate (hosts within a window) and by level (hosts that
are out by health now, of the hosts of the pool that are in service or out by health, in numbers and in percent; the
larger of both counts, so that percentages of small pools do not round to nothing). A tripped breaker stops taking,
never the way back.

A *ladder* says what follows when a remedy did not help: the next rung, after so many tries within the window. Each rung
is a kind of operation of the catalogue; rungs whose kind the catalogue does not have are passed over, and said to be.
"""

from typing import Final

from trainmaster.core.base.ids import KindName, Owner, PoolName
from trainmaster.core.base.time import DAY, HOUR, Duration
from trainmaster.core.base.value import Value
from trainmaster.core.health.words import Remedy

HEALTH: Final = Owner("policy:health")
"""Holds hosts that are at fault, and asks for their remedies."""


class PoolConduct(Value):
    name: PoolName
    cluster: str = ""
    """Empty: all clusters."""
    kind: str = "compute"
    hosts: str = ""
    """A host list: exactly these; empty: all of the cluster and kind."""
    act: bool = False
    rate_hosts: int = 2
    """Hosts that health takes out within `rate_window` at most."""
    rate_window: Duration = Duration(HOUR)
    level_hosts: int = 1
    level_percent: float = 2.0


class Rung(Value):
    """A remedy, the kind of operation that carries it out, and how often it is tried in one fault session."""

    remedy: Remedy
    kind: KindName
    tries: int = 1


class FeatureLimit(Value):
    """A feature of lemons: from what value on it speaks, and how loud."""

    feature: str
    limit: float
    """Lower values are usual; where peers have more, what is usual among them is the limit."""
    weight: float
    """Points at the limit; at most one and a half times as many above it."""


LEMON_FEATURES: Final = (
    FeatureLimit(feature="multi_node_node_fails", limit=3.0, weight=0.45),
    FeatureLimit(feature="unit_repeats", limit=3.0, weight=0.35),
    FeatureLimit(feature="out_count", limit=3.0, weight=0.3),
    FeatureLimit(feature="tickets", limit=2.0, weight=0.4),
    FeatureLimit(feature="xid_cnt", limit=3.0, weight=0.2),
    FeatureLimit(feature="single_node_node_fails", limit=3.0, weight=0.2),
    FeatureLimit(feature="single_node_node_failure_rate", limit=0.1, weight=0.2),
    FeatureLimit(feature="excl_jobid_count", limit=5.0, weight=0.1),
)
"""Names as in Kokolis et al. (HPCA 2025), whose figures are tuned by hand to one cluster and not taken over;
`unit_repeats` is our own. Users' exclusions weigh little: there they told nothing of failures."""


class OffenderLimits(Value):
    """From when on history outweighs the present finding."""

    window: Duration = Duration(28 * DAY)
    same_slot_cases: int = 3
    """So many cases of one slot within the window: triage instead of the next reset."""
    same_part_cases: int = 3
    """So many of one part: rma."""
    same_host_cases: int = 5
    """So many of one host, whatever its slots: triage."""
    same_place_cases: int = 4
    """So many at one place of a rack, of different hosts: triage."""
    early_life: Duration = Duration(30 * DAY)
    """So long after its first service a host is new: more failures are expected, and do not condemn it."""
    lemon_score: float = 1.0
    """See `offender.lemon`."""
    lemon_features: tuple[FeatureLimit, ...] = LEMON_FEATURES
    lemon_exposure: Duration = Duration(7 * DAY)
    """A host that has served less long is not judged."""
    cool_down: Duration = Duration(7 * DAY)
    """So long without a case, a fault session is over: the ladder begins at its foot again."""


DEFAULT_LADDER: Final = (
    Rung(remedy=Remedy.RESET_GPU, kind=KindName("gpu-reset")),
    Rung(remedy=Remedy.REBOOT, kind=KindName("reboot"), tries=2),
)
"""After its top: triage, which is a person's."""


class HealthConduct(Value):
    pools: tuple[PoolConduct, ...] = ()
    ladder: tuple[Rung, ...] = DEFAULT_LADDER
    limits: OffenderLimits = OffenderLimits()
    verify: tuple[str, ...] = ()
    """Verification tasks that a host must pass, beside the usual ones, before it returns from a case."""
    expire: Duration = Duration(DAY)
    """A finding of an event that was not seen again for so long stands no more, unless its verdict is bad."""
