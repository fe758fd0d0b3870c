"""Heat: zones above their trip points, processors that slow themselves down."""

from collections.abc import Iterator
from pathlib import Path

from trainmaster.live.agent.health.probes.declare import Probe, Skipped
from trainmaster.live.agent.health.probes.sysfs import leaves, names_in, text_of

PROBE = Probe(
    name="heat",
    what="heat: zones above their limits, processors that slow themselves down",
    unreadable="the temperatures can't be read",
    module="trainmaster.live.agent.health.probes.heat",
)
_THROTTLE = ("package_throttle_count",)


def look(root: Path, item: str) -> str:
    base = root / "sys"
    lines = [*_zones(base), *_packages(base), *_capped(base)]
    if not lines:
        raise Skipped("this host shows no temperatures")
    return "\n".join(lines)


def _zones(base: Path) -> Iterator[str]:
    for zone in names_in(base / "class/thermal"):
        directory = f"class/thermal/{zone}"
        if zone.startswith("thermal_zone"):
            trips = [name for name in names_in(base / directory) if name.startswith("trip_point_")]
            trips = [name for name in trips if name.endswith(("_temp", "_type"))]
            yield from leaves(base, directory, ("type", "temp", *trips))


def _capped(base: Path) -> Iterator[str]:
    """Processors that may not run as fast as they can: somebody, or the firmware, set a limit."""
    for policy in names_in(base / "devices/system/cpu/cpufreq"):
        yield from leaves(base, f"devices/system/cpu/cpufreq/{policy}", ("scaling_max_freq", "cpuinfo_max_freq"))


def _packages(base: Path) -> Iterator[str]:
    """One processor of each package: all of them show the same."""
    seen = set()
    for name in names_in(base / "devices/system/cpu"):
        directory = f"devices/system/cpu/{name}"
        if name.startswith("cpu") and name[3:].isdigit():
            package = text_of(base / directory / "topology/physical_package_id") or ""
            if package not in seen:
                found = list(leaves(base, f"{directory}/thermal_throttle", _THROTTLE))
                seen.update([package] if found else [])
                yield from found
