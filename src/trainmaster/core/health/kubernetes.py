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
from trainmaster.core.health.words import OK, TRIAGE, UNKNOWN

_GPU: Final = "nvidia.com/gpu"
_REJECTIONS: Final = 3


def read(block: Block, index: Index) -> list[Finding] | None:
    """Findings of one node or of a list of them, as JSON; None: it is neither."""
    if _GPU not in block.text or not block.text.lstrip().startswith("{"):
        return None
    try:
        document: Any = msgspec.json.decode(block.text)
    except (msgspec.DecodeError, RecursionError):
        return None
    items = document.get("items") if isinstance(document.get("items"), list) else [document]
    nodes = [node for node in items if isinstance(node, dict) and isinstance(_part(node, "allocatable"), dict)]
    return [_node(block, node) for node in nodes] or None


def _part(node: dict[str, Any], name: str) -> Any:
    status = node.get("status")
    return node.get(name) or (status.get(name) if isinstance(status, dict) else None)


def _node(block: Block, node: dict[str, Any]) -> Finding:
    metadata = node.get("metadata")
    name = str(node.get("name") or (metadata.get("name") if isinstance(metadata, dict) else "") or "")
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
