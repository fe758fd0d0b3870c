"""Mounts: file systems that turned read-only, and those that are full.

A file system that the kernel set read-only after an error was writable before; one that is mounted so on purpose never
was. So what counts is the change, or `fstab`, which says what it should be.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from trainmaster.core.health.finding import Finding
from trainmaster.core.health.probe.leaves import Leaves, claim, line, number
from trainmaster.core.health.words import CONFIG, TRIAGE, WATCH

FULL_PERCENT: Final = 98.0
NEARLY_PERCENT: Final = 92.0


def writable(tree: Leaves) -> frozenset[str]:
    """Mounts that are writable now."""
    return frozenset(place for place, options in _mounts(tree) if "rw" in options)


def _mounts(tree: Leaves) -> Iterator[tuple[str, list[str]]]:
    for path, value in tree.items():
        if path.startswith("mount "):
            yield path.removeprefix("mount "), value.rpartition(" ")[2].split(",")


def read_only(tree: Leaves, were_writable: frozenset[str]) -> Iterator[Finding]:
    """Leaves: `mount PLACE: DEVICE TYPE OPTIONS` and `fstab PLACE: OPTIONS`."""
    for place, options in _mounts(tree):
        wanted = tree.get(f"fstab {place}")
        should = place in were_writable or (wanted is not None and "ro" not in wanted.split(","))
        if "ro" in options and should:
            why = "it was writable before" if place in were_writable else "fstab wants it writable"
            path = f"mount {place}"
            summary = f"the file system is read-only, and {why}: the kernel does so after an error"
            yield claim(f"fs {place}", TRIAGE, "fs-read-only", summary, [line(path, tree[path])],
                        ["the kernel log of its disk", "fsck, when the host is out"])  # fmt: skip


def space(by_place: Mapping[str, Leaves]) -> Iterator[Finding]:
    """By mount: `blocks`, `free`, `files`, `files_free`."""
    for place, tree in by_place.items():
        for what, whole, left in (("space", "blocks", "free"), ("inodes", "files", "files_free")):
            total, free = number(tree.get(whole)), number(tree.get(left))
            if not total or free is None:
                continue
            used = 100.0 * (total - free) / total
            if used >= NEARLY_PERCENT:
                answer = CONFIG if used >= FULL_PERCENT else WATCH
                proof = [line(f"{place} {name}", tree[name]) for name in (whole, left)]
                yield claim(f"fs {place}", answer, f"fs-{what}", f"{used:.0f} % of its {what} are used", proof,
                            offence=False)  # fmt: skip
