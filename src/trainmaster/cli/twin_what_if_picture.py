"""Units in service over simulated time as one SVG, with a plan and without: a band a book.

Each band shows the means over all seeds as lines, and below the line with the plan, shaded, how far the worst seed goes
down. The band's scale begins at the least of them, so that a few units of thousands can be seen; it says from where to
where it goes. Ticks at the foot: when operations of the plan are done, on the average.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

from trainmaster.cli.output import duration_text
from trainmaster.core.base.time import in_seconds, seconds
from trainmaster.core.words import count_text
from trainmaster.twin.whatif import BookSamples, WhatIfReport

WIDTH, LEFT, RIGHT, TOP, BAND, GAP = 1000, 170, 40, 100, 110, 40
WITH, WITHOUT = "#d55e00", "#0072b2"
GREY, FAINT, INK = "#607d8b", "#e4e8ea", "#263238"
TICKS: Final = 6


def svg(report: WhatIfReport) -> str:
    """The whole picture."""
    height = TOP + len(report.books) * (BAND + GAP) + 46
    body = _heading(report)
    for place, book in enumerate(report.books):
        body += _book(book, TOP + place * (BAND + GAP))
    body += _foot(report, height - 46)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    style = f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}"'
    return f'{head} {style}><rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>\n'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _heading(report: WhatIfReport) -> list[str]:
    told = f"from event {report.index:,} of the log, {count_text(len(report.seeds), 'seed')}; nothing of it happened"
    marks = [
        _text(24, 30, "Units in service, with the plan and without (simulated)", 'font-size="18" font-weight="700"'),
        _text(24, 51, told, f'fill="{GREY}"'),
    ]
    for x, word, colour in ((24, "without, mean", WITHOUT), (160, "with the plan, mean", WITH)):
        marks.append(f'<line x1="{x}" y1="72" x2="{x + 18}" y2="72" stroke="{colour}" stroke-width="2"/>')
        marks.append(_text(x + 24, 76, word))
    marks.append(f'<rect x="330" y="66" width="18" height="12" fill="{WITH}" fill-opacity="0.2"/>')
    marks.append(_text(354, 76, "with the plan, down to the worst seed"))
    return marks


def _book(book: BookSamples, top: float) -> list[str]:
    low = min((*book.with_plan_least, *book.without_least), default=0)
    high = max(max((*book.with_plan, *book.without), default=0.0), low + 1.0)
    count = len(book.with_plan)

    def points(values: Sequence[float]) -> list[str]:
        return [f"{_x(place, count):.1f},{top + (high - value) / (high - low) * BAND:.1f}"
                for place, value in enumerate(values)]  # fmt: skip

    shade = " ".join([*points(book.with_plan), *reversed(points(book.with_plan_least))])
    marks = [
        _text(24, top + 14, book.name, 'font-weight="700"'),
        _text(24, top + 30, f"of {book.units:,} units", f'fill="{GREY}"'),
        f'<polygon points="{shade}" fill="{WITH}" fill-opacity="0.2"/>',
    ]
    for y, value in ((top, high), (top + BAND, float(low))):
        line = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{FAINT}"/>'
        marks += [line, _text(LEFT - 8, y + 4, f"{value:,.0f}", f'text-anchor="end" fill="{GREY}"')]
    for values, colour in ((book.without, WITHOUT), (book.with_plan, WITH)):
        marks.append(f'<polyline points="{" ".join(points(values))}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return marks


def _x(place: float, count: int) -> float:
    return LEFT + place / max(count - 1, 1) * (WIDTH - LEFT - RIGHT)


def _foot(report: WhatIfReport, top: float) -> list[str]:
    """The time, and when operations are done."""
    width = WIDTH - LEFT - RIGHT
    marks = [f'<line x1="{LEFT}" y1="{top}" x2="{WIDTH - RIGHT}" y2="{top}" stroke="{GREY}"/>']
    for tick in range(TICKS + 1):
        x = LEFT + tick / TICKS * width
        text = duration_text(seconds(report.simulated_s * tick / TICKS)) if tick else "now"
        marks.append(_text(x, top + 34, text, f'text-anchor="middle" fill="{GREY}"'))
    done = [row.done_at for row in report.operations if row.done_at is not None]
    for at in done:
        x = LEFT + in_seconds(at - report.began_at) / report.simulated_s * width
        marks.append(f'<line x1="{x:.1f}" y1="{top - 8:.1f}" x2="{x:.1f}" y2="{top + 8:.1f}" stroke="{WITH}"/>')
    if report.operations:
        word = f"{len(done):,} of {count_text(len(report.operations), 'operation')} done"
        marks.append(_text(24, top + 4, word, f'fill="{GREY}"'))
    return marks
