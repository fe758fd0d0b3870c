"""What happened to the health of hosts, in one line each; a part of `core.words`."""

from collections.abc import Callable
from typing import Any

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import Owner
from trainmaster.core.health.events import (
    BreakerSet,
    HealthAcknowledged,
    HealthConductDeclared,
    HealthModeSet,
    HealthReleased,
    HealthReported,
    PartsSeen,
    RmaClosed,
    RmaOpened,
)
from trainmaster.core.health.finding import worst


def sentences(who: Callable[[Owner], str]) -> dict[type, Callable[[Any], str]]:
    """By type of event."""

    def declared(event: HealthConductDeclared) -> str:
        pools = ", ".join(pool.name for pool in event.conduct.pools) or "no pool"
        return f"{who(event.by)} declared how health acts: {pools}"

    def set_breaker(event: BreakerSet) -> str:
        did = "tripped" if event.tripped else "reset"
        return f"{who(event.by)} {did} the breaker of {event.pool}: {event.reason}"

    return {
        HealthReported: _reported,
        PartsSeen: _parts_seen,
        HealthConductDeclared: declared,
        HealthModeSet: lambda event: f"{who(event.by)} set {event.pool} to {event.mode}: {event.reason}",
        HealthAcknowledged: lambda event: f"{who(event.by)} took on {fold(event.hosts)}: {event.reason}",
        HealthReleased: lambda event: f"{who(event.by)} says {fold(event.hosts)} is repaired: {event.reason}",
        BreakerSet: set_breaker,
        RmaOpened: lambda event: f"{who(event.by)} sends back {event.unit} of {event.host}: {event.reason}",
        RmaClosed: lambda event: f"{who(event.by)} closed {event.rma} as {event.outcome}: {event.reason}",
    }


def _reported(event: HealthReported) -> str:
    texts = [f"{finding.unit} {finding.answer}: {finding.summary}" for finding in _worst_first(event)]
    texts += [f"{each.unit}: {each.rule} holds no longer" for each in event.gone]
    more = f" and {len(texts) - 2} more" if len(texts) > 2 else ""
    if not texts:
        return f"{event.host}: {event.probe} finds nothing wrong"
    answer = worst(finding.answer for finding in event.findings)
    return f"{event.host}: {event.probe} says {answer}; {'; '.join(texts[:2])}{more}"


def _worst_first(event: HealthReported) -> list[Any]:
    return sorted(event.findings, key=lambda finding: finding.answer.rank, reverse=True)


def _parts_seen(event: PartsSeen) -> str:
    kinds = [part.kind for part in event.parts]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "no part"
    return f"{event.host}: its agent sees {counted}; chassis {event.chassis or 'unknown'}"
