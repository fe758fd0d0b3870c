"""A host with GPUs that are played by a small library with NVML's names (`nvml.c`), and a tree of PCIe devices."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

SLOTS = tuple(f"0000:{bus:02x}:00" for bus in (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB))
SOURCE = Path(__file__).with_suffix(".c")


def library(directory: Path) -> Path:
    """Builds the library into a directory, as pynvml looks for it. Skips where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here: the library that plays NVML can't be built")
    made = directory / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, SOURCE], check=True, capture_output=True)
    return made


def device(root: Path, address: str, kind: str, vendor: str = "0x10de", **files: str) -> Path:
    """Puts a PCIe device into a tree."""
    directory = root / "sys/bus/pci/devices" / address
    directory.mkdir(parents=True)
    for name, text in {"class": kind, "vendor": vendor, "device": "0x2330", **files}.items():
        (directory / name).write_text(f"{text}\n")
    return directory


class Gpus:
    """Eight GPUs that are well, until a test says otherwise."""

    def __init__(self, root: Path, play: Path, slots: Sequence[str] = SLOTS) -> None:
        self.root, self.path = root, play
        self._lines: list[str] = []
        for number, slot in enumerate(slots):
            device(root, f"{slot}.0", "0x030200")
            for line in ("name NVIDIA H100", f"uuid GPU-{number}", f"serial 16{number}", "action 0", "remap 0 0 0 0",
                         "links 0xf"):  # fmt: skip
                self._lines.append(f"{slot} {line}")
        self.say()

    def say(self, *lines: str) -> None:
        """Writes the script anew: the first line of a slot and key counts."""
        self.path.write_text("\n".join((*lines, *self._lines)) + "\n")
