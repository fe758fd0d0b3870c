"""States and counters of InfiniBand and Ethernet ports: `ibstat`, `ibdev2netdev`, sysfs, `show_gids`.

A port that is down may be a fault or a decision, and the logical state alone does not tell. The physical state does:
`Disabled` is somebody's will, `Polling` is a port that wants a peer and finds none. `ibdev2netdev` says "Down" for
every InfiniBand port without an IP address, so it decides nothing.

The old counters of InfiniBand are 4, 8 or 16 bits wide and stay at their maximum for ever. One at its maximum cannot
count any more: its differences are zero whatever happens. So it is reported as such, and states and the counters of the
hardware are what is left to look at.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from trainmaster.core.health.capture import Block, Row, table
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import OK, REBOOT, TRIAGE, UNKNOWN, WATCH, Answer

_WIDTHS: Final = {
    "link_downed": 8, "link_error_recovery": 8, "local_link_integrity_errors": 4, "excessive_buffer_overrun_errors": 4,
    "symbol_error": 16, "port_rcv_errors": 16, "port_rcv_remote_physical_errors": 16, "port_xmit_discards": 16,
    "VL15_dropped": 16,
}  # fmt: skip
"""Bits of the counters that saturate."""
_OF_THE_LINK: Final = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "port_rcv_errors",
    "local_link_integrity_errors",
)
"""What tells of the link. The others tell of congestion, or of how a buffer is set."""
_RDMA: Final = re.compile(r"^\s*link ([\w-]+/\d+) state (\w+) physical_state (\w+)", re.MULTILINE)
_PORT: Final = re.compile(r"(?:.*/)?([\w-]+)/ports/(\d+)/(?:(?:hw_)?counters/)?(\w+)")
_FIELDS: Final = {"stat": "State", "phys": "Physical state", "rate": "Rate", "link": "Link layer"}
_INVENTORY: Final = "whether this port is expected up: inventory, or the same port of its peers"


def read(block: Block, index: Index) -> list[Finding] | None:
    """The findings of a block about ports; None: it is not about any."""
    text = block.text
    if re.search(r"^[ \t]*(?:CA '|Infiniband device '|hca_id:)", text, re.MULTILINE) or "ibpanic:" in text:
        return list(_ibstat(block))
    if "==>" in text and re.search(r"port\s+\d+\s+==>", text):
        return list(_ibdev2netdev(block))
    if _RDMA.search(text):
        return list(_rdma(block))
    if "/ports/" in text and (its := table(block)) is not None and {"path", "value"} <= set(its[0]):
        return list(_sysfs(block, [(row, cells["path"], cells["value"]) for row, cells in its[1]]))
    if "/ports/" in text and re.search(r"^\S*/ports/\d+/\S+[:\s]", text, re.MULTILINE):
        return list(_sysfs(block, list(_files(block))))
    if text.lstrip().startswith("{") and '"ports"' in text:
        return _expected(block)
    return None


def _spoken(state: str) -> str:
    """`4: ACTIVE`, `PORT_ACTIVE (4)` and `Active` as one word."""
    return state.split(":")[-1].split("(")[0].strip().removeprefix("PORT_")


def state_answer(state: str, physical: str) -> tuple[Answer, str]:
    """What logical and physical state of a port mean together, and why."""
    logical, phys = _spoken(state).lower(), _spoken(physical).lower().replace(" ", "").replace("_", "")
    if phys == "disabled":
        return OK, "disabled on purpose"
    if logical == "active":
        return OK, "active"
    if logical in ("init", "initializing", "initialize", "armed"):
        return WATCH, f"{logical}: the link is there and no subnet manager has set it up"
    if phys in ("polling", "linkerrorrecovery", "portconfigurationtraining", "training", "sleep", "phytest"):
        return TRIAGE, f"down and {physical.split(':')[-1].strip()}: the port wants a peer and finds none"
    if logical == "down":
        return WATCH, "down, and nothing says why"
    return UNKNOWN, f"state {state!r} says nothing"


def _ibstat(block: Block) -> Iterator[Finding]:
    device, number = "", "1"
    ports: dict[str, dict[str, Row]] = {}
    for row in block.rows():
        text = row.text.strip()
        if found := re.match(r"CA '([^']+)'", text):
            device, number = found.group(1), "1"
        elif found := re.match(r"Infiniband device '([^']+)' port (\d+) status", text):
            device, number = found.groups()
        elif found := re.match(r"hca_id:\s*(\S+)", text):
            device, number = found.group(1), "1"
        elif found := re.fullmatch(r"[Pp]ort:?\s*(\d+):?", text):
            number = found.group(1)
        elif found := re.search(r"stat of IB device '([^']+)' failed", text):
            summary = "the device is gone: the tool stopped here, and says nothing about those behind it"
            yield block.found(
                f"port {found.group(1)}", REBOOT, "ib-device-gone", summary, rows=[row],
                next=("lspci of the card; the kernel log of mlx5_core",),
            )  # fmt: skip
        elif device and (found := re.match(r"(state|phys(?:ical)?[ _]state|rate|link_layer):", text, re.IGNORECASE)):
            ports.setdefault(f"{device}/{number}", {})[_FIELDS[found.group(1).lower()[:4]]] = row
    fastest = max((_speed(fields) for fields in ports.values()), default=0)
    for name, fields in ports.items():
        unit = f"port {name.removesuffix('/1')}"
        if "State" not in fields:
            yield block.found(unit, UNKNOWN, "ib-state", "its state is missing", rows=list(fields.values()))
            continue
        values = {key: row.text.partition(":")[2].strip() for key, row in fields.items()}
        answer, why = state_answer(values["State"], values.get("Physical state", ""))
        slow = answer == OK and why == "active" and 0 < _speed(fields) < fastest / 2
        if slow:
            answer, why = WATCH, f"active at {values['Rate']} Gb/s, others at {fastest}"
        rows = [fields[key] for key in ("State", "Physical state", *(("Rate",) if slow else ())) if key in fields]
        next_ = (_INVENTORY,) if answer != OK or "disabled" in why else ()
        yield block.found(
            unit, answer, "ib-state", why, rows=rows, next=next_, confidence="medium" if next_ else "high"
        )


def _speed(fields: dict[str, Row]) -> int:
    """Gb/s of an active port; 0 if it is not active or says nothing."""
    active = "State" in fields and _spoken(fields["State"].text.partition(":")[2]).lower() == "active"
    found = re.search(r"ate:\s*(\d{1,5})", fields["Rate"].text) if active and "Rate" in fields else None
    return int(found.group(1)) if found else 0


def _rdma(block: Block) -> Iterator[Finding]:
    """`rdma link`."""
    for row in block.rows():
        if found := _RDMA.match(row.text):
            answer, why = state_answer(found[2], found[3])
            next_ = (_INVENTORY,) if answer != OK or "disabled" in why else ()
            unit = f"port {found[1].removesuffix('/1')}"
            yield block.found(unit, answer, "ib-state", why, rows=[row], next=next_)


def _ibdev2netdev(block: Block) -> Iterator[Finding]:
    rows = [row for row in block.rows() if "==>" in row.text]
    down = [row for row in rows if row.text.rstrip().endswith("(Down)")]
    summary = f"{len(down)} of {len(rows)} network devices are down, which InfiniBand ports without an IP address are"
    next_ = ("ibstat: the state of the ports themselves",) if down else ()
    yield block.found("host", OK, "ibdev2netdev", summary, rows=down[:8], next=next_, confidence="medium")


def _files(block: Block) -> Iterator[tuple[Row, str, str]]:
    """Lines as `grep . FILES` prints them."""
    for row in block.rows():
        found = re.match(r"\s*(\S*?/ports/\d+/[\w/]+)[:\s]\s*(.+)", row.text)
        if found:
            yield row, found.group(1), found.group(2).strip()


def _sysfs(block: Block, leaves: Sequence[tuple[Row, str, str]]) -> Iterator[Finding]:
    ports: dict[tuple[str, str], dict[str, tuple[Row, str]]] = {}
    for row, path, value in leaves:
        if found := _PORT.fullmatch(path):
            ports.setdefault((found.group(1), found.group(2)), {})[found.group(3)] = (row, value)
    for (device, number), fields in ports.items():
        yield _port(block, f"port {device}/{number}".removesuffix("/1"), fields)


def _port(block: Block, unit: str, fields: dict[str, tuple[Row, str]]) -> Finding:
    stuck = [name for name, bits in _WIDTHS.items() if name in fields and _is_full(fields[name][1], bits)]
    state = fields.get("state")
    answer, why = state_answer(state[1] if state else "", fields["phys_state"][1] if "phys_state" in fields else "")
    if state is None:
        answer, why = UNKNOWN, "its state is missing"
    full = [name for name in stuck if name in _OF_THE_LINK]
    if full and answer == OK:
        answer = WATCH
    rows = [fields[name][0] for name in ("state", "phys_state", *stuck) if name in fields]
    if stuck:
        why += f"; at their maximum, so they count no more: {', '.join(f'{name}={fields[name][1]}' for name in stuck)}"
    next_ = ("changes of state over time, and hw_counters: the full counters stay at zero difference",) if stuck else ()
    return block.found(unit, answer, "ib-counters", why, rows=rows, next=next_)


def _is_full(text: str, bits: int) -> bool:
    """At the maximum, or beyond it: drivers that widen a counter still start from the old one."""
    return text.isdigit() and len(text) < 19 and int(text) == (1 << bits) - 1


def _expected(block: Block) -> list[Finding] | None:
    """Ports as JSON, with how many have to be up."""
    try:
        document: Any = msgspec.json.decode(block.text)
    except (msgspec.DecodeError, RecursionError):
        return None
    ports = document.get("ports") if isinstance(document, dict) else None
    wanted = document.get("expected", {}) if isinstance(document, dict) else {}
    if not isinstance(ports, list) or not isinstance(wanted, dict) or not all(isinstance(port, dict) for port in ports):
        return None
    least, rate = wanted.get("at_least_ports", 0), wanted.get("at_least_rate", 0)
    if not isinstance(least, int) or not isinstance(rate, int | float):
        return None
    up = [port for port in ports if str(port.get("state")).lower() == "active" and _rate(port) >= rate]
    down = [str(port.get("dev", "?")) for port in ports if port not in up]
    first = block.rows()[0]
    summary = f"{len(up)} ports are up at {rate} Gb/s or more, {least} are required"
    if len(up) >= least:
        note = (f"for information: not up are {', '.join(down)}",) if down else ()
        return [block.found("host", OK, "ib-expected", summary, rows=[first], next=note)]
    summary += f"; down are {', '.join(down)}"
    return [block.found("host", TRIAGE, "ib-expected", summary, rows=[first], next=("cables and switch ports",))]


def _rate(port: dict[str, Any]) -> float:
    rate = port.get("rate", 0)
    return float(rate) if isinstance(rate, int | float) else 0.0
