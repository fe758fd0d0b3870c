"""The cost of a domain size as one SVG: the closed form with its two parts, what the twin found, and the best size.

The size is on a logarithmic scale: the cost depends on ratios, and the U is even there. Sizes that do not fit into the
cycle, or into the buffer, are shaded. Colours as in `demo/picture.py`; every line has its word in the legend.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from trainmaster.cli.output import duration_text
from trainmaster.core.base.time import HOUR
from trainmaster.core.maintenance.domain_size import BestSize, SizeCost, SizeModel, cost, sizes_around
from trainmaster.core.words import count_text
from trainmaster.twin.domain_cost import LivedSize

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 92, 76, 118, 68
REACH: Final = 6.0
"""The picture shows sizes from a sixth of the best to six times it."""
TOTAL, INTERRUPTED, HELD, SIMULATED = "#0072b2", "#d55e00", "#009e73", "#263238"
GREY, FAINT = "#607d8b", "#e4e8ea"


class _Scale:
    """Where a size (logarithmic) and host-hours (linear from 0) lie in the picture."""

    def __init__(self, costs: Sequence[SizeCost], highest: float) -> None:
        self.low, self.high = float(costs[0].size), float(costs[-1].size)
        if self.low == self.high:
            self.low, self.high = self.low / 2, self.high * 2
        self.step = _nice(highest / 6)
        self.top = math.ceil(highest / self.step) * self.step

    def x(self, size: float) -> float:
        share = math.log(size / self.low) / math.log(self.high / self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, host_h: float) -> float:
        return HEIGHT - BOTTOM - host_h / self.top * (HEIGHT - TOP - BOTTOM)


def svg(model: SizeModel, found: BestSize, simulated: Sequence[LivedSize]) -> str:
    """The whole picture; without simulated sizes it has the closed form alone."""
    costs = [cost(model, size) for size in sizes_around(model, found.cost.size, REACH, 161)]
    highest = max([each.total_host_h for each in costs] + [each.high_host_h for each in simulated])
    scale = _Scale(costs, highest)
    body = [
        *_heading(model),
        *_unfit(model, found, scale),
        *_axes(model, scale),
        _curve(costs, scale, lambda each: each.held_out_host_h, f'stroke="{HELD}" stroke-width="2"'),
        _curve(costs, scale, lambda each: each.interruptions_host_h, f'stroke="{INTERRUPTED}" stroke-width="2"'),
        _curve(costs, scale, lambda each: each.total_host_h, f'stroke="{TOTAL}" stroke-width="3"'),
        *_best(model, found, scale),
        *(mark for each in simulated for mark in _range(each, scale)),
        *_legend(simulated),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#263238"'
    return f'{head} {style}><rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>\n'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, more: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {more}/>'


def _heading(model: SizeModel) -> list[str]:
    gangs = sorted(model.gangs, key=lambda gang: -gang.hosts)
    jobs = ", ".join(f"{gang.count:,} × {gang.hosts:,}" for gang in gangs[:6]) + (", ..." if len(gangs) > 6 else "")
    counted = "the buffer works between stops" if model.rest else "the buffer is held back all the time"
    second = f"{count_text(model.hosts, 'host')} · jobs (how many × hosts): {jobs}"
    third = (
        f"cycle {duration_text(model.cycle)} · {duration_text(model.lost)} lost at each interruption"
        f" · stops of {duration_text(model.stop)} · {counted}"
    )
    return [
        _text(LEFT, 28, "What the size of a maintenance domain costs", 'font-size="18" font-weight="700"'),
        _text(LEFT, 49, second, f'fill="{GREY}"'),
        _text(LEFT, 66, third, f'fill="{GREY}"'),
    ]


def _axes(model: SizeModel, scale: _Scale) -> list[str]:
    bottom, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    marks = []
    for size in _ticks(scale.low, scale.high):
        x = scale.x(size)
        marks.append(_line(x, TOP, x, bottom, f'stroke="{FAINT}"'))
        marks.append(_text(x, bottom + 18, f"{size:,}", f'text-anchor="middle" fill="{GREY}"'))
    for number in range(round(scale.top / scale.step) + 1):
        y = scale.y(number * scale.step)
        marks.append(_line(LEFT, y, end, y, f'stroke="{FAINT if number else GREY}"'))
        marks.append(_text(LEFT - 8, y + 4, f"{number * scale.step:,.10g}", f'text-anchor="end" fill="{GREY}"'))
    fleet_host_h = model.hosts * model.cycle / HOUR
    step = _nice(scale.top / fleet_host_h / 6)
    for number in range(int(scale.top / fleet_host_h / step * 1.0001) + 1):
        y = scale.y(number * step * fleet_host_h)
        marks.append(_line(end, y, end + 5, y, f'stroke="{GREY}"'))
        marks.append(_text(end + 9, y + 4, f"{100 * number * step:.4g}%", f'fill="{GREY}"'))
    middle = (TOP + bottom) / 2
    turned = 'text-anchor="middle" transform="rotate(-90 {x} {y:.0f})"'
    marks += [
        _text((LEFT + end) / 2, HEIGHT - 22, "hosts of a domain (logarithmic)", 'text-anchor="middle"'),
        _text(22, middle, "host-hours a cycle", turned.format(x=22, y=middle)),
        _text(WIDTH - 14, middle, "share of the fleet", turned.format(x=WIDTH - 14, y=middle)),
    ]
    return marks


def _unfit(model: SizeModel, found: BestSize, scale: _Scale) -> list[str]:
    """Shades sizes that the cycle or the buffer does not allow; the words stand below the axis, off the curves."""
    marks = []
    if found.size_least > max(scale.low, 1):
        marks.append(_shade(LEFT, scale.x(min(found.size_least, scale.high))))
        words = "◂ grey: stops do not fit into the cycle"
        marks.append(_text(LEFT, HEIGHT - 22, words, f'fill="{GREY}"'))
    if 0 < model.size_limit < scale.high:
        marks.append(_shade(scale.x(max(model.size_limit, scale.low)), WIDTH - RIGHT))
        words = "grey: above what the buffer lets out ▸"
        marks.append(_text(WIDTH - RIGHT, HEIGHT - 22, words, f'text-anchor="end" fill="{GREY}"'))
    return marks


def _shade(start: float, end: float) -> str:
    place = f'x="{start:.1f}" y="{TOP}" width="{end - start:.1f}" height="{HEIGHT - TOP - BOTTOM}"'
    return f'<rect {place} fill="#eeeeee"/>'


def _curve(costs: Sequence[SizeCost], scale: _Scale, value: Callable[[SizeCost], float], style: str) -> str:
    points = " ".join(f"{scale.x(each.size):.1f},{scale.y(value(each)):.1f}" for each in costs)
    return f'<polyline points="{points}" fill="none" stroke-linejoin="round" {style}/>'


def _best(model: SizeModel, found: BestSize, scale: _Scale) -> list[str]:
    """A line at the best size, and what it means above the curve."""
    chosen = found.cost
    x, y = scale.x(chosen.size), scale.y(chosen.total_host_h)
    days = model.cycle / (24 * HOUR)
    lines = [
        f"best: {count_text(chosen.size, 'host')} ({chosen.size / model.hosts:.1%} of the fleet)",
        f"{chosen.total_host_h:,.0f} host-hours a cycle ({chosen.share:.2%})",
        f"{count_text(chosen.stops, 'stop')}, {chosen.stops / days:.1f} a day; {chosen.hits:,.1f} interruptions",
    ]
    beside = x > WIDTH - 280 or x < LEFT + 140
    anchor = "middle" if not beside else "end" if x > WIDTH / 2 else "start"
    at = {"middle": x, "end": x - 10, "start": x + 10}[anchor]
    top = TOP + 30 if y > TOP + 100 else HEIGHT - BOTTOM - 120
    above, below = (TOP, top - 18) if top > TOP + 30 else (top + 46, HEIGHT - BOTTOM)
    if beside:
        above, below = TOP, HEIGHT - BOTTOM
    marks = [
        _line(x, above, x, below, f'stroke="{TOTAL}" stroke-dasharray="5 4"'),
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="none" stroke="{TOTAL}" stroke-width="2"/>',
    ]
    for number, line in enumerate(lines):
        weight = "700" if number == 0 else "400"
        more = f'text-anchor="{anchor}" fill="{TOTAL}" font-weight="{weight}" font-size="13"'
        marks.append(_text(at, top + 18 * number, line, more))
    return marks


def _range(each: LivedSize, scale: _Scale) -> Iterator[str]:
    """The mean as a dot, the range of the seeds as a bar."""
    x, low, high = scale.x(each.size), scale.y(each.low_host_h), scale.y(each.high_host_h)
    style = f'stroke="{SIMULATED}" stroke-width="1.3"'
    yield _line(x, low, x, high, style)
    yield from (_line(x - 5, y, x + 5, y, style) for y in (low, high))
    title = f"<title>{each.size} hosts, simulated: {each.mean_host_h:,.0f} host-hours</title>"
    y = scale.y(each.mean_host_h)
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="white" {style}>{title}</circle>'


def _legend(simulated: Sequence[LivedSize]) -> list[str]:
    words = [(TOTAL, "total (closed form)"), (INTERRUPTED, "interruptions"), (HELD, "capacity held out")]
    marks, x, y = [], float(LEFT), 96.0
    for colour, word in words:
        marks.append(_line(x, y - 4, x + 22, y - 4, f'stroke="{colour}" stroke-width="3"'))
        marks.append(_text(x + 28, y, word))
        x += 52 + 6.6 * len(word)
    if simulated:
        style = f'stroke="{SIMULATED}" stroke-width="1.3"'
        marks.append(_line(x + 10, y - 13, x + 10, y + 5, style))
        marks.append(f'<circle cx="{x + 10:.1f}" cy="{y - 4:.1f}" r="4" fill="white" {style}/>')
        word = f"simulated: mean and range of {count_text(simulated[0].seeds, 'seed')}, one cycle each"
        marks.append(_text(x + 22, y, word))
    return marks


def _ticks(low: float, high: float) -> list[int]:
    """1, 2, 5, 10, ... between the ends; more where these are few."""
    powers = range(math.floor(math.log10(max(low, 1))), math.ceil(math.log10(high)) + 1)
    few = [digit * 10**power for power in powers for digit in (1, 2, 5) if low <= digit * 10**power <= high]
    many = [digit * 10**power for power in powers for digit in (1, 2, 3, 4, 5, 7) if low <= digit * 10**power <= high]
    return many if len(few) < 4 else few


def _nice(step: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= step * 0.999)
