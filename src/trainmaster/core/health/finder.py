"""Finding the few lines of a text that hold one of very many literals.

`str.find` runs through a text faster than anything else that Python has, but a run per literal adds up: with a hundred
of them it is most of the work. So literals are put under *gates*, short pieces that several of them share and that
usual lines rarely have. The text is searched for gates, and only lines with one are asked for the literals below it. A
literal without a gate of the list is its own. Gates change what searching costs and never what is found.

(One pattern with all literals was measured slower: the engine tries its alternatives at every character.)
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_GATES: Final = (
    "NVRM", "SXid", "NVSwitch", "GPU", "NVIDIA", "AER", "severity=", "ECC", "EDAC", "rror", "ault", "ail", "ink ",
    "ot ", "imeout", "timed out", "arrier", "own", "lock", "read-only", "ccessible", "version ", "emperature", "health",
    "gres", "busy", "event", "PCIe", "amdgpu", "nvme", "mlx5", "Memory", "mce: ", "Machine", " | ", "XFS", "nfs",
)  # fmt: skip
"""In the order in which they are tried as the gate of a literal."""


class Hit(NamedTuple):
    """A line with literals."""

    start: int
    end: int
    """Where its line break stands, or the text ends."""
    literals: list[str]


class Finder:
    """Literals, ready to be searched for. Raises `ValueError` for an empty one."""

    def __init__(self, literals: Iterable[str]) -> None:
        self._gates: dict[str, list[str]] = {}
        for literal in dict.fromkeys(literals):
            if not literal or "\n" in literal:
                raise ValueError(f"{literal!r} is no literal of a line")
            gate = next((gate for gate in _GATES if gate in literal), literal)
            self._gates.setdefault(gate, []).append(literal)

    def hits(self, text: str) -> Iterator[Hit]:
        """The lines that hold literals, in order; the literals in the order of the gates."""
        found: dict[int, list[str]] = {}
        ends: dict[int, int] = {}
        find, rfind, length = text.find, text.rfind, len(text)
        for gate, literals in self._gates.items():
            at = find(gate)
            alone = literals[0] if literals == [gate] else ""
            while at >= 0:
                start = rfind("\n", 0, at) + 1
                end = ends.get(start, -1)
                if end < 0:
                    end = find("\n", at)
                    end = ends[start] = length if end < 0 else end
                if alone:
                    found.setdefault(start, []).append(alone)
                else:
                    for literal in literals:
                        if find(literal, start, end) >= 0:
                            found.setdefault(start, []).append(literal)
                at = find(gate, end)
        for start in sorted(found):
            yield Hit(start, ends[start], found[start])
