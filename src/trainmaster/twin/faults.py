"""What breaks in a simulated host, and what it shows: faults as the lines and outputs that real hosts write.

A *cause* is a row of a published table: how often it was counted, and which *shapes* of signals it takes. A shape is
text with a place for the unit; it is played through the very readers that judge real hosts, so a fault has no verdict
here, it gets one. What has no signal at all (a host that dies of its power supply, a wrong result) has no text; all
that is seen of it is the loss, or the job.

Counts of `CAUSES` are those of the interruptions of Llama 3 405B (Grattafiori et al., 2024, table 5; 54 days on 16,384
H100), without software, dependencies, time-outs and planned work: 314 of the 419. Their printed percentages contradict
the counts and are not used. How a row divides into shapes is not published; the weights here are ours.

`ROOTS` are root causes of lemons, in per mille, as Kokolis et al. (2025) are quoted; they add up to 1,000 with the
rounding of the source taken up by the first.
"""

from functools import cached_property
from typing import Final, NamedTuple

from trainmaster.core.base.seed import Stream
from trainmaster.core.base.value import Value
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.read import read
from trainmaster.twin.chance import Weighted


class Shape(Value):
    """One way in which a fault shows."""

    name: str
    unit: str
    """Kind of the unit: gpu, nic, port, dimm, disk, cpu, host."""
    text: str = ""
    """`{unit}` is its address. Empty: it shows nothing."""
    takes_host: bool = False
    """The host is gone with it; else it goes on, and only a job that uses it dies."""
    kills: bool = True
    """A job on the host dies of it."""


class Cause(NamedTuple):
    """A row of a table: how often it was counted, and which shapes with which weights."""

    name: str
    weight: int
    shapes: tuple[tuple[str, int], ...]


_SHAPES: Final = (
    Shape(
        name="gpu-off-the-bus", unit="gpu", takes_host=False,
        text="[ 8123.104411] NVRM: Xid (PCI:{unit}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
        "[ 8123.104420] NVRM: GPU {unit}.0: GPU has fallen off the bus.\n",
    ),
    Shape(
        name="gpu-halted", unit="gpu",
        text="[ 9210.550101] NVRM: Xid (PCI:{unit}): 62, pid=41233, name=python, 2027(6a70) 00000000 00000000\n",
    ),
    Shape(
        name="nvlink-fatal", unit="gpu",
        text="[ 7011.221530] NVRM: Xid (PCI:{unit}): 74, pid=41233, name=python, NVLink: fatal error detected on link "
        "14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)\n",
    ),
    Shape(
        name="gsp-silent", unit="gpu",
        text="[ 5120.770011] NVRM: Xid (PCI:{unit}): 119, pid=41233, name=python, Timeout after 6s of waiting for RPC "
        "response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).\n",
    ),
    Shape(
        name="hbm-uncorrected", unit="gpu",
        text="[ 6402.100100] NVRM: Xid (PCI:{unit}): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit "
        "error (DBE) has been detected on GPU in the framebuffer at partition 9, subpartition 1.\n"
        "[ 6402.100188] NVRM: Xid (PCI:{unit}): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row "
        "(0x00000000023a1c00) marked for remapping, reset gpu to activate.\n"
        "[ 6402.310021] NVRM: Xid (PCI:{unit}): 95, pid=41233, name=python, Uncontained ECC error.\n",
    ),
    Shape(
        name="hbm-contained", unit="gpu",
        text="[ 6402.100100] NVRM: Xid (PCI:{unit}): 94, pid=41233, name=python, Contained: FB (0x0,0x0).\n"
        "[ 6402.100188] NVRM: Xid (PCI:{unit}): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row "
        "(0x0000000001b20400) marked for remapping, reset gpu to activate.\n",
    ),
    Shape(
        name="remap-failed", unit="gpu",
        text="[ 6733.004120] NVRM: Xid (PCI:{unit}): 64, pid='<unknown>', name=<unknown>, Row Remapper Error: "
        "(0x0000000001b20400) - All reserved rows for bank are remapped\n",
    ),
    Shape(
        name="sram-uncorrected", unit="gpu",
        text="[ 4410.911002] NVRM: Xid (PCI:{unit}): 95, pid=41233, name=python, Uncontained: LTC TAG (0x2,0x0).\n",
    ),
    Shape(
        name="link-polls", unit="port",
        text="CA '{unit}'\n    CA type: MT4129\n    Number of ports: 1\n    Firmware version: 28.39.1002\n    Port 1:\n"
        "        State: Down\n        Physical state: Polling\n        Rate: 10\n        Base lid: 868\n"
        "        Link layer: InfiniBand\n",
    ),
    Shape(
        name="nic-dead", unit="nic",
        text="[17982.009200] mlx5_core {unit}: poll_health:852:(pid 0): device's health compromised - reached miss "
        "count\n[17982.009217] mlx5_core {unit}: print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware "
        "error\n",
    ),
    Shape(
        name="pcie-fatal", unit="gpu",
        text="[11820.441210] pcieport 0000:00:03.1: AER: Uncorrected (Fatal) error received: {unit}.0\n"
        "[11820.441300] nvidia {unit}.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, "
        "(Receiver ID)\n[11820.902211] nvidia {unit}.0: AER: device recovery failed\n",
    ),
    Shape(
        name="disk-gone", unit="disk",
        text="[ 9070.282230] blk_update_request: I/O error, dev {unit}, sector 6442712256 op 0x1:(WRITE) flags 0x1000 "
        "phys_seg 8 prio class 0\n[ 9075.895805] XFS ({unit}): log I/O error -5\n",
    ),
    Shape(
        name="dimm-uncorrected", unit="dimm", takes_host=True,
        text="[21584.529862] mce: [Hardware Error]: Machine check events logged\n"
        "[21584.529877] EDAC MC0: 1 UE memory read error on {unit} (channel:2 slot:0 page:0x0 offset:0x0 grain:32)\n",
    ),
    Shape(
        name="cpu-machine-check", unit="cpu", takes_host=True,
        text="[  900.110221] mce: [Hardware Error]: CPU {unit}: Machine Check: 0 Bank 5: be00000000800400\n",
    ),
    Shape(
        name="soft-lockup", unit="host", takes_host=True,
        text="[20011.100201] watchdog: BUG: soft lockup - CPU#31 stuck for 233s! [kworker/31:2:811]\n",
    ),
    Shape(
        name="diagnostic-fails", unit="number",
        text='{{"DCGM GPU Diagnostic": {{"test_categories": [{{"category": "Hardware", "tests": [{{"name": '
        '"GPU Memory", "results": [{{"gpu_ids": "{unit}", "status": "Fail", "warnings": [{{"warning": '
        '"uncorrectable memory error"}}]}}]}}]}}]}}}}\n',
    ),
    Shape(name="host-dies", unit="host", takes_host=True),
    Shape(name="wrong-result", unit="host"),
)  # fmt: skip
SHAPES: Final = {shape.name: shape for shape in _SHAPES}

_NOISE: Final = (
    Shape(
        name="app-illegal-access", unit="gpu",
        text="[ 3310.001000] NVRM: Xid (PCI:{unit}): 13, pid=50110, name=python, Graphics Exception: ESR 0x514648=0x9\n"
        "[ 3310.120000] NVRM: Xid (PCI:{unit}): 43, pid=50110, name=python, Ch 00000018\n",
    ),
    Shape(
        name="app-page-fault", unit="gpu",
        text="[ 3311.001000] NVRM: Xid (PCI:{unit}): 31, pid=50110, name=python, Ch 00000018, intr 00000000. "
        "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1c_00000000.\n",
    ),
    Shape(
        name="app-cleaned-up", unit="gpu",
        text="[ 3312.001000] NVRM: Xid (PCI:{unit}): 45, pid=50110, name=python, Ch 00000010\n",
    ),
    Shape(
        name="app-segfault", unit="host",
        text="[ 3313.001000] python[50110]: segfault at 0 ip 00007f1c2c00a1b0 sp 00007ffd1c000000 error 4 in "
        "libnccl.so.2[7f1c2bf00000+8000000]\n",
    ),
    Shape(
        name="aer-corrected", unit="gpu", kills=False,
        text="[ 3314.001000] nvidia {unit}.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, "
        "(Receiver ID)\n",
    ),
    Shape(
        name="dimm-corrected", unit="dimm", kills=False,
        text="[ 3315.001000] EDAC MC0: 1 CE error on {unit} (channel:2 slot:0 page:0x0 offset:0x0 grain:8 "
        "syndrome:0x0)\n",
    ),
    Shape(name="link-flap", unit="link", kills=False, text="[ 3316.001000] mlx5_core 0000:3b:00.0 ib1: Link down\n"),
)  # fmt: skip
NOISE: Final = {shape.name: shape for shape in _NOISE}
"""What healthy hosts write: faults of applications, and corrected errors. Not one of them may take a host."""

CAUSES: Final = (
    Cause("faulty GPU", 148, (("gpu-off-the-bus", 5), ("nvlink-fatal", 2), ("gpu-halted", 2), ("pcie-fatal", 1))),
    Cause("GPU HBM3", 72, (("hbm-uncorrected", 5), ("hbm-contained", 4), ("remap-failed", 1))),
    Cause("network switch or cable", 35, (("link-polls", 1),)),
    Cause("GPU SRAM", 19, (("sram-uncorrected", 1),)),
    Cause("GPU system processor", 17, (("gsp-silent", 1),)),
    Cause("NIC", 7, (("nic-dead", 1),)),
    Cause("silent data corruption", 6, (("wrong-result", 1),)),
    Cause("SSD", 3, (("disk-gone", 1),)),
    Cause("power supply", 3, (("host-dies", 1),)),
    Cause("IO board and chassis", 4, (("pcie-fatal", 1), ("host-dies", 1))),
)

ROOTS: Final = (
    Cause("GPU", 282, (("gpu-off-the-bus", 4), ("hbm-uncorrected", 3), ("gpu-halted", 2), ("hbm-contained", 1))),
    Cause("DIMM", 205, (("dimm-uncorrected", 3), ("host-dies", 1))),
    Cause("PCIe", 154, (("pcie-fatal", 3), ("gpu-off-the-bus", 2))),
    Cause("EUD", 103, (("diagnostic-fails", 2), ("wrong-result", 1))),
    Cause("NIC", 77, (("nic-dead", 3), ("link-polls", 1))),
    Cause("BIOS", 77, (("soft-lockup", 1), ("host-dies", 1))),
    Cause("PSU", 51, (("host-dies", 1),)),
    Cause("CPU", 26, (("cpu-machine-check", 1),)),
    Cause("optics", 25, (("link-polls", 1),)),
)
"""EUD: the vendor's extended diagnostic fails. The first eight are quoted to 98.3 per cent together."""

GPUS: Final = ("0000:1b:00", "0000:43:00", "0000:52:00", "0000:61:00", "0000:9d:00", "0000:c3:00", "0000:d1:00",
               "0000:df:00")  # fmt: skip
_UNITS: Final = {
    "gpu": GPUS,
    "number": tuple("01234567"),
    "nic": tuple(f"0000:{bus}:00.0" for bus in ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")),
    "port": tuple(f"mlx5_{number}" for number in range(8)),
    "dimm": tuple(f"CPU#{number // 16}Channel#{number // 2 % 8}_DIMM#{number % 2}" for number in range(32)),
    "disk": tuple(f"nvme{number}n1" for number in range(4)),
    "cpu": ("0", "64"),
    "link": ("ib1",),
    "host": ("",),
}


class Seen(NamedTuple):
    """What a fault showed, as the readers of health judge it."""

    findings: tuple[Finding, ...]
    lines: int


class Stagehand:
    """Plays shapes to the readers. A shape of one unit is read once, and what came of it is kept."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._seen: dict[tuple[str, str], Seen] = {}
        self.lines = self.read = 0
        """Lines that were played, and lines that were read for it."""

    def play(self, shape: Shape, place: int) -> Seen:
        """`place` says which of the host's units of this kind has the fault."""
        units = _UNITS[shape.unit]
        unit = units[place % len(units)]
        key = shape.name, unit
        seen = self._seen.get(key)
        if seen is None:
            text = shape.text.format(unit=unit)
            findings = tuple(read("played", text, self._index)) if text else ()
            seen = self._seen[key] = Seen(findings, text.count("\n"))
            self.read += seen.lines
        self.lines += seen.lines
        return seen


class Table:
    """Draws causes and shapes."""

    def __init__(self, causes: tuple[Cause, ...]) -> None:
        self._causes = causes

    @cached_property
    def _by_weight(self) -> Weighted[Cause]:
        return Weighted((cause, cause.weight) for cause in self._causes)

    @cached_property
    def _shapes(self) -> dict[str, Weighted[str]]:
        return {cause.name: Weighted(cause.shapes) for cause in self._causes}

    def cause(self, stream: Stream) -> Cause:
        """Takes one number."""
        return self._by_weight.draw(stream)

    def shape(self, cause: Cause, stream: Stream) -> Shape:
        """Takes one number."""
        return SHAPES[self._shapes[cause.name].draw(stream)]
