"""What the pictures of both demonstrations are drawn with: a time axis, lanes of coloured boxes, curves, a legend.

Drawn by hand, since a plotting library would be the heaviest dependency of the product for two pictures. Colours are
chosen to be told apart by readers with the common colour-vision deficiencies (after Okabe and Ito), and every colour
has its word in the legend.
"""

from collections.abc import Sequence
from html import escape

from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.demo.lanes import Lanes
from trainmaster.demo.report import LossRow

WIDTH, LEFT, RIGHT = 1060, 92, 24
LANE, GAP, TOP = 22, 8, 80
CHART = 150

_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 259_200, 604_800)
"""Between two marks of the axis."""

COLOURS = {
    "training": "#009e73",
    "member": "#009e73",
    "ready": "#cfd8dc",
    "spare": "#9ad0f5",
    "verifying": "#f0e442",
    "draining": "#e69f00",
    "out for maintenance": "#b07d2b",
    "applying": "#8d6e63",
    "rebooting": "#cc79a7",
    "checking": "#56b4e9",
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


def x_of(lanes: Lanes, at: int) -> float:
    share = (at - lanes.start) / max(lanes.end - lanes.start, 1)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def words(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def label(text: str, top: int) -> str:
    return words(LEFT - 10, top + 15, text, 'text-anchor="end" font-weight="600"')


def title(first: str, second: str) -> str:
    return words(LEFT, 24, first, 'font-size="17" font-weight="700"') + words(LEFT, 44, second, 'fill="#546e7a"')


def document(body: Sequence[str], height: int) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#263238"'
    return f'{head} {style}><rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>\n'


def box(lanes: Lanes, start: Instant, end: Instant, top: int, what: str, title: str) -> str:
    x, until = x_of(lanes, start), x_of(lanes, end)
    width = max(until - x, 0.8)
    length = in_seconds(end - start)
    colour = COLOURS.get(what, "#999999")
    place = f'x="{x:.1f}" y="{top}" width="{width:.1f}" height="{LANE}"'
    drawn = f'<rect {place} fill="{colour}" stroke="white" stroke-width="0.6">'
    drawn += f"<title>{escape(title)}: {length:.2f} s</title></rect>"
    text = what.replace("_", " ")
    if width > 7 * len(text):
        drawn += words(x + 5, top + 15, text, f'fill="{_ink(colour)}" font-size="11"')
    return drawn


def _ink(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 140 else "#263238"


def job_lane(lanes: Lanes) -> list[str]:
    """The job's phases, at the top."""
    boxes = [
        box(lanes, span.start, span.end, TOP, span.phase, f"epoch {span.epoch}, {span.phase}") for span in lanes.job
    ]
    return [label("job", TOP), *boxes]


def host_lanes(lanes: Lanes) -> tuple[list[str], int]:
    """A lane for each host below that of the job, and where they end."""
    drawn: list[str] = []
    hosts = sorted({stay.host for stay in lanes.hosts})
    for place, host in enumerate(hosts, start=1):
        top = TOP + place * (LANE + GAP)
        drawn.append(label(host, top))
        drawn += [
            box(lanes, stay.start, stay.end, top, stay.what, stay.what) for stay in lanes.hosts if stay.host == host
        ]
    return drawn, TOP + (len(hosts) + 1) * (LANE + GAP)


def mark(lanes: Lanes, at: Instant, text: str, bottom: int, rise: int = 0) -> str:
    """A dashed line with a word above it, `rise` rows higher than usual."""
    x = x_of(lanes, at)
    top = TOP - 8 - 13 * rise
    line = f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#b00020" stroke-dasharray="4 3"/>'
    return line + words(x, top - 4, text, 'text-anchor="middle" fill="#b00020" font-weight="600" font-size="11"')


def axis(lanes: Lanes, bottom: int) -> list[str]:
    length_s = in_seconds(lanes.end - lanes.start)
    every = next((step for step in _STEPS_S if length_s / step <= 16), 86_400 * -(-int(length_s / 16) // 86_400))
    marks = []
    for second in range(0, int(length_s) + 1, every):
        x = x_of(lanes, lanes.start + second * 1_000_000)
        marks.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="#eceff1"/>')
        marks.append(
            words(x, bottom + 14, _second_text(second, every), 'text-anchor="middle" fill="#78909c" font-size="10"')
        )
    return marks


def _second_text(second: int, every: int) -> str:
    """In the greatest unit that all marks are whole numbers of."""
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if every % size == 0:
            return f"{second // size} {unit}"
    return f"{second} s"


def loss_chart(losses: Sequence[LossRow], top: int) -> list[str]:
    """Both curves over steps; the disturbed one is dashed on top, so that a difference would show."""
    values = [loss for row in losses for loss in (row.undisturbed, row.disturbed) if loss is not None]
    if not values:
        return []
    low, high = min(values), max(values)
    curves = [
        _curve([row.undisturbed for row in losses], low, high, top, 'stroke="#0072b2" stroke-width="3"'),
        _curve(
            [row.disturbed for row in losses],
            low,
            high,
            top,
            'stroke="#e69f00" stroke-dasharray="5 4" stroke-width="2"',
        ),
    ]
    again = [place for place, row in enumerate(losses) if row.runs > 1]
    marks = [_dot(place, losses, low, high, top) for place in again]
    small = 'text-anchor="end" fill="#78909c" font-size="10"'
    notes = [
        label("loss", top + 50),
        words(LEFT - 10, top + 8, f"{high:.2f}", small),
        words(LEFT - 10, top + CHART - 26, f"{low:.2f}", small),
        words(
            LEFT,
            top + CHART - 8,
            "solid: undisturbed · dashed: disturbed · dots: steps that were done again",
            'fill="#546e7a"',
        ),
        words(WIDTH - RIGHT, top + CHART - 8, f"step {len(losses)}", small),
    ]
    return [*curves, *marks, *notes]


def _dot(place: int, losses: Sequence[LossRow], low: float, high: float, top: int) -> str:
    value = losses[place].disturbed
    x, y = _point(place, value if value is not None else low, len(losses), low, high, top)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="none" stroke="#d55e00" stroke-width="1.5"/>'


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


def legend(used: set[str], y: int) -> list[str]:
    boxes, x = [], float(LEFT)
    for word in (word for word in COLOURS if word in used):
        text = word.replace("_", " ")
        if x + 34 + 6.3 * len(text) > WIDTH:
            x, y = float(LEFT), y + 20
        boxes.append(f'<rect x="{x:.1f}" y="{y - 10}" width="12" height="12" fill="{COLOURS[word]}"/>')
        boxes.append(words(x + 16, y, text, 'font-size="11"'))
        x += 34 + 6.3 * len(text)
    return boxes
