"""Which bits of a result are wrong, and whether that comes again.

What was computed and what is right are compared as words, not as numbers: a comparison of floats calls NaN unequal to
itself and -0.0 equal to 0.0. Of each wrong word the place and the bits that differ are kept. The same bits at the same
place in every repeat are *stuck*; once is *transient* (a cosmic ray, a marginal voltage); in between it *comes and
goes*. All three are failures, for training takes the value either way.
"""

from collections.abc import Sequence

from trainmaster.core.base.value import Value


class Wrong(Value):
    """A wrong word of one run."""

    repeat: int
    """Which run, from 0."""
    place: int
    """Index of the word in the result, row by row."""
    expected: int
    got: int
    """Both as the unsigned value of the word's bits."""

    @property
    def bits(self) -> tuple[int, ...]:
        """Positions that differ, the lowest is 0."""
        difference = self.expected ^ self.got
        return tuple(bit for bit in range(difference.bit_length()) if difference >> bit & 1)


def bits_text(bits: Sequence[int]) -> str:
    """`bit 12`, `bits 3, 7`, `17 bits`."""
    assert bits, "no difference"
    if len(bits) == 1:
        return f"bit {bits[0]}"
    return f"bits {', '.join(map(str, bits))}" if len(bits) <= 4 else f"{len(bits)} bits"


def recurrence(repeats: int, showing: int) -> str:
    """In one word, of runs of which some show it."""
    assert 0 < showing <= repeats, (showing, repeats)
    if showing == repeats and repeats > 1:
        return "stuck"
    return "transient" if showing == 1 else "comes and goes"


def describe(operation: str, wrong: Sequence[Wrong], repeats: int, words: int) -> str:
    """A sentence about the wrong words of `repeats` runs, of which `words` is the number of wrong words in all."""
    assert wrong, operation
    first = wrong[0]
    showing = len({each.repeat for each in wrong})
    more = f", {words - 1} more wrong" if words > 1 else ""
    return (
        f"{operation}: {bits_text(first.bits)} of element {first.place} wrong{more},"
        f" in {showing} of {repeats} repeats ({recurrence(repeats, showing)})"
    )
