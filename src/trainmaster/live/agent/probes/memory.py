"""Enough memory is available to start a keeper with PyTorch in it."""

from pathlib import Path
from typing import Final

from trainmaster.live.agent.paths import HostPaths

LEAST_KIB: Final = 256 * 1024
"""A warm process with PyTorch takes about 220 MiB; a host with less left can't run anything."""


def probe(paths: HostPaths) -> str:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            available_kib = int(value.split()[0])
            if available_kib < LEAST_KIB:
                return f"{available_kib // 1024} MiB of memory available, at least {LEAST_KIB // 1024} MiB needed"
            return ""
    return "/proc/meminfo does not tell MemAvailable"
