"""Rebuilding hosts in batches while jobs run: what a plan must have, and why a job waits rather than spans two images.

A batch that returns is free at once, while the next ones still run the old image, so a scheduler that knows nothing of
images fills a large job from both. Two things prevent it: every host of the group stops taking jobs before the first
batch, and a job is placed on hosts of one image or not at all. A host that was drained by hand stays drained when the
reboot only lifts what the reboot set, so the plan must ask for a resume.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.version import key_of

RESUME: Final = "RESUME"


class RebuildPlan(Value):
    group: tuple[HostId, ...]
    """What is rebuilt."""
    batch: int
    """Hosts at a time."""
    drain_first: bool
    """All of the group stops taking jobs before the first batch."""
    next_state: str
    """What a host is set to behind its reboot."""


class PlanDefect(Value):
    key: str
    reason: str
    fix: str


def check_rebuild(plan: RebuildPlan, members: Iterable[HostId]) -> tuple[PlanDefect, ...]:
    """What is wrong with a plan for a partition with these members."""
    defects = []
    group, partition = set(plan.group), set(members)
    missing, strangers = partition - group, group - partition
    twice = [host for host, count in Counter(plan.group).items() if count > 1]
    if missing:
        reason = f"the group lacks {fold(missing)} of its partition: they keep the old image and take jobs"
        defects.append(PlanDefect(key="group", reason=reason, fix=f"add {fold(missing)}"))
    if strangers:
        reason = f"{fold(strangers)} are not in the partition"
        defects.append(PlanDefect(key="group", reason=reason, fix=f"leave out {fold(strangers)}"))
    if twice:
        defects.append(PlanDefect(key="group", reason=f"named several times: {fold(twice)}", fix="name each once"))
    if plan.batch < 1:
        reason = f"a batch of {plan.batch} rebuilds nothing"
        defects.append(PlanDefect(key="batch", reason=reason, fix="write 1 or more"))
    if not plan.drain_first:
        reason = "hosts that wait for their batch take jobs, together with those that were rebuilt"
        defects.append(PlanDefect(key="drain_first", reason=reason, fix="set drain_first to true"))
    if plan.next_state.strip().upper() != RESUME:
        reason = f"{plan.next_state or 'nothing'} leaves a host drained that was drained explicitly"
        defects.append(PlanDefect(key="next_state", reason=reason, fix=f"set it to {RESUME}"))
    return tuple(defects)


class Candidate(Value):
    """A host in the order in which a scheduler would take it."""

    host: HostId
    version: str
    """Of what a job's hosts must agree in; empty: not known."""
    free: bool


class Placement(Value):
    """Where a job goes; without hosts it waits."""

    hosts: tuple[HostId, ...]
    sentence: str
    would_mix: dict[str, int]
    """Hosts by version that it would span if versions were ignored; empty where that would not mix."""


def place_on_one_version(candidates: Sequence[Candidate], wanted: int) -> Placement:
    """Hosts for a job, all of one known version: of the version with most free hosts, of equals the newer one."""
    assert wanted > 0
    free = [candidate for candidate in candidates if candidate.free]
    counts = Counter(candidate.version for candidate in free if candidate.version)
    best = max(counts, key=lambda version: (counts[version], key_of(version), version), default="")
    if counts[best] >= wanted:
        hosts = tuple(candidate.host for candidate in free if candidate.version == best)[:wanted]
        return Placement(hosts=hosts, sentence=f"{wanted} hosts with {best}", would_mix={})
    taken = [*free, *(candidate for candidate in candidates if not candidate.free)][:wanted]
    mix = Counter(candidate.version for candidate in taken)
    if len(mix) < 2:
        sentence = f"waits: {len(free)} of {wanted} hosts are free"
        return Placement(hosts=(), sentence=sentence, would_mix={})
    words = " and ".join(f"{count} {version or 'unknown'}" for version, count in _by_count(mix))
    sentence = f"waits for {wanted} hosts of one version: it would span {words}"
    return Placement(hosts=(), sentence=sentence, would_mix=dict(sorted(mix.items())))


def _by_count(mix: Counter[str]) -> list[tuple[str, int]]:
    return sorted(mix.items(), key=lambda item: (-item[1], item[0]))
