"""Other inputs of the same kind: the same fault on other ids, other counts, in another order, among unrelated lines.

A mutation changes a text and the answer together. Ids are replaced by a mapping that is drawn once per text, so that
relations between lines stay what they are. Lines that have nothing to do with health are put between those of a log,
with the head of their neighbour. Repeats are lines that come again at once, which is still one incident.
"""

import random
import re

from tests.health.expected import Case

_ADDRESS = re.compile(
    r"(?<![0-9a-fA-F])([0-9a-fA-F]{4}(?:[0-9a-fA-F]{4})?):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?![0-9a-fA-F:])"
)
_SHORT = re.compile(r"^([0-9a-f]{2}):([0-9a-f]{2})(?=\.[0-7] )", re.MULTILINE)
_HEAD = re.compile(
    r"^(?:\[[^\]]+\] |kern +:\w+ +: \S+ |[A-Z][a-z]{2} +\d+ [\d:]+ host (?:kernel: (?:\[[\d.]+\] )?)?|kernel: )?"
)
NOISE = (
    "usb 1-1: new high-speed USB device number 4 using xhci_hcd",
    'audit: type=1400 audit(1700000000.123:45): apparmor="STATUS" operation="profile_load"',
    "docker0: port 1(veth12ab34c) entered forwarding state",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "systemd[1]: Started Session 12 of user root.",
    "nvidia-uvm: Loaded the UVM driver, major device number 511.",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03",
    "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate",
    "EXT4-fs (sda2): mounted filesystem with ordered data mode",
    "clocksource: Switched to clocksource tsc",
    "nfs: server storage-1 OK",
    "mlx5_core 0000:ff:1e.0: firmware version: 28.39.1002",
    "pcieport 0000:ff:1f.0: PME: Signaling with IRQ 44",
    "EDAC MC: Ver: 3.0.0",
    "nvme nvme7: 128/0/0 default/read/poll queues",
    "INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.2 msecs",
    "md: resync of RAID array md5",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
)
"""Benign, though some of it speaks of the same things."""
LOG = (".dmesg.log", ".journal.log", "flap-syslog.log")
IN_ORDER = ("hbm", "offender", "nhc", "slurm", "ibstat", "diag-busy", "gpu-lost", "dcgm-healthy")


def mutated(name: str, text: str, case: Case, seed: int) -> tuple[str, Case]:
    """A text of the same kind and its answer."""
    chance = random.Random(f"{name} {seed}")
    buses: dict[str, str] = {}
    text, case = _addresses(text, case, chance, buses)
    text, case = _names(name, text, case, chance)
    text = re.sub(
        r"pid=\d+|pid \d+\)", lambda found: re.sub(r"\d+", str(chance.randrange(100, 4_000_000)), found.group()), text
    )
    if name.endswith(LOG):
        text = _among_others(text, chance)
    elif name.endswith((".tsv", ".jsonl")) and not any(word in name for word in IN_ORDER):
        text = _shuffled(text, chance, header=name.endswith(".tsv"))
    if not name.endswith((*LOG, ".xml", ".jsonl")):
        text = _with_noise(text, chance)
    return text, case


def _addresses(text: str, case: Case, chance: random.Random, buses: dict[str, str]) -> tuple[str, Case]:
    """Other buses, the same ones for the same; devices and functions stay, since they say what belongs together."""
    free = [f"{bus:02x}" for bus in range(2, 0xF0)]
    chance.shuffle(free)

    def bus(old: str) -> str:
        key = old.lower()
        if key in ("00", "01") or key not in buses:
            buses.setdefault(key, key if key in ("00", "01") else free.pop())
        new = buses[key]
        return new.upper() if old != key else new

    text = _ADDRESS.sub(lambda found: f"{found[1]}:{bus(found[2])}:{found[3]}", text)
    if ".0 VGA" in text:
        text = _SHORT.sub(lambda found: f"{bus(found[1])}:{found[2]}", text)
    units = frozenset(
        (_ADDRESS.sub(lambda found: f"{found[1]}:{bus(found[2])}:{found[3]}", unit), its) for unit, its in case.units
    )
    return text, Case(case.answer, units)


_RENAMED = {
    "29-": r"nvme2n1", "33-": r"mlx5_1(?=/)", "34-": r"mlx5_10(?=')", "35-": r"\beth0\b", "39-": r"node-30",
    "38-": r"node-02",
    "40-": r"node-110", "28-": r"Channel5",
}  # fmt: skip


def _names(name: str, text: str, case: Case, chance: random.Random) -> tuple[str, Case]:
    """Other numbers in the names of hosts, disks, ports, modules, and in indices of GPUs."""
    units = case.units
    for start, pattern in _RENAMED.items():
        if name.startswith(start):
            old = re.search(pattern, text)
            assert old is not None, name
            new = re.sub(
                r"\d+(?=\D*$)", lambda found: str(int(found[0]) + chance.randrange(20, 60)), old.group(), count=1
            )
            new = f"nvme{chance.randrange(3, 9)}n1" if "nvme" in old.group() else new
            text = re.sub(pattern, new, text)
            units = frozenset(
                (re.sub(rf"\b{re.escape(old.group())}\b|(?<=_){re.escape(old.group())}", new, unit), its)
                for unit, its in units
            )
    if name.startswith(("23-", "37-")):
        swap = str(chance.randrange(2, 8)) if name.startswith("23-") else "1"
        bad = "1" if name.startswith("23-") else "0"
        other = {bad: swap, swap: bad}
        text = re.sub(
            r"(?m)((?:^|GPU:? +))([0-7])\b(?=,|  | Error|$| )",
            lambda found: found[1] + other.get(found[2], found[2]),
            text,
        )
        units = frozenset(
            (re.sub(r"\d+$", lambda found: other.get(found[0], found[0]), unit), its) for unit, its in units
        )
    return text, Case(case.answer, units)


def _among_others(text: str, chance: random.Random) -> str:
    lines: list[str] = []
    for line in text.rstrip("\n").split("\n"):
        lines.append(line)
        head = _HEAD.match(line)
        assert head is not None
        if chance.random() < 0.2 and not line.startswith(" ") and "SXid" not in line:
            lines.append(line)
        for _ in range(chance.choice((0, 0, 1, 2))):
            lines.append(head.group() + chance.choice(NOISE))
    return "\n".join(lines) + "\n"


def _with_noise(text: str, chance: random.Random) -> str:
    """Lines of a log between those of an output, as in a console that both write to."""
    lines: list[str] = []
    for line in text.rstrip("\n").split("\n"):
        head = chance.choice(("", "[12345.678901] ", "Dec  6 19:25:33 host kernel: "))
        lines += [line, *(head + chance.choice(NOISE) for _ in range(chance.choice((0, 0, 1))))]
    return "\n".join(lines) + "\n"


def _shuffled(text: str, chance: random.Random, header: bool) -> str:
    lines = text.rstrip("\n").split("\n")
    first, rest = (lines[:1], lines[1:]) if header else ([], lines)
    chance.shuffle(rest)
    return "\n".join([*first, *rest]) + "\n"
