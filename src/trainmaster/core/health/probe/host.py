"""The host around its parts: heat, clock, memory layout, drivers that run against those that are installed."""

from collections.abc import Iterator
from typing import Final

from trainmaster.core.health.finding import Finding
from trainmaster.core.health.probe.leaves import Leaves, below, claim, line, number
from trainmaster.core.health.words import CONFIG, SUSPECT, TRIAGE, WATCH

UNSYNCED: Final = 5
"""The state TIME_ERROR of adjtimex."""
CAPPED: Final = 0.75
STEP_US: Final = 1_000_000
"""A clock that moves more against the monotonic one between two looks was set."""
FAR_US: Final = 100_000
"""Farther from its servers, logs of hosts no longer tell what came first."""


def heat(tree: Leaves) -> Iterator[Finding]:
    """Zones above one of their trip points, in thousandths of a degree."""
    for found, value in below(tree, r"class/thermal/(thermal_zone\d+)/temp"):
        zone, now = found.group(1), number(value)
        base = f"class/thermal/{zone}"
        for trip, kind in below(tree, rf"{base}/(trip_point_\d+)_type"):
            limit = number(tree.get(f"{base}/{trip.group(1)}_temp"))
            if now is None or limit is None or limit <= 0 or now < limit or kind not in ("critical", "hot"):
                continue
            name = tree.get(f"{base}/type", zone)
            summary = f"{name} is at {now / 1000:.0f} degrees, {kind} is {limit / 1000:.0f}"
            proof = [line(found.group(), value), line(f"{base}/{trip.group(1)}_temp", str(limit))]
            yield claim("host", TRIAGE if kind == "critical" else SUSPECT, f"heat-{name}", summary, proof,
                        ["fans and air; neighbours in the rack"])  # fmt: skip


def capped(tree: Leaves) -> Iterator[Finding]:
    """Processors whose clock is limited to much less than they can."""
    proof = []
    for found, value in below(tree, r"(devices/system/cpu/cpufreq/\w+)/scaling_max_freq"):
        limit, most = number(value), number(tree.get(f"{found.group(1)}/cpuinfo_max_freq"))
        if limit and most and limit < CAPPED * most:
            proof += [line(found.group(), value), line(f"{found.group(1)}/cpuinfo_max_freq", str(most))]
    if proof:
        summary = f"the clock of {len(proof) // 2} processors is limited to less than {CAPPED:.0%} of what they can"
        yield claim("host", CONFIG, "cpu-capped", summary, proof[:4], ["who set it: cpupower frequency-info"],
                    offence=False)  # fmt: skip


def clock(tree: Leaves, before: Leaves) -> Iterator[Finding]:
    """Leaves of adjtimex, and both clocks, in microseconds."""
    state, error = number(tree.get("adjtimex state")), number(tree.get("adjtimex maxerror"))
    if state == UNSYNCED:
        yield claim("host", WATCH, "clock-not-synchronised", "nothing keeps the clock of this host right",
                    [line("adjtimex state", str(state))], ["the time service: chronyc tracking"],
                    offence=False)  # fmt: skip
    elif error is not None and error > FAR_US:
        yield claim("host", WATCH, "clock-error", f"the clock may be {error / 1e6:.1f} s off",
                    [line("adjtimex maxerror", str(error))], ["chronyc sources"], offence=False)  # fmt: skip
    now, then = _offset(tree), _offset(before)
    if now is not None and then is not None and abs(now - then) > STEP_US:
        summary = f"the clock was set by {(now - then) / 1e6:+.1f} s"
        proof = [line("clock real", tree["clock real"]), line("clock monotonic", tree["clock monotonic"])]
        yield claim("host", WATCH, "clock-step", summary, proof, offence=False)


def _offset(tree: Leaves) -> int | None:
    real, monotonic = number(tree.get("clock real")), number(tree.get("clock monotonic"))
    return None if real is None or monotonic is None else real - monotonic


def layout(tree: Leaves) -> Iterator[Finding]:
    """NUMA nodes without memory or processors, and devices that no node has where there are several."""
    nodes = sorted({found.group(1) for found, _ in below(tree, r"devices/system/node/(node\d+)/\w+")})
    for node in nodes:
        memory = number(tree.get(f"devices/system/node/{node}/MemTotal"))
        if memory == 0 and tree.get(f"devices/system/node/{node}/cpulist"):
            proof = [line(f"devices/system/node/{node}/MemTotal", "0")]
            yield claim("host", SUSPECT, f"numa-{node}", f"{node} has processors and no memory", proof,
                        ["DIMMs that the firmware left out: dmidecode -t memory"])  # fmt: skip
    if len(nodes) > 1:
        for found, value in below(tree, r"bus/pci/devices/([0-9a-f:.]+)/numa_node"):
            if value == "-1":
                proof = [line(found.group(), value)]
                summary = "no NUMA node is known for it: the firmware does not say, and transfers may cross the host"
                yield claim(f"gpu {found.group(1)[:-2]}", CONFIG, "numa-unknown", summary, proof, offence=False)
    online, present = tree.get("devices/system/cpu/online"), tree.get("devices/system/cpu/present")
    if online and present and online != present:
        proof = [line("devices/system/cpu/online", online), line("devices/system/cpu/present", present)]
        yield claim("host", WATCH, "cpu-offline", f"of processors {present} only {online} run", proof, offence=False)


def versions(tree: Leaves) -> Iterator[Finding]:
    """`loaded MODULE: VERSION` against `installed MODULE: VERSION`."""
    for found, loaded in below(tree, r"loaded ([\w-]+)"):
        module = found.group(1)
        installed = tree.get(f"installed {module}", "")
        if installed and installed != loaded:
            summary = (
                f"{module} {loaded} runs, and {installed} is installed: what is started now may find the wrong one"
            )
            proof = [line(f"loaded {module}", loaded), line(f"installed {module}", installed)]
            yield claim("host", CONFIG, f"version-{module}", summary, proof, ["load it anew, or reboot"], offence=False)
