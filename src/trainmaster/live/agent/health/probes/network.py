"""InfiniBand and Ethernet: states and counters of ports. What `ibstat` prints comes from the same files."""

from collections.abc import Iterator
from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Probe, Skipped
from trainmaster.live.agent.health.probes.sysfs import leaves, names_in

PROBE = Probe(
    name="network",
    what="InfiniBand and Ethernet: states of ports, how their counters grow",
    unreadable="the ports can't be read: a link that is down would not be seen",
    module="trainmaster.live.agent.health.probes.network",
)
_PORT = ("state", "phys_state", "rate", "link_layer")
_COUNTERS = (
    "link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "port_xmit_discards", "VL15_dropped", "port_rcv_remote_physical_errors",
)  # fmt: skip
_HARDWARE = ("roce_slow_restart", "local_ack_timeout_err", "rnr_nak_retry_err", "out_of_sequence")
_LINK = ("operstate", "carrier_changes", "speed", "flags")


def look(root: Path, item: str) -> str:
    lines = [*_infiniband(root / "sys"), *_ethernet(root / "sys")]
    if not lines:
        raise Skipped("this host shows no network cards")
    return "\n".join(lines)


def _infiniband(base: Path) -> Iterator[str]:
    for device in names_in(base / "class/infiniband"):
        for port in names_in(base / f"class/infiniband/{device}/ports"):
            directory = f"class/infiniband/{device}/ports/{port}"
            yield from leaves(base, directory, _PORT)
            yield from leaves(base, f"{directory}/counters", _COUNTERS)
            yield from leaves(base, f"{directory}/hw_counters", _HARDWARE)


def _ethernet(base: Path) -> Iterator[str]:
    """Links of cards; bridges, tunnels and the like have no device below them."""
    for name in names_in(base / "class/net"):
        directory = f"class/net/{name}"
        if (base / directory / "device").exists():
            yield from leaves(base, directory, _LINK)
            driver = base / directory / "device/driver"
            if driver.is_symlink():
                yield f"{directory}/device/driver: {driver.readlink().name}"
