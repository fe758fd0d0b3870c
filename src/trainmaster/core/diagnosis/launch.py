"""Jobs that never came to a step: what is common to all hosts is no host's fault.

The same error at each start, each time first on another host, is the job's own: restarting it burns hosts and proves
nothing. Different errors, or always the same host, are another matter. A check that all of the initial hosts failed is
common too (`core/recovery/node_check`); replacements that are still starting have no vote. A port that was taken
belongs to a neighbour or a leftover (`core/recovery/port_conflict`), never to the network.
"""

import re
from collections import Counter
from typing import Final

from trainmaster.core.base.ids import HostId
from trainmaster.core.diagnosis import first
from trainmaster.core.diagnosis.answer import Diagnosis, Kind, ranks_text
from trainmaster.core.diagnosis.collectives import Stop
from trainmaster.core.diagnosis.evidence import Ended, Evidence, What
from trainmaster.core.recovery import node_check
from trainmaster.core.recovery.port_conflict import port_conflict

STARTUP_S: Final = 300.0
"""An attempt that ended within it, without a step, never came past its start."""
REPEATS: Final = 2
_CHANGING: Final = re.compile(r"0x[0-9a-f]+|/tmp/\S+|\b\d+(?:\.\d+)*\b", re.IGNORECASE)
_HOST_FAULT: Final = re.compile(
    r"ECC|Xid|fallen off|NVLink|node.?(?:lost|failure|fail)|host.?lost|hardware|CUDA error: (?:unknown|device)|"
    r"GPU is lost|"
    r"no CUDA-capable|uncorrectable",
    re.IGNORECASE,
)


def attempts(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """Several attempts of one job that failed."""
    failed = [each for each in evidence.endings if each.exit_code != 0]
    if not failed:
        return None
    signatures = Counter(_signature(each) for each in failed)
    signature, count = signatures.most_common(1)[0]
    same = [each for each in failed if _signature(each) == signature]
    hosts = Counter(each.host for each in failed if each.host)
    told = f"attempt {same[0].number}{_on(same[0].host)}: {same[0].error or f'exit code {same[0].exit_code}'}"
    host, most = hosts.most_common(1)[0] if hosts else ("", 0)
    everyone = [each for each in failed if each.host == host]
    alone = most >= max(REPEATS, 0.75 * len(failed)) and len(failed) >= 3 and len(evidence.endings) > 1
    if alone and (len(hosts) > 1 or len(failed) < len(evidence.endings) or _HOST_FAULT.search(told)):
        return _one_host(host, everyone, failed)
    if count < max(REPEATS, 0.75 * len(failed)):
        return _different(failed, dict(signatures))
    early = all(_at_start(each) for each in same)
    details = (
        f"the same signature {count} of {len(failed)} times: {signature}",
        f"first to fail: {', '.join(sorted(hosts)) or 'not told'}",
        "no attempt came past its start" if early else "attempts ran for some time before they failed",
    )
    advice = (
        "stop: trying again can't help; report the job as failed, with this first error",
        "correct the job or its image, then submit it again",
        "hold nothing against the hosts; attempts count anew only after a healthy period or another error",
    )
    return Diagnosis(
        kind=Kind.LAUNCH_FAILURE if early else Kind.USER_EXCEPTION,
        summary=f"the job fails in the same way at every start, on whatever host: {same[0].error or signature}",
        first_cause=told,
        confidence="high" if count >= 3 else "medium",
        details=details,
        next_evidence=("the whole traceback of the first failure", "what changed in the image or the command"),
        advice=advice,
    )


def _at_start(ended: Ended) -> bool:
    if ended.steps is not None:
        return ended.steps <= 0
    return ended.uptime_s is None or ended.uptime_s <= STARTUP_S


def _signature(ended: Ended) -> str:
    return _CHANGING.sub("#", ended.error) if ended.error else f"exit code {ended.exit_code}"


def _on(host: str) -> str:
    return f" on {host}" if host else ""


def _one_host(host: str, own: list[Ended], failed: list[Ended]) -> Diagnosis:
    told = f"attempt {own[0].number} on {host}: {own[0].error or f'exit code {own[0].exit_code}'}"
    return Diagnosis(
        kind=Kind.HARDWARE,
        summary=f"{len(own)} of {len(failed)} attempts failed first on {host}: it follows the host",
        first_cause=told,
        hosts=(host,),
        confidence="high" if len(own) >= 3 else "medium",
        details=(f"failures by their first host: {len(own)} on {host}, {len(failed) - len(own)} elsewhere",),
        next_evidence=(f"the kernel's log and the state of the GPUs of {host}",),
        advice=(f"exclude {host} from the next attempt, and check it before it comes back",),
    )


def _different(failed: list[Ended], signatures: dict[str, int]) -> Diagnosis:
    first = min(failed, key=lambda each: each.number)
    return Diagnosis(
        kind=Kind.UNDETERMINED,
        summary=f"{len(failed)} attempts failed in {len(signatures)} different ways",
        first_cause=f"attempt {first.number}{_on(first.host)}: {first.error or f'exit code {first.exit_code}'}",
        details=tuple(f"{count} times: {text}" for text, count in signatures.items())[:8],
        next_evidence=("logs of all ranks of the newest attempt",),
        advice=("judge the newest attempt by itself; no host is to blame for a mixture",),
    )


def check(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """A check of hosts before the start: judged on the initial set alone."""
    if not evidence.checks:
        return None
    ordered = sorted(evidence.checks, key=lambda each: each.id)
    count = evidence.initial_workers or len({each.rank for each in ordered})
    initial = ordered[:count] if evidence.initial_workers else list({e.rank: e for e in reversed(ordered)}.values())
    bad = {HostId(each.host): each.status for each in initial if "FAIL" in each.status or "ERROR" in each.status}
    if not bad:
        return None
    hosts = tuple(HostId(each.host) for each in sorted(initial, key=lambda each: each.id))
    verdict = node_check.judge(hosts, bad)
    common = verdict.common
    later = len(ordered) - len(initial)
    return Diagnosis(
        kind=Kind.LAUNCH_FAILURE if common else Kind.HARDWARE,
        summary=f"{len(bad)} of {verdict.initial} initial workers failed the check"
        + (": the cause is common to them (image, driver, network configuration)" if common else ""),
        first_cause="something that all initial hosts share" if common else f"the check failed on {', '.join(bad)}",
        hosts=() if common else tuple(verdict.failed),
        confidence="high" if common else "medium",
        details=(f"initial workers failed the check: {len(bad)}/{verdict.initial}",)
        + ((f"{later} replacements have no vote",) if later else ()),
        next_evidence=("the output of the check on one of them", "what changed in image, driver or network"),
        advice=(
            ("stop early; do not replace hosts one after the other", "mark no host as bad on this alone")
            if common
            else (f"replace {', '.join(bad)} and check them apart", "let the others wait")
        ),
    )


def port(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """A port that was taken. A listing of processes tells by whom."""
    conflict = evidence.conflict
    taken = [remark for remark in evidence.remarks if remark.what is What.PORT_TAKEN]
    if conflict is None and not taken:
        return None
    if any(remark.what is What.EXCEPTION for remark in evidence.remarks):
        return None
    said = taken[0].text if taken else ""
    conflict = port_conflict(said if said else "address already in use", evidence.listing) or conflict
    assert conflict is not None
    whose = [f"candidate: pid {each.pid}, a live neighbour ({each.command})" for each in conflict.neighbours]
    whose += [
        f"pid {each.pid} ({each.command}) hangs in the kernel (state D): an unkillable leftover; it ends only with a "
        "reboot, which is needed if it holds GPU memory"
        for each in conflict.leftovers
    ]
    return Diagnosis(
        kind=Kind.LAUNCH_FAILURE,
        summary=conflict.sentence(),
        first_cause=said or conflict.sentence(),
        confidence="high" if conflict.neighbours else "medium",
        details=tuple(whose) or ("no listing of processes was given",),
        next_evidence=("who has the socket: ss -ltnp", "what the leftovers hold: nvidia-smi"),
        advice=("give each job a free port of its own", "look for leftovers before the start",
                "this is no fault of the network and none of the host"),
    )  # fmt: skip


def stale_peer(evidence: Evidence, stop: Stop | None) -> Diagnosis | None:
    """Processes that start look for one that is no longer there: keys of an earlier attempt are still in the store."""
    found = first.in_order(each for each in evidence.remarks if each.what is What.STALE_PEER)
    if not found or stop is not None:
        return None
    return Diagnosis(
        kind=Kind.LAUNCH_FAILURE,
        summary="ranks that start look for an address at which nobody listens: most likely one of an earlier attempt",
        first_cause=first.told(found[0], evidence),
        confidence="medium",
        details=(f"seen by {ranks_text(first.ranks_of(found))}",),
        next_evidence=("whether that address belonged to a rank of the attempt before",),
        advice=(
            "give each attempt a store of its own (under torchrun: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1)",
            "no host and no network is to blame",
        ),
    )
