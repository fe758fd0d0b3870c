"""Ports as sysfs shows them, against what this host has seen of them.

`down` is right for a port that nobody cabled, and only positive evidence says that one was: it was up before, on this
host. So a port that was never seen up is watched and no more, whatever its state; one that was up and is down is what
the reader of states says.
"""

from collections.abc import Iterable, Iterator

from trainmaster.core.health.capture import Block
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.policy import Index
from trainmaster.core.health.ports import read
from trainmaster.core.health.probe.leaves import Leaves, below, claim, line, number
from trainmaster.core.health.words import OK, SUSPECT, WATCH, Verdict


def up(tree: Leaves) -> frozenset[str]:
    """Units of ports and links that are up now."""
    ports = {
        f"port {found.group(1)}/{found.group(2)}".removesuffix("/1")
        for found, value in below(tree, r"class/infiniband/([\w-]+)/ports/(\d+)/state")
        if value.endswith("ACTIVE")
    }
    links = {
        f"link {found.group(1)}" for found, value in below(tree, r"class/net/([\w.-]+)/operstate") if value == "up"
    }
    return frozenset(ports | links)


def findings(tree: Leaves, seen_up: frozenset[str], index: Index) -> Iterator[Finding]:
    """`seen_up`: what was up at an earlier look."""
    text = "\n".join(line(path, value) for path, value in tree.items() if path.startswith("class/infiniband/"))
    for finding in read(Block("", "", "", 1, text), index) or () if text else ():
        known = finding.unit in seen_up or finding.verdict is not Verdict.BAD
        yield finding if known else finding.but(
            verdict=WATCH.verdict, remedy=WATCH.remedy, offence=False, scope="", confidence="low",
            summary=f"{finding.summary}; it was never seen up here, so it may not be cabled",
        )  # fmt: skip
    for found, value in below(tree, r"class/net/([\w.-]+)/operstate"):
        unit = f"link {found.group(1)}"
        if value in ("down", "lowerlayerdown") and unit in seen_up:
            answer, why = (OK, "") if _is_off(tree, found.group(1)) else (SUSPECT, "it was up, and is down")
            yield claim(unit, answer, "link-state", why, [line(found.group(), value)], ["cable; the switch's port"])
    yield from _slow(tree)


def together(grown: Iterable[Finding]) -> Iterator[Finding]:
    """Ports that flap alone are bad; several of one host at once have a common cause, which is the switch or its
    maintenance and no fault of the host."""
    findings = list(grown)
    flapping = {finding.unit for finding in findings if finding.verdict is Verdict.BAD}
    for finding in findings:
        if finding.verdict is not Verdict.BAD or len(flapping) == 1:
            yield finding
            continue
        summary = f"{finding.summary}; {len(flapping)} ports of this host do"
        yield finding.but(
            verdict=WATCH.verdict, remedy=WATCH.remedy, offence=False, scope="", summary=summary, confidence="medium",
            next_evidence=("the switch that they share", *finding.next_evidence),
        )  # fmt: skip


def _is_off(tree: Leaves, name: str) -> bool:
    """Whether somebody set it down: the flag IFF_UP is missing."""
    text = tree.get(f"class/net/{name}/flags", "")
    return text.startswith("0x") and not int(text[2:] or "0", 16) & 1


def _slow(tree: Leaves) -> Iterator[Finding]:
    """An Ethernet port that runs at less than half of what its equals run at (same driver)."""
    by_driver: dict[str, list[tuple[int, str, str]]] = {}
    for found, value in below(tree, r"class/net/([\w.-]+)/speed"):
        speed = number(value) or 0
        if speed > 0:
            driver = tree.get(f"class/net/{found.group(1)}/device/driver", "")
            by_driver.setdefault(driver, []).append((speed, found.group(1), found.group()))
    for ports in by_driver.values():
        fastest = max(speed for speed, _, _ in ports)
        for speed, name, path in ports:
            if speed < fastest / 2 and len(ports) > 2:
                summary = f"it runs at {speed} Mb/s, others of its kind at {fastest}"
                yield claim(f"link {name}", WATCH, "link-speed", summary, [line(path, str(speed))], confidence="medium")
