"""Kernel-log lines a second of processor time through reader and verdicts: a log of 200,000 lines of which one in a
hundred tells of a fault, of eleven kinds, among what kernels say all day.

Goal: 100,000 lines a second on one core. Limit: splitting the text into lines and taking the stamp off each, which
is the least that any reader of lines does; `ratio` is ours over that. The same goal holds for the worst cases: storms
of one line, as it is or with another time and process in each copy, and a log of nothing but faults.
"""

import random
import re
import time
from collections.abc import Callable, Iterator

from bench.figure import Figure, interleaved
from trainmaster.core.health.policy import Index
from trainmaster.core.health.read import read
from trainmaster.core.health.stream import LogStream
from trainmaster.live.health.policyfile import shipped

LINES = 200_000
STORM = 800_000
GOAL = 100_000
_QUIET = (
    "usb 1-1: new high-speed USB device number 4 using xhci_hcd",
    'audit: type=1400 audit(1700000000.123:45): apparmor="STATUS" operation="profile_load" profile="unconfined"',
    "docker0: port 1(veth12ab34c) entered forwarding state",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "nvidia-uvm: Loaded the UVM driver, major device number 511.",
    "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
    "EXT4-fs (sda2): mounted filesystem with ordered data mode. Opts: (null)",
)
_FAULTS = (
    "NVRM: Xid (PCI:0000:{bus:02x}:00): 79, pid=0, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:{bus:02x}:00): 13, pid={pid}, name=python, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0)",
    "NVRM: Xid (PCI:0000:{bus:02x}:00): 45, pid={pid}, name=python, Ch 00000001",
    "NVRM: Xid (PCI:0000:{bus:02x}:00): 119, pid={pid}, name=python, Timeout after 6s of waiting for RPC response",
    "NVRM: Xid (PCI:0000:{bus:02x}:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000)",
    "nvidia-nvswitch1: SXid (PCI:0000:{bus:02x}:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    "pcieport 0000:{bus:02x}:02.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)",
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_DIMM#{bus} (channel:1 slot:0 page:0x1)",
    "blk_update_request: I/O error, dev nvme{bus}n1, sector 264192 op 0x1:(WRITE) flags 0x1000",
    "mlx5_core 0000:{bus:02x}:00.0: poll_health:852:(pid 0): device's health compromised - reached miss count",
    "INFO: task python:{pid} blocked for more than 120 seconds.",
)


def figures() -> Iterator[Figure]:
    index = Index(shipped())
    mixed = _log(0.01)
    ours, least = interleaved(lambda: _cpu(lambda: read("log", mixed, index)), lambda: _cpu(lambda: _least(mixed)), 7)
    yield Figure(
        bench="health",
        figure="health.lines_per_s",
        value=LINES / ours,
        unit="lines/s",
        better="higher",
        peer=LINES / least,
        ratio=least / ours,
        goal=f"{GOAL:,} lines/s",
        holds=LINES / ours >= GOAL,
    )
    faults = _log(1.0)
    seconds = min(_cpu(lambda: read("log", faults, index)) for _ in range(3))
    yield _rate("health.fault_lines_per_s", LINES / seconds, "nothing but faults, of eleven kinds on eight buses")
    text = _STORM_LINE.format(at=171167, part=620236, pid=7) * STORM
    yield _storm("health.storm_lines_per_s", text, "copies of one line", index)
    text = "".join(_STORM_LINE.format(at=171167 + n // 5000, part=n % 5000 * 200, pid=n) for n in range(STORM))
    yield _storm("health.varied_storm_lines_per_s", text, "copies with another time and process each", index)
    yield from _live(index)


def _storm(figure: str, text: str, what: str, index: Index) -> Figure:
    found = len(read("log", text, index))
    seconds = _cpu(lambda: read("log", text, index))
    return _rate(figure, STORM / seconds, f"{STORM:,} {what} make {found} finding", found == 1)


def _rate(figure: str, value: float, note: str, holds: bool = True) -> Figure:
    return Figure(
        bench="health", figure=figure, value=value, unit="lines/s", better="higher", goal=f"{GOAL:,} lines/s",
        holds=holds and value >= GOAL, note=note,
    )  # fmt: skip


def _live(index: Index) -> Iterator[Figure]:
    """One record at a time, as the watcher of `/dev/kmsg` hands them over: copies, when forty faults are known."""
    stream = LogStream(index, host="gpu-1", boot="b")
    stream.feed(_log(1.0)[:4000])
    lines = [_STORM_LINE.format(at=180000, part=n, pid=n) for n in range(20_000)]
    took = _cpu(lambda: [stream.feed(line) for line in lines]) / len(lines)
    yield Figure(
        bench="health", figure="health.live_line_us", value=took * 1e6, unit="us", better="lower", goal="< 1,000 us",
        holds=took < 0.001, note="a copy of a fault, fed by itself to a live log",
    )  # fmt: skip


_STORM_LINE = "[{at}.{part:06}] NVRM: Xid (PCI:0009:01:00): 95, pid={pid}, name=python, Uncontained: FBHUB. RST: Yes\n"


def _cpu(act: Callable[[], object]) -> float:
    """Seconds of one core that `act` takes, whatever else the machine does."""
    start = time.process_time()
    act()
    return time.process_time() - start


def _log(share: float) -> str:
    chance = random.Random(1)
    lines = []
    for at in range(LINES):
        words = chance.choice(_FAULTS) if chance.random() < share else chance.choice(_QUIET)
        text = words.format(bus=chance.randrange(8), pid=chance.randrange(100, 100_000)) if "{" in words else words
        lines.append(f"[{at // 10:>6}.{at % 10}00000] {text}")
    return "\n".join(lines)


_STAMP = re.compile(r"\[\s*(\d+\.\d+)\] ")


def _least(text: str) -> float:
    return sum(float(found.group(1)) for line in text.split("\n") if (found := _STAMP.match(line)))
