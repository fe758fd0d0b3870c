"""A node as Kubernetes sees it: GPUs that it has, GPUs that it would give away, and what it does with pods.

`Ready` is not health. Fewer allocatable GPUs than the capacity says are GPUs that the device plugin calls unhealthy,
often under a job that still runs on them. A node that rejects every pod while its peers take theirs is a black hole:
empty and fast to fail, it attracts all the work.
"""

from typing import Any, Final

import msgspec

from trainmaster.core.health.capture import Block
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import OK, TRIAGE, UNKNOWN, WATCH, Answer

_GPU: Final = "nvidia.com/gpu"
_REJECTIONS: Final = 3


def read(block: Block, index: Index) -> list[Finding] | None:
    """Findings of one node or of a list of them, as JSON; None: it is neither."""
    if not block.text.lstrip().startswith("{") or not any(word in block.text for word in (_GPU, "rejected", '"Node"')):
        return None
    try:
        document: Any = msgspec.json.decode(block.text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    listed = document.get("items")
    items = listed if isinstance(listed, list) else [document]
    nodes = [node for node in items if isinstance(node, dict) and isinstance(_part(node, "allocatable"), dict)]
    found = [finding for node in nodes for finding in (*_node(block, node), *_conditions(block, node))]
    return found or _peers(block, document) or None


def _peers(block: Block, document: dict[str, Any]) -> list[Finding]:
    """How many pods each node refused and ran."""
    findings = []
    for name, its in document.items():
        if not isinstance(its, dict) or not isinstance(its.get("rejected"), int):
            return []
        refused, done = its["rejected"], its.get("succeeded", 0)
        bad = refused >= _REJECTIONS and not done
        words = f"{refused} pods were refused, {done} ran"
        answer = TRIAGE if bad else OK
        findings.append(block.found(f"host {name}", answer, "node-rejects", words, host=str(name)))
    return findings


def _conditions(block: Block, node: dict[str, Any]) -> list[Finding]:
    """Conditions that say something bad. A node that is not ready is not known; pressure is a look."""
    conditions = _part(node, "conditions")
    findings = []
    for each in conditions if isinstance(conditions, list) else ():
        if not isinstance(each, dict):
            continue
        kind, status = str(each.get("type")), str(each.get("status"))
        said = str(each.get("message") or each.get("reason") or "")[:200]
        answer = _condition(kind, status)
        if answer is not None:
            name = _name(node)
            words = f"{kind} is {status}" + (f": {said}" if said else "")
            row = [row for row in block.rows() if kind in row.text][:1]
            findings.append(block.found(f"host {name}".strip(), answer, "node-condition", words, rows=row, host=name))
    return findings


def _condition(kind: str, status: str) -> Answer | None:
    if kind == "Ready":
        return {"True": None, "False": TRIAGE}.get(status, UNKNOWN)
    if status != "True":
        return None
    if kind in ("KernelDeadlock", "ReadonlyFilesystem", "NetworkUnavailable"):
        return TRIAGE
    return WATCH if kind.endswith("Pressure") or kind.startswith("Frequent") else None


def _name(node: dict[str, Any]) -> str:
    metadata = node.get("metadata")
    return str(node.get("name") or (metadata.get("name") if isinstance(metadata, dict) else "") or "")


def _part(node: dict[str, Any], name: str) -> Any:
    status = node.get("status")
    return node.get(name) or (status.get(name) if isinstance(status, dict) else None)


def _node(block: Block, node: dict[str, Any]) -> list[Finding]:
    """What its GPUs say; nothing, if it has none and tells of itself otherwise."""
    capacity = _part(node, "capacity")
    if isinstance(capacity, dict) and _GPU not in capacity and not any(key.startswith("rejected") for key in node):
        words = "a node without GPUs"
        return [] if _conditions(block, node) else [block.found(f"host {_name(node)}".strip(), OK, "node", words)]
    return [_gpus(block, node)]


def _gpus(block: Block, node: dict[str, Any]) -> Finding:
    name = _name(node)
    unit = f"host {name}".strip()
    free, all_ = _count(_part(node, "allocatable")), _count(_part(node, "capacity"))
    failed = [value for key, value in node.items() if str(key).startswith("rejected") and isinstance(value, int)]
    done = [value for key, value in node.items() if str(key).startswith("succeeded") and isinstance(value, int)]
    first = [row for row in block.rows() if _GPU in row.text][:2]
    if failed and failed[0] >= _REJECTIONS and not sum(done):
        summary = f"{failed[0]} pods were rejected and none ran, though the node is ready: keep work away from it"
        next_ = ("which GPUs the rejections name", "the same counts of its peers")
        return block.found(unit, TRIAGE, "node-rejects", summary, rows=first, next=next_, host=name)
    if all_ is not None and free is not None and free < all_:
        summary = f"{all_ - free} of {all_} GPUs cannot be given away: the device plugin calls them unhealthy"
        pods = [pod for pod in node.get("pods") or () if isinstance(pod, dict) and isinstance(pod.get(_GPU), int)]
        if pods:
            left = max(0, free - sum(pod[_GPU] for pod in pods))
            summary += f"; {left} are free, as {', '.join(str(pod.get('name')) for pod in pods)} runs on the others"
        next_ = ("which GPUs: log of the device plugin, nvidia-smi", "jobs that run on them still")
        return block.found(unit, TRIAGE, "gpu-unhealthy", summary, rows=first, next=next_, host=name)
    if free is None or all_ is None:
        return block.found(unit, UNKNOWN, "gpu-unhealthy", "its GPUs are not counted", rows=first, host=name)
    return block.found(unit, OK, "gpu-unhealthy", f"all {all_} GPUs can be given away", rows=first, host=name)


def _count(resources: Any) -> int | None:
    value = resources.get(_GPU) if isinstance(resources, dict) else None
    return (
        int(value)
        if isinstance(value, int) or (isinstance(value, str) and value.isdigit() and len(value) < 6)
        else None
    )
