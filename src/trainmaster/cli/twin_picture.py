"""Capacity over time as one SVG: for each book, what is in service, promised, out for planned work, and out failed.

A band a book, drawn from above: the line at the top is the whole book, and what is missing hangs down from it, so that
a few hosts of thousands can be seen. Below: operations that have not ended, and hosts that train.
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from trainmaster.cli.output import duration_text
from trainmaster.core.base.time import seconds
from trainmaster.twin.report import RunReport, Sample

WIDTH, LEFT, RIGHT, TOP, BAND, GAP = 1000, 150, 40, 96, 92, 34
PROMISED, PLANNED, FAILED, LINE = "#f0c34e", "#0072b2", "#d55e00", "#009e73"
GREY, FAINT, INK = "#607d8b", "#e4e8ea", "#263238"
_LEGEND: Final = (("promised or leaving", PROMISED), ("out, planned", PLANNED), ("out, failed", FAILED))


def svg(report: RunReport) -> str:
    """The whole picture."""
    samples = report.samples
    names = list(samples[0].books) if samples else []
    height = TOP + (len(names) + 2) * (BAND + GAP) + 20
    body = _heading(report)
    for place, name in enumerate(names):
        body += _book(name, samples, TOP + place * (BAND + GAP))
    base = TOP + len(names) * (BAND + GAP)
    body += _series("operations under way", samples, lambda sample: sample.operations, base)
    body += _series("hosts that train", samples, lambda sample: sample.training_hosts, base + BAND + GAP)
    body.append(_text(LEFT, height - 8, "0", f'fill="{GREY}"'))
    end = duration_text(seconds(report.simulated_s))
    body.append(_text(WIDTH - RIGHT, height - 8, end, f'text-anchor="end" fill="{GREY}"'))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    style = f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}"'
    return f'{head} {style}><rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>\n'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _heading(report: RunReport) -> list[str]:
    title = f"Capacity over time, simulated: {report.scenario}, seed {report.seed}"
    failures = report.failures["failures"]
    done = f"{report.operations_done:,} operations done, {report.visits:,} visits, {failures:,} failures"
    marks = [_text(24, 30, title, 'font-size="18" font-weight="700"'), _text(24, 51, done, f'fill="{GREY}"')]
    x = 24.0
    for word, colour in _LEGEND:
        marks.append(f'<rect x="{x:.1f}" y="64" width="12" height="12" fill="{colour}"/>')
        marks.append(_text(x + 18, 74, word))
        x += 40 + 7 * len(word)
    return marks


def _x(place: int, count: int) -> float:
    return LEFT + place / max(count - 1, 1) * (WIDTH - LEFT - RIGHT)


def _book(name: str, samples: Sequence[Sample], top: float) -> list[str]:
    """What is missing, stacked from the line of the whole book downwards."""
    rows = [sample.books[name] for sample in samples]
    most = max((promised + planned + failed for _, promised, planned, failed in rows), default=0) or 1
    total = max((sum(row) for row in rows), default=0)
    marks = [
        _text(24, top + 14, name, 'font-weight="700"'),
        _text(24, top + 30, f"of {total:,} units", f'fill="{GREY}"'),
        _text(LEFT - 8, top + BAND, f"-{most:,}", f'text-anchor="end" fill="{GREY}"'),
        f'<line x1="{LEFT}" y1="{top + BAND}" x2="{WIDTH - RIGHT}" y2="{top + BAND}" stroke="{FAINT}"/>',
    ]
    before = [0.0] * len(rows)
    for column, colour in ((3, FAILED), (2, PLANNED), (1, PROMISED)):
        after = [low + row[column] for low, row in zip(before, rows, strict=True)]
        marks.append(_area(before, after, most, top, colour))
        before = after
    return [*marks, f'<line x1="{LEFT}" y1="{top}" x2="{WIDTH - RIGHT}" y2="{top}" stroke="{INK}"/>']


def _area(low: Sequence[float], high: Sequence[float], most: float, top: float, colour: str) -> str:
    """Between two lines, as steps: a count holds until it changes."""
    count = len(low)

    def side(values: Sequence[float]) -> list[str]:
        points = []
        for place, value in enumerate(values):
            y = top + value / most * BAND
            points += [f"{_x(place, count + 1):.1f},{y:.1f}", f"{_x(place + 1, count + 1):.1f},{y:.1f}"]
        return points

    return f'<polygon points="{" ".join([*side(high), *reversed(side(low))])}" fill="{colour}"/>'


def _series(title: str, samples: Sequence[Sample], value: Callable[[Sample], int], top: float) -> list[str]:
    values = [value(sample) for sample in samples]
    most = max(values, default=0) or 1
    points = [
        f"{_x(place, len(values)):.1f},{top + BAND - each / most * BAND:.1f}" for place, each in enumerate(values)
    ]
    return [
        _text(24, top + 14, title.split(" ")[0], 'font-weight="700"'),
        _text(24, top + 30, " ".join(title.split(" ")[1:]), f'fill="{GREY}"'),
        _text(LEFT - 8, top + 10, f"{most:,}", f'text-anchor="end" fill="{GREY}"'),
        f'<line x1="{LEFT}" y1="{top + BAND}" x2="{WIDTH - RIGHT}" y2="{top + BAND}" stroke="{FAINT}"/>',
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{LINE}" stroke-width="1.5"/>',
    ]
