"""Joins what probes saw with what it means, and keeps what the next look is compared with.

`Memory` is what outlives an agent: parts that were here and ports that were up, on the disk of the host. Counters, and
what was writable, begin anew with each agent.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.health import smi
from trainmaster.core.health.capture import Block
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.part import Part, PartKind
from trainmaster.core.health.policy import Index
from trainmaster.core.health.probe import bus, disk, files, gpus, host, network, parts
from trainmaster.core.health.probe.growth import Growth
from trainmaster.core.health.probe.leaves import Leaves, claim, leaves
from trainmaster.core.health.read import read
from trainmaster.core.health.words import SKIPPED, UNKNOWN, Verdict
from trainmaster.live.agent.files import read_or_none, write_whole
from trainmaster.live.agent.health.probes import PROBES
from trainmaster.live.agent.health.round import Seen, Unread


class Memory(Value):
    """What was seen on this host before."""

    slots: tuple[str, ...] = ()
    up: tuple[str, ...] = ()


class Judged(Value):
    """What one look of one probe means."""

    findings: tuple[Finding, ...]
    unread: frozenset[str]
    """Units that could not be looked at; `host`: all."""


class Judge:
    def __init__(self, index: Index, memory: Path | None, expected: Mapping[PartKind, int]) -> None:
        """`memory`: the file of what was seen before; None: nothing is remembered."""
        self._index, self._path, self._counts = index, memory, expected
        self._memory = _stored(memory)
        self._growth: dict[str, Growth] = {}
        self._before: dict[str, dict[str, str]] = {}
        self._writable: frozenset[str] = frozenset()
        self._gpus: dict[str, Leaves] = {}
        self.chassis = ""
        self.parts: tuple[Part, ...] | None = None
        """None: they were not seen yet."""

    def judge(self, name: str, seen: Seen, at_us: int) -> Judged:
        """`at_us` is the boot's clock."""
        findings = [_not_read(name, item, unread) for item, unread in seen.unread.items()]
        units = frozenset(_unit(name, item) for item in seen.unread)
        if seen.texts:
            findings += _JUDGES[name](self, seen, at_us)
        return Judged(findings=tuple(findings), unread=units)

    def _grown(self, name: str, tree: Leaves, at_us: int) -> list[Finding]:
        growth = self._growth.setdefault(name, Growth(self._index))
        return growth.look(tree, at_us)

    def _nvml(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        text = "\n".join(seen.texts.values())
        self._gpus |= {f"gpu {item}": gpus.fields(its) for item, its in seen.texts.items()}
        for finding in smi.read(Block("", "", "nvidia-smi -q", 1, f"{gpus.HEAD}\n{text}"), self._index) or ():
            yield finding.but(rule="nvml")  # what nvidia-smi itself says is another probe's, and ends with that
        for item, its in seen.texts.items():
            yield from gpus.links(f"gpu {item}", its)

    def _tool(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        return read("", seen.texts[""], self._index)

    def _bus(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        tree = leaves(seen.texts[""])
        return [*bus.findings(tree), *self._grown("pcie", tree, at_us)]

    def _network(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        tree = leaves(seen.texts[""])
        found = [*network.findings(tree, frozenset(self._memory.up), self._index)]
        self._remember(self._memory.but(up=tuple(sorted({*self._memory.up, *network.up(tree)}))))
        return [*found, *network.together(self._grown("network", tree, at_us))]

    def _counted(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        return self._grown("memory", leaves(seen.texts[""]), at_us)

    def _read_only(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        tree = leaves(seen.texts[""])
        found = list(files.read_only(tree, self._writable))
        self._writable |= files.writable(tree)
        return found

    def _mounts(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        return files.space({place: leaves(text) for place, text in seen.texts.items()})

    def _smart(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        return [finding for name, text in seen.texts.items() for finding in disk.findings(name, text)]

    def _heat(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        tree = leaves(seen.texts[""])
        return [*host.heat(tree), *host.capped(tree), *self._grown("heat", tree, at_us)]

    def _clock(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        tree = leaves(seen.texts[""])
        before, self._before["clock"] = self._before.get("clock", {}), tree
        return host.clock(tree, before)

    def _layout(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        return host.layout(leaves(seen.texts[""]))

    def _versions(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        return host.versions(leaves(seen.texts[""]))

    def _parts(self, seen: Seen, at_us: int) -> Iterable[Finding]:
        tree = leaves(seen.texts[""])
        self.parts, self.chassis = parts.parts(tree, self._gpus), parts.chassis(tree)
        known = self._memory.slots
        self._remember(self._memory.but(slots=tuple(sorted({*known, *(part.slot for part in self.parts)}))))
        return parts.missing(self.parts, known, self._counts)

    def _remember(self, memory: Memory) -> None:
        if memory != self._memory and self._path is not None:
            write_whole(self._path, encode(memory))
        self._memory = memory


_JUDGES: Final[dict[str, Callable[[Judge, Seen, int], Iterable[Finding]]]] = {
    "nvml": Judge._nvml,
    "nvidia-smi": Judge._tool,
    "dcgm": Judge._tool,
    "pcie": Judge._bus,
    "network": Judge._network,
    "memory": Judge._counted,
    "read-only": Judge._read_only,
    "mounts": Judge._mounts,
    "smart": Judge._smart,
    "heat": Judge._heat,
    "clock": Judge._clock,
    "layout": Judge._layout,
    "versions": Judge._versions,
    "parts": Judge._parts,
}


def _stored(path: Path | None) -> Memory:
    data = read_or_none(path) if path is not None else None
    try:
        return Memory() if data is None else decode(data, Memory)
    except ValueError:
        return Memory()


def _unit(name: str, item: str) -> str:
    return f"{PROBES[name].kind} {item}" if item else "host"


def _not_read(name: str, item: str, unread: Unread) -> Finding:
    probe = PROBES[name]
    last = "never read here" if unread.last_s is None else f"last read {unread.last_s:.0f} s before"
    hangs = unread.how in ("deadline", "corpse")
    answer = SKIPPED if probe.verdict == Verdict.SKIPPED else UNKNOWN
    return claim(
        _unit(name, item), answer, "probe-deadline" if hangs else "probe-unreadable",
        f"{probe.unreadable} ({unread.why})", [f"{name} {item}".strip() + f": {unread.why}; {last}"],
        ["the kernel log: hung tasks, errors of its driver"], offence=False,
    )  # fmt: skip
