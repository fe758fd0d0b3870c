"""The experiment on lemons as one SVG: who is found, and what it does for large jobs.

Left: of the lemons of each badness, how many were found; a line for each share with its interval. Right: for each
policy the share of large jobs that a host killed, a dot a seed, the mean as a bar, and what was published as a dashed
line. Both axes begin at zero, since shares are compared.
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from trainmaster.core.words import count_text
from trainmaster.twin.lemons import PUBLISHED_AFTER, PUBLISHED_BEFORE, LemonReport

WIDTH, HEIGHT = 1000, 470
TOP, BOTTOM = 130, 380
GOOD, BAD, KNOWN = "#009e73", "#d55e00", "#0072b2"
GREY, FAINT, INK = "#607d8b", "#e4e8ea", "#263238"
HALO: Final = 'paint-order="stroke" stroke="white" stroke-width="4"'
_LEFT: Final = (70, 450)
_RIGHT: Final = (570, 970)


def svg(found: LemonReport) -> str:
    """The whole picture."""
    body = [*_heading(found), *_bands(found), *_shares(found)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    style = f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}"'
    return f'{head} {style}><rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>\n'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _heading(found: LemonReport) -> list[str]:
    told = (
        f"simulated: {found.fleet.hosts:,} hosts of 8 GPUs, {found.fleet.days} days, "
        f"{count_text(len(found.seeds), 'seed')}; {found.planted:,} lemons planted, {found.found:,} found, "
        f"{count_text(found.false_alarms, 'good host')} taken for one"
    )
    return [
        _text(24, 30, "Lemons: who is found, and what it does for large jobs", 'font-size="18" font-weight="700"'),
        _text(24, 51, told, f'fill="{GREY}"'),
    ]


def _axis(span: tuple[int, int], top: float, title: str, under: str) -> tuple[list[str], Callable[[float], float]]:
    """Lines at whole shares, and where a share lies."""

    def y(share: float) -> float:
        return BOTTOM - share / top * (BOTTOM - TOP)

    marks = [_text(span[0], TOP - 40, title, 'font-weight="700"'), _text(span[0], TOP - 22, under, f'fill="{GREY}"')]
    step = top / 5
    for number in range(6):
        share = number * step
        marks.append(f'<line x1="{span[0]}" y1="{y(share):.1f}" x2="{span[1]}" y2="{y(share):.1f}" stroke="{FAINT}"/>')
        marks.append(_text(span[0] - 8, y(share) + 4, f"{share:.0%}", f'text-anchor="end" fill="{GREY}"'))
    return marks, y


def _bands(found: LemonReport) -> list[str]:
    under = (
        f"recall {found.recall:.0%} ({found.recall_low:.0%} to {found.recall_high:.0%}), "
        f"precision {found.precision:.1%} ({found.precision_low:.0%} to {found.precision_high:.0%})"
    )
    marks, y = _axis(_LEFT, 1.0, "found, by how many times as often as others a lemon breaks", under)
    width = (_LEFT[1] - _LEFT[0]) / len(found.bands)
    for place, band in enumerate(found.bands):
        x = _LEFT[0] + place * width + width * 0.2
        share = band.found / band.planted if band.planted else 0.0
        height = BOTTOM - y(share)
        marks.append(
            f'<rect x="{x:.1f}" y="{y(share):.1f}" width="{width * 0.6:.1f}" height="{height:.1f}" fill="{GOOD}"/>'
        )
        middle = x + width * 0.3
        words = f"{band.found} of {band.planted}" if band.planted else "none"
        marks.append(_text(middle, y(share) - 6, words, 'text-anchor="middle"'))
        marks.append(_text(middle, BOTTOM + 18, f"{band.low:.0f} to {band.high:.0f}", 'text-anchor="middle"'))
    return marks


def _shares(found: LemonReport) -> list[str]:
    columns: Sequence[tuple[str, str, float, Sequence[float]]] = (
        ("lemons kept", BAD, found.kept_share.mean, [row.kept_share for row in found.rows]),
        ("found ones out", GOOD, found.found_share.mean, [row.found_share for row in found.rows]),
        ("all known", KNOWN, found.known_share.mean, [row.known_share for row in found.rows]),
    )
    most = max(share for *_, shares in columns for share in shares)
    top = max(0.2, -(-most // 0.05) * 0.05)
    under = (
        f"{found.factor.mean:.2f} times fewer ({found.factor.low:.2f} to {found.factor.high:.2f}); "
        f"published {found.published_factor:.1f} times"
    )
    marks, y = _axis(_RIGHT, top, "jobs of 512 GPUs and more that a host killed; a dot a seed", under)
    width = (_RIGHT[1] - _RIGHT[0]) / len(columns)
    for place, (name, colour, mean, shares) in enumerate(columns):
        left, middle = _RIGHT[0] + place * width, _RIGHT[0] + (place + 0.5) * width
        for number, share in enumerate(shares):
            x = middle + ((number * 0.618) % 1 - 0.5) * width * 0.5
            marks.append(f'<circle cx="{x:.1f}" cy="{y(share):.1f}" r="2.5" fill="{colour}" fill-opacity="0.45"/>')
        marks.append(
            f'<line x1="{left + width * 0.15:.1f}" y1="{y(mean):.1f}" x2="{left + width * 0.85:.1f}" '
            f'y2="{y(mean):.1f}" stroke="{colour}" stroke-width="3"/>'
        )
        marks.append(_text(middle, BOTTOM + 18, name, 'text-anchor="middle"'))
        marks.append(
            _text(middle, BOTTOM + 36, f"{mean:.1%}", f'text-anchor="middle" font-weight="700" fill="{colour}"')
        )
    for share, place in ((PUBLISHED_BEFORE, 0), (PUBLISHED_AFTER, 1)):
        left = _RIGHT[0] + place * width
        marks.append(
            f'<line x1="{left:.1f}" y1="{y(share):.1f}" x2="{left + width:.1f}" y2="{y(share):.1f}" stroke="{INK}" '
            'stroke-dasharray="5 4"/>'
        )
        x, below = (left + width + 4, 4) if place == 0 else (left + 2, 15)  # where no dots are
        marks.append(_text(x, y(share) + below, f"published {share:.0%}", f'font-size="11" fill="{INK}" {HALO}'))
    marks.append(
        _text(
            _RIGHT[0],
            BOTTOM + 62,
            "lemons kept: the fleet is scaled so that this comes out as published",
            f'font-size="11" fill="{GREY}"',
        )
    )
    return marks
