"""All cores that the host has are in use: firmware and kernels take cores offline that made errors."""

from pathlib import Path
from typing import Final

from trainmaster.live.agent.paths import HostPaths

_PLACE: Final = Path("/sys/devices/system/cpu")


def probe(paths: HostPaths, place: Path = _PLACE) -> str:
    present, online = (_numbers((place / name).read_text()) for name in ("present", "online"))
    missing = sorted(present - online)
    return f"{len(missing)} of {len(present)} cores are offline, the first is {missing[0]}" if missing else ""


def _numbers(text: str) -> set[int]:
    """`0-3,8` as the kernel writes it."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
