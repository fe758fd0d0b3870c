"""What a group check comes to: bandwidth, latency and the collective, and from them an outcome for every host.

Units are ranks. If a host has several, its ranks share it as hosts share a switch: all of them slow is that host.
Bandwidth and latency are judged each by itself, since a host can be late without being narrow; who is named by either
is named. The collective comes last and names nobody: in it all wait for the slowest.
"""

from collections.abc import Mapping, Sequence

from trainmaster.core.base.value import Value
from trainmaster.core.health.verification.outcome import Outcome, Result, TaskReport, report, worst
from trainmaster.core.health.verification.pairwise import Judgement

TASK = "group"


class GroupReport(Value):
    """Of a set of hosts."""

    outcome: Outcome
    sentence: str
    slow: tuple[str, ...]
    """Hosts that are named; they alone have failed."""
    hosts: dict[str, Outcome]
    bandwidth: Judgement
    latency: Judgement
    collective: Result
    task: TaskReport


def conclude(
    hosts: Mapping[str, str], bandwidth: Judgement, latency: Judgement, collective: Result, duration_s: float
) -> GroupReport:
    """`hosts`: the host of each unit."""
    kinds = [_of_hosts(judgement, hosts) for judgement in (bandwidth, latency)]
    names = tuple(dict.fromkeys(hosts.values()))
    slow = tuple(host for host in names if any(host in _named(each, hosts) for each in kinds))
    outcomes = {host: _outcome(host, slow, kinds, hosts) for host in names}
    results = [result for each in kinds for result in _results(each)]
    task = report(TASK, [*results, collective], duration_s)
    sentence = task.sentence
    if slow:
        sentence = "; ".join(dict.fromkeys(each.sentence for each in kinds if each.named))
    elif task.outcome is Outcome.PASS:
        sentence = f"{len(names)} hosts alike in bandwidth and latency; the collective is right"
    return GroupReport(
        outcome=task.outcome, sentence=sentence, slow=slow, hosts=outcomes, bandwidth=kinds[0], latency=kinds[1],
        collective=collective, task=task.but(sentence=sentence),
    )  # fmt: skip


def _of_hosts(judgement: Judgement, hosts: Mapping[str, str]) -> Judgement:
    """What the ranks of one host share is that host: then it is named, and not the ranks."""
    whole = [name for name in judgement.common if name in set(hosts.values())]
    if not whole:
        return judgement
    ranks = tuple(unit for unit in hosts if hosts[unit] in whole)
    rest = tuple(name for name in judgement.common if name not in whole)
    sentence = f"all ranks of {', '.join(whole)}: {judgement.sentence}"
    return judgement.but(
        cause="host" if len(whole) == 1 else "hosts",
        named=(*judgement.named, *ranks),
        common=rest,
        shared_by=tuple(unit for unit in judgement.shared_by if unit not in ranks),
        sentence=sentence,
    )


def _named(judgement: Judgement, hosts: Mapping[str, str]) -> set[str]:
    return {hosts[unit] for unit in judgement.named}


def _outcome(host: str, slow: Sequence[str], kinds: Sequence[Judgement], hosts: Mapping[str, str]) -> Outcome:
    """A host that is named in one respect has failed; else the worst of its ranks counts."""
    if host in slow:
        return Outcome.FAIL
    return worst([each.host_outcome(unit) for each in kinds for unit in hosts if hosts[unit] == host])


def _results(judgement: Judgement) -> list[Result]:
    """One for each who is named, or one for the whole."""
    units = judgement.named or (_whole(judgement),)
    return [
        Result(task=TASK, part=judgement.kind, unit=unit, outcome=judgement.outcome, sentence=judgement.sentence,
               numbers=judgement.numbers, evidence=judgement.evidence)
        for unit in units
    ]  # fmt: skip


def _whole(judgement: Judgement) -> str:
    if judgement.cause == "path":
        return "path " + " - ".join(judgement.paths[0])
    return ", ".join(judgement.common) or "group"
