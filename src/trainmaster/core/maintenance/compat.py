"""Which versions go together: on a unit by the rules of the catalogue, over the hosts of a job by agreement.

Three questions, each asked at another time. Before a unit returns: which rules are broken on it. When hosts are chosen
for a job: do they agree in what a job must agree in; `stack_of` folds those versions of a host into one word, so that
the scheduler compares words and never versions. After a rollout: who was left behind.

Unknown is not healthy: a version that is needed but not known breaks the rule, and hosts of which some are known and
some are not do not agree. A component that a unit's mapping does not name is not on the unit; an empty version says
that it is there and not known.
"""

from collections import Counter
from collections.abc import Mapping

from trainmaster.core.base.hostlist import natural_key
from trainmaster.core.base.ids import ComponentName, HostId
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.catalogue import Catalogue, Rule
from trainmaster.core.maintenance.version import matches, same_version

Versions = Mapping[ComponentName, str]


class BrokenRule(Value):
    """A rule that does not hold on a unit."""

    rule: Rule
    version: str
    """Of the component that has the need."""
    found: str
    """Of the component that is needed; empty: not known."""
    sentence: str


class Mixed(Value):
    """A component in which hosts do not agree."""

    component: ComponentName
    counts: dict[str, int]
    """Hosts by version; under the empty one those whose version is not known."""
    sentence: str


class LeftBehind(Value):
    """A host with a version of neither side of a rollout."""

    host: HostId
    component: ComponentName
    version: str
    """Empty: not known."""
    target: str
    before: str
    """Empty: not known."""
    sentence: str


def broken_rules(catalogue: Catalogue, versions: Versions) -> tuple[BrokenRule, ...]:
    """The rules that do not hold on a unit with these versions, in the order of the catalogue."""
    return tuple(
        BrokenRule(
            rule=rule,
            version=versions[rule.when.component],
            found=versions.get(rule.needs.component, ""),
            sentence=_broken(rule, versions),
        )
        for rule in catalogue.rules
        if not _holds(rule, versions)
    )


def _holds(rule: Rule, versions: Versions) -> bool:
    version = versions.get(rule.when.component, "")
    if not version or (rule.only_with and rule.only_with not in versions):
        return True
    if not matches(version, rule.when.versions):
        return True
    found = versions.get(rule.needs.component, "")
    return matches(found, rule.needs.versions) and (not rule.same or same_version(version, found))


def _broken(rule: Rule, versions: Versions) -> str:
    """`fabric-manager 530.30.02 needs the same version of gpu-driver, which has 530.41.03: it checks its partner`."""
    version, found = versions[rule.when.component], versions.get(rule.needs.component, "")
    need = f"the same version of {rule.needs.component}" if rule.same else ""
    if rule.needs.versions != "*":
        need = f"{need} and {rule.needs.versions} of it" if need else f"{rule.needs.component} {rule.needs.versions}"
    has = f"which has {found}" if found else "whose version is not known"
    why = f": {rule.why}" if rule.why else ""
    return f"{rule.when.component} {version} needs {need or rule.needs.component}, {has}{why}"


def agree(catalogue: Catalogue, hosts: Mapping[HostId, Versions]) -> tuple[Mixed, ...]:
    """The components in which these hosts must agree for a job, and do not. Empty: a job may span them."""
    mixed = []
    for component in catalogue.job_consistent():
        counts = Counter(versions.get(component, "") for versions in hosts.values())
        if len(counts) > 1:
            mixed.append(_mixed(component, counts))
    return tuple(mixed)


def _mixed(component: ComponentName, counts: Counter[str]) -> Mixed:
    """The most frequent first in words."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = ", ".join(f"{version or 'an unknown version'} on {count:,}" for version, count in ordered)
    sentence = f"{component} must agree over the hosts of a job: {words}"
    return Mixed(component=component, counts=dict(sorted(counts.items())), sentence=sentence)


def stack_of(catalogue: Catalogue, versions: Versions) -> str:
    """What the hosts of a job must agree in, as one word: `container-image=25.06 cuda=12.4.1`. Hosts with equal words
    may share a job. A component that is not known stands without version; empty: none is known."""
    return stack_word(catalogue.job_consistent(), versions)


def stack_word(names: tuple[ComponentName, ...], versions: Versions) -> str:
    """`stack_of` for who asks often and keeps `catalogue.job_consistent()`."""
    found = [versions.get(name, "") for name in names]
    return " ".join(map("=".join, zip(names, found, strict=True))) if any(found) else ""


def left_behind(
    catalogue: Catalogue, hosts: Mapping[HostId, Versions], targets: Versions, before: Versions | None = None
) -> tuple[LeftBehind, ...]:
    """Hosts whose version is neither the target nor the one before it, in natural order.

    `before` names the version that a rollout leaves; for a component that it does not name, it is the most frequent
    version beside the target. Hosts that do not have a component are not asked for it.
    """
    found = []
    for component in (item.name for item in catalogue.components if item.name in targets):
        target = targets[component]
        present = {host: versions[component] for host, versions in hosts.items() if component in versions}
        previous = (before or {}).get(component) or _most_frequent(present, target)
        for host in sorted(present, key=natural_key):
            version = present[host]
            if not (same_version(version, target) or same_version(version, previous)):
                found.append(_left(host, component, version, target, previous))
    return tuple(found)


def _most_frequent(present: Mapping[HostId, str], target: str) -> str:
    """Of equals the first in text order."""
    counts = Counter(version for version in present.values() if version and not same_version(version, target))
    return min(counts, key=lambda version: (-counts[version], version), default="")


def _left(host: HostId, component: ComponentName, version: str, target: str, before: str) -> LeftBehind:
    if version:
        sides = f"neither {before} nor {target}" if before else f"not {target}"
        sentence = f"{host} has {component} {version}, {sides}"
    else:
        sentence = f"{host} does not tell its version of {component}; {target} is wanted"
    return LeftBehind(host=host, component=component, version=version, target=target, before=before, sentence=sentence)
