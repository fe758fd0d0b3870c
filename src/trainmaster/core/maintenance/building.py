"""From what somebody says of a train to the train: its units, and the domains in which they are visited.

Domains are built the same way each time, so a wish that was carried out already asks for nothing. When units were
added, those that have a domain keep it; when the size of a stop is another one, all is divided anew.
"""

from collections.abc import Sequence

from trainmaster.core.base.hostlist import HostListError, parse
from trainmaster.core.base.ids import NAME_PATTERN, HostId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import HOUR, SECOND
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.maintenance.capacity import WHOLE, CapacityPolicy, Share, counted
from trainmaster.core.maintenance.check import no_component
from trainmaster.core.maintenance.domains import Domain, DomainId, build
from trainmaster.core.maintenance.ledger import Ledger, Side
from trainmaster.core.maintenance.train import TrainSpec
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.core.step import Step

LONGEST = 3660 * 24 * HOUR

Domains = tuple[tuple[HostId, ...], ...]


def build_train(step: Step, wish: TrainWish) -> TrainSpec | Reason:
    """The train that is wished for, or why there can't be one."""
    reason = _check_words(wish)
    if reason is not None:
        return reason
    known = step.state.maintenance.trains.get(wish.name)
    before = known.spec if known is not None else None
    domains = _named_domains(step, wish) if wish.domains else _built_domains(step, wish, before)
    if isinstance(domains, Reason):
        return domains
    reason = _check_components(step, wish, domains) or _check_room(step, domains)
    if reason is not None:
        return reason
    units = sum(map(len, domains))
    return TrainSpec(
        name=wish.name,
        domains=domains,
        cycle=wish.cycle,
        components=wish.components,
        stop_limit=wish.stop_limit,
        evict_after=wish.evict_after,
        emergency=wish.emergency,
        mode=wish.mode or (before.mode if before is not None else "observe"),
        size=wish.domain_size.at_most(units) if wish.domain_size is not None else 0,
    )


def _check_words(wish: TrainWish) -> Reason | None:
    if not NAME_PATTERN.fullmatch(wish.name):
        return because(Token.BAD_REQUEST, f"{wish.name!r} is not a name: a-z, 0-9 and hyphens, at most 63")
    given = [key for key in ("cluster", "hosts", "domains") if getattr(wish, key)]
    if len(given) != 1:
        said = " and ".join(given) or "none of them"
        return because(Token.BAD_REQUEST, f"train {wish.name} is given one of cluster, hosts and domains, not {said}")
    size = wish.domain_size
    if (size is None) != bool(wish.domains):
        missing = "no domain_size, the most units of a stop" if size is None else "a domain_size and domains"
        return because(Token.BAD_REQUEST, f"train {wish.name} has {missing}")
    if size is not None and not _is_sound(size):
        return because(Token.BAD_REQUEST, f"train {wish.name}: a domain_size of {size} lets no train stop")
    for key, value in (("cycle", wish.cycle), ("stop_limit", wish.stop_limit), ("evict_after", wish.evict_after)):
        least = 0 if key == "evict_after" else SECOND
        if value is not None and not least <= value <= LONGEST:
            return because(Token.BAD_REQUEST, f"train {wish.name}: {key} is out of range", given_us=value)
    return None


def _is_sound(size: Share) -> bool:
    given = size.hosts is not None or size.per_mille is not None
    hosts = size.hosts is None or size.hosts >= 1
    return given and hosts and (size.per_mille is None or 1 <= size.per_mille <= WHOLE)


def _hosts(step: Step, text: str) -> tuple[HostId, ...] | Reason:
    """The units of a host list."""
    try:
        hosts = parse(text)
    except HostListError as error:
        return because(Token.BAD_REQUEST, f"the host list {text!r} can't be read: {error}")
    unknown = [host for host in hosts if host not in step.state.hosts]
    if unknown:
        named = ", ".join(unknown[:5])
        return because(Token.NO_SUCH_HOST, f"the fleet has no host {named}", unknown=len(unknown))
    return hosts


def _named_domains(step: Step, wish: TrainWish) -> Domains | Reason:
    domains: list[tuple[HostId, ...]] = []
    seen: set[HostId] = set()
    for place, text in enumerate(wish.domains, 1):
        hosts = _hosts(step, text)
        if isinstance(hosts, Reason):
            return hosts
        again = seen.intersection(hosts)
        if again or not hosts:
            what = f"names {min(again)} again" if again else "names no unit"
            return because(Token.BAD_REQUEST, f"train {wish.name}: domain {place} {what}")
        seen.update(hosts)
        domains.append(hosts)
    return tuple(domains)


def _built_domains(step: Step, wish: TrainWish, before: TrainSpec | None) -> Domains | Reason:
    specs = {name: host.spec for name, host in step.state.hosts.items()}
    if wish.hosts:
        hosts = _hosts(step, wish.hosts)
        if isinstance(hosts, Reason):
            return hosts
        units = [specs[name] for name in hosts]
    else:
        units = [spec for spec in specs.values() if (spec.cluster, spec.kind) == (wish.cluster, wish.kind)]
    if not units:
        what = f"cluster {wish.cluster} has no units of kind {wish.kind}" if wish.cluster else "it names no unit"
        return because(Token.NO_SUCH_RESOURCE, f"train {wish.name}: {what}")
    clusters = sorted({str(unit.cluster) for unit in units})
    if len(clusters) > 1:
        sentence = f"train {wish.name} has units of {' and '.join(clusters)}; a train stays in one cluster"
        return because(Token.SCOPE_MISMATCH, sentence, clusters=len(clusters))
    assert wish.domain_size is not None
    units.sort(key=lambda unit: step.state.hosts[unit.id].position)
    size = wish.domain_size.at_most(len(units))
    kept = _domains_of(before, units) if before is not None and before.size == size else ()
    return tuple(domain.units for domain in build(units, size, before=kept))


def _domains_of(train: TrainSpec, units: Sequence[HostSpec]) -> tuple[Domain, ...]:
    """The domains of a train that is there, named as they were when it was built."""
    pods = {unit.id: unit.pod for unit in units}
    counts: dict[str, int] = {}
    found = []
    for members in train.domains:
        pod = next((pods[unit] for unit in members if unit in pods), None)
        if pod is not None:
            counts[pod] = counts.get(pod, 0) + 1
            found.append(Domain(id=DomainId(f"{pod}/{counts[pod]}"), units=members))
    return tuple(found)


def _check_components(step: Step, wish: TrainWish, domains: Domains) -> Reason | None:
    catalogue = step.state.maintenance.catalogue
    kinds = {step.state.hosts[unit].spec.kind for domain in domains for unit in domain}
    for name in wish.components:
        component = catalogue.component(name)
        if component is None:
            return no_component(catalogue, name)
        if component.scope != "host" or kinds.isdisjoint(component.units):
            sentence = f"train {wish.name} can't bring {name}, which is done on a {component.scope} of"
            return because(Token.SCOPE_MISMATCH, f"{sentence} {', '.join(component.units)}")
    return None


def _check_room(step: Step, domains: Domains) -> Reason | None:
    """A stop takes its whole domain; one that is larger than what planned work may ever have would wait for ever."""
    ledger = _full(step.state.maintenance.capacity, [host.spec for host in step.state.hosts.values()])
    for place, domain in enumerate(domains, 1):
        reason = ledger.never(domain)
        if reason is not None:
            sentence = f"domain {place} of {len(domains)} ({len(domain)} units), with every unit in service:"
            return Reason(token=Token.CAPACITY_NEVER, sentence=f"{sentence} {reason.sentence}", numbers=reason.numbers)
    return None


def _full(policy: CapacityPolicy, units: Sequence[HostSpec]) -> Ledger:
    """A ledger of a fleet that is all there."""
    ledger = Ledger(policy, (counted(unit) for unit in units))
    for unit in units:
        ledger.set_side(unit.id, Side.IN_SERVICE)
    return ledger
