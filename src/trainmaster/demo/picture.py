"""The timeline as one SVG: the job's phases, each host's situation, and the loss of both runs, over the same time.

Drawn by hand, since a plotting library would be the heaviest dependency of the product for one picture. Colours are
chosen to be told apart by readers with the common colour-vision deficiencies (after Okabe and Ito), and every colour
has its word in the legend.
"""

from collections.abc import Sequence
from html import escape

from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.demo.lanes import Lanes
from trainmaster.demo.report import Report

WIDTH, LEFT, RIGHT = 1060, 92, 24
LANE, GAP, TOP = 22, 8, 80
CHART = 150

COLOURS = {
    "training": "#009e73",
    "member": "#009e73",
    "ready": "#cfd8dc",
    "spare": "#9ad0f5",
    "verifying": "#f0e442",
    "draining": "#e69f00",
    "out for maintenance": "#b07d2b",
    "lost": "#d55e00",
    "expected": "#eceff1",
    "leaving": "#b0bec5",
    "queue": "#cfd8dc",
    "place": "#cc79a7",
    "launch": "#0072b2",
    "restore": "#56b4e9",
    "first_step": "#7fc9a9",
    "interrupt": "#d55e00",
    "detect": "#b23c00",
    "decide": "#7a5195",
    "save": "#8d6e63",
    "finish": "#607d8b",
}


def svg(report: Report, lanes: Lanes) -> str:
    """The whole picture."""
    hosts = sorted({stay.host for stay in lanes.hosts})
    bottom = TOP + (len(hosts) + 1) * (LANE + GAP)
    height = bottom + CHART + 112
    body = [_title(report), *_axis(lanes, bottom), *_job_lane(lanes)]
    for place, host in enumerate(hosts, start=1):
        top = TOP + place * (LANE + GAP)
        body.append(_label(host, top))
        body += [
            _box(lanes, stay.start, stay.end, top, stay.what, stay.what) for stay in lanes.hosts if stay.host == host
        ]
    body += _marks(report, lanes, bottom)
    body += _losses(report, bottom + 44)
    body += _legend({span.phase for span in lanes.job} | {stay.what for stay in lanes.hosts}, height - 40)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#263238"'
    return f'{head} {style}><rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>\n'


def _x(lanes: Lanes, at: int) -> float:
    share = (at - lanes.start) / max(lanes.end - lanes.start, 1)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _label(text: str, top: int) -> str:
    return _text(LEFT - 10, top + 15, text, 'text-anchor="end" font-weight="600"')


def _title(report: Report) -> str:
    equal = "losses equal to the bit" if report.losses_equal else "LOSSES DIFFER"
    first = "One host killed, one drained; the job goes on"
    second = (
        f"{equal} over {report.steps} steps"
        f" · goodput {report.goodput:.1%}, undisturbed {report.goodput_undisturbed:.1%}"
        f" · {report.steps_lost_unplanned} steps redone after the kill, {report.steps_lost_planned} after the drain"
    )
    return _text(LEFT, 24, first, 'font-size="17" font-weight="700"') + _text(LEFT, 44, second, 'fill="#546e7a"')


def _box(lanes: Lanes, start: Instant, end: Instant, top: int, what: str, title: str) -> str:
    x, until = _x(lanes, start), _x(lanes, end)
    width = max(until - x, 0.8)
    length = in_seconds(end - start)
    colour = COLOURS.get(what, "#999999")
    place = f'x="{x:.1f}" y="{top}" width="{width:.1f}" height="{LANE}"'
    box = f'<rect {place} fill="{colour}" stroke="white" stroke-width="0.6">'
    box += f"<title>{escape(title)}: {length:.2f} s</title></rect>"
    words = what.replace("_", " ")
    if width > 7 * len(words):
        box += _text(x + 5, top + 15, words, f'fill="{_ink(colour)}" font-size="11"')
    return box


def _ink(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 140 else "#263238"


def _job_lane(lanes: Lanes) -> list[str]:
    boxes = [
        _box(lanes, span.start, span.end, TOP, span.phase, f"epoch {span.epoch}, {span.phase}") for span in lanes.job
    ]
    return [_label("job", TOP), *boxes]


def _axis(lanes: Lanes, bottom: int) -> list[str]:
    length_s = in_seconds(lanes.end - lanes.start)
    every = next(step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300) if length_s / step <= 16 or step == 300)
    marks = []
    for second in range(0, int(length_s) + 1, every):
        x = _x(lanes, lanes.start + second * 1_000_000)
        marks.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="#eceff1"/>')
        marks.append(_text(x, bottom + 14, f"{second} s", 'text-anchor="middle" fill="#78909c" font-size="10"'))
    return marks


def _marks(report: Report, lanes: Lanes, bottom: int) -> list[str]:
    told = report.disturbances
    rows = [(told.killed_at, f"SIGKILL {told.killed}"), (told.drained_at, f"drain {told.drained}")]
    marks = []
    for at, text in rows:
        x = _x(lanes, at)
        marks.append(
            f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="#b00020" stroke-dasharray="4 3"/>'
        )
        marks.append(_text(x, TOP - 12, text, 'text-anchor="middle" fill="#b00020" font-weight="600" font-size="11"'))
    return marks


def _losses(report: Report, top: int) -> list[str]:
    """Both curves over steps; the disturbed one is dashed on top, so that a difference would show."""
    values = [loss for row in report.losses for loss in (row.undisturbed, row.disturbed) if loss is not None]
    if not values:
        return []
    low, high = min(values), max(values)
    curves = [
        _curve([row.undisturbed for row in report.losses], low, high, top, 'stroke="#0072b2" stroke-width="3"'),
        _curve(
            [row.disturbed for row in report.losses],
            low,
            high,
            top,
            'stroke="#e69f00" stroke-dasharray="5 4" stroke-width="2"',
        ),
    ]
    again = [place for place, row in enumerate(report.losses) if row.runs > 1]
    marks = [_dot(place, report, low, high, top) for place in again]
    label = 'text-anchor="end" fill="#78909c" font-size="10"'
    notes = [
        _label("loss", top + 50),
        _text(LEFT - 10, top + 8, f"{high:.2f}", label),
        _text(LEFT - 10, top + CHART - 26, f"{low:.2f}", label),
        _text(
            LEFT + 150,
            top + 12,
            "solid: undisturbed · dashed: disturbed · dots: steps that were done again",
            'fill="#546e7a"',
        ),
        _text(
            WIDTH - RIGHT,
            top + CHART - 8,
            f"step {len(report.losses)}",
            'text-anchor="end" fill="#78909c" font-size="10"',
        ),
    ]
    return [*curves, *marks, *notes]


def _point(place: int, value: float, count: int, low: float, high: float, top: int) -> tuple[float, float]:
    x = LEFT + (WIDTH - LEFT - RIGHT) * place / max(count - 1, 1)
    return x, top + (CHART - 30) * (1 - (value - low) / max(high - low, 1e-12))


def _curve(values: Sequence[float | None], low: float, high: float, top: int, style: str) -> str:
    points = [
        "{:.1f},{:.1f}".format(*_point(place, value, len(values), low, high, top))
        for place, value in enumerate(values)
        if value is not None
    ]
    return f'<polyline points="{" ".join(points)}" fill="none" {style}/>'


def _dot(place: int, report: Report, low: float, high: float, top: int) -> str:
    value = report.losses[place].disturbed
    x, y = _point(place, value if value is not None else low, len(report.losses), low, high, top)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="none" stroke="#d55e00" stroke-width="1.5"/>'


def _legend(words: set[str], y: int) -> list[str]:
    boxes, x = [], float(LEFT)
    for word in (word for word in COLOURS if word in words):
        text = word.replace("_", " ")
        if x + 34 + 6.3 * len(text) > WIDTH:
            x, y = float(LEFT), y + 20
        boxes.append(f'<rect x="{x:.1f}" y="{y - 10}" width="12" height="12" fill="{COLOURS[word]}"/>')
        boxes.append(_text(x + 16, y, text, 'font-size="11"'))
        x += 34 + 6.3 * len(text)
    return boxes
