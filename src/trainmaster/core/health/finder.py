"""Finding the few lines of a text that hold one of very many literals.

`str.find` for a hundred literals is most of the work of reading a log, and lines repeat: whole storms of them, and all
that a kernel says every day, differ in their digits only. So what a line holds is remembered under the line *without
its digits*, and found out again only for a line that is new. A literal with digits in it may be on one line of such a
kind and not on the next, so that these few are looked for in each.

A line that is new is asked for *gates* first, short pieces that many literals share and usual lines rarely have. They
change what searching costs and never what is found. (One pattern with all literals was measured slower: the engine
tries its alternatives at every character.)
"""

from collections.abc import Iterable, Iterator
from typing import Final

_GATES: Final = (
    "NVRM", "SXid", "NVSwitch", "GPU", "NVIDIA", "AER", "severity=", "ECC", "EDAC", "rror", "ault", "ail", "ink ",
    "ot ", "imeout", "timed out", "arrier", "own", "lock", "read-only", "ccessible", "version ", "emperature", "health",
    "gres", "busy", "event", "PCIe", "amdgpu", "nvme", "mlx5", "Memory", "mce: ", "Machine", " | ", "XFS", "nfs",
)  # fmt: skip
"""In the order in which they are tried as the gate of a literal."""
_DIGITS: Final = b"0123456789"
_REMEMBERED: Final = 8192
"""Kinds of lines."""
_PIECE: Final = 1 << 20
LONGEST: Final = 4_000
"""Characters of a line that are looked at. Lines of the kernel end at about a thousand."""


def _kind(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(None, _DIGITS)


class Finder:
    """Literals, ready to be searched for. Raises `ValueError` for an empty one."""

    def __init__(self, literals: Iterable[str]) -> None:
        self._gates: dict[bytes, list[tuple[str, bytes]]] = {}
        for literal in dict.fromkeys(literals):
            if not literal or "\n" in literal:
                raise ValueError(f"{literal!r} is no literal of a line")
            gate = next((gate for gate in _GATES if gate in literal), literal)
            self._gates.setdefault(_kind(gate), []).append((literal, _kind(literal)))
        self._kinds: dict[bytes, tuple[tuple[str, ...], bool]] = {}
        """What lines of a kind hold, and whether that has to be looked for in each."""

    def hits(self, text: str) -> Iterator[tuple[int, str, int, tuple[str, ...]]]:
        """The lines that hold literals, in order: their number from 0, the line, where the next one begins, and the
        literals in the order of the gates."""
        number = at = 0
        while at < len(text):
            stop = text.find("\n", at + _PIECE)
            piece = text[at:] if stop < 0 else text[at:stop]
            for line, kind in zip(piece.split("\n"), _kind(piece).split(b"\n"), strict=True):
                at += len(line) + 1
                held = self._kinds.get(kind)
                if held is None:
                    held = self._held(kind)
                if held[0]:
                    shown = line[:LONGEST]
                    literals = held[0] if not held[1] else tuple(each for each in held[0] if each in shown)
                    if literals:
                        yield number, shown, at, literals
                number += 1

    def _held(self, kind: bytes) -> tuple[tuple[str, ...], bool]:
        """The literals that a line of this kind holds or may hold."""
        remember = len(kind) <= LONGEST
        kind = kind[:LONGEST]
        found = [
            (literal, bare)
            for gate, literals in self._gates.items()
            if gate in kind
            for literal, bare in literals
            if bare in kind
        ]
        held = tuple(literal for literal, _ in found), any(literal.encode() != bare for literal, bare in found)
        if remember:
            if len(self._kinds) >= _REMEMBERED:
                self._kinds.clear()
            self._kinds[kind] = held
        return held
