"""Figures of two simulated worlds side by side, for `twin compare` and `twin what-if`."""

from collections.abc import Sequence

from trainmaster.cli.output import Column, Output
from trainmaster.twin.paired import Compared


def of_interest(rows: Sequence[Compared], output: Output) -> list[Compared]:
    """In a table, the figures that differ at all; `-o wide` shows all."""
    return [row for row in rows if row.verdict != "equal" or output.form == "wide"]


def columns(a: str, b: str) -> list[Column]:
    return [
        Column("figure", lambda row: row.figure),
        Column(a, lambda row: row.a, number),
        Column(b, lambda row: row.b, number),
        Column("difference", lambda row: row.difference, signed),
        Column("spread", lambda row: row.spread, number),
        Column("95 % from", lambda row: row.low, signed),
        Column("to", lambda row: row.high, signed),
        Column("p", lambda row: row.p, lambda p: f"{p:.1g}" if p < 0.1 else f"{p:.2f}", wide=True),
        Column("verdict", lambda row: row.verdict),
    ]


def number(value: float) -> str:
    """Three digits, more where they stand before the point."""
    if abs(value) >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def signed(value: float) -> str:
    text = number(value)
    return f"+{text}" if value > 0 else text
