"""Parts: what sits in the host. Serial numbers as far as the kernel shows them; GPUs tell theirs through NVML."""

from collections.abc import Iterator
from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Probe
from trainmaster.live.agent.health.probes.sysfs import leaves, names_in, text_of

PROBE = Probe(
    name="parts",
    what="parts: those that are missing against what was here",
    unreadable="the parts of this host can't be listed",
    module="trainmaster.live.agent.health.probes.parts",
    period_s=300.0,
)


def look(root: Path, item: str) -> str:
    base = root / "sys"
    lines = [*leaves(base, "class/dmi/id", ("product_serial", "product_uuid"))]
    for device in names_in(base / "bus/pci/devices"):
        lines += _device(base, device)
    for disk in names_in(base / "block"):
        if (base / f"block/{disk}/device").exists():
            lines.append(f"block/{disk}/size: {text_of(base / f'block/{disk}/size') or 0}")
            lines += leaves(base, f"block/{disk}", ("device/serial", "device/wwid", "device/model"))
    for controller in names_in(base / "devices/system/edac/mc"):
        for module in names_in(base / f"devices/system/edac/mc/{controller}"):
            if module.startswith(("dimm", "rank")):
                lines += leaves(base, f"devices/system/edac/mc/{controller}/{module}", ("dimm_label", "size"))
    return "\n".join(lines)


def _device(base: Path, address: str) -> Iterator[str]:
    directory = f"bus/pci/devices/{address}"
    kind = text_of(base / directory / "class") or ""
    if kind.startswith(("0x02", "0x0300", "0x0302", "0x12")):
        yield f"{directory}/class: {kind}"
        yield from leaves(base, directory, ("vendor", "device"))
        for name in names_in(base / directory / "net")[:1]:
            yield from (
                line.replace(f"/net/{name}/", "/") for line in leaves(base, f"{directory}/net/{name}", ("address",))
            )
