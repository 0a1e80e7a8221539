"""Charts as SVG, in colours for light and dark pages: lines over logarithmic axes, and bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 168, 44, 46
LIGHT = ("#4269d0", "#d9542c", "#3c8f5a", "#8a5bc7", "#b8860b", "#c2487f")
DARK = ("#8fabff", "#ff9b76", "#7fd39b", "#c7a6ff", "#e8c15c", "#ff9cc5")
STYLE = "".join(
    [
        "text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:600;font-size:14px}",
        ".page{fill:#fff}.grid{stroke:#ddd;stroke-width:1}.line{fill:none;stroke-width:2}.rival{stroke-dasharray:5 4}",
        *(f".s{number}{{stroke:{colour};fill:{colour}}}" for number, colour in enumerate(LIGHT)),
        ".line{fill:none}.bar{stroke:none}.target{stroke:#333;stroke-width:2}",
        "@media (prefers-color-scheme:dark){text{fill:#ddd}.page{fill:#16181d}.grid{stroke:#3a3f4a}",
        ".target{stroke:#eee}",
        *(f".s{number}{{stroke:{colour};fill:{colour}}}" for number, colour in enumerate(DARK)),
        ".line{fill:none}.bar{stroke:none}}",
    ]
)


@dataclass(frozen=True)
class Line:
    """One series: its name and its points, in ascending order of x."""

    name: str
    points: Sequence[tuple[float, float]]
    is_rival: bool = False


@dataclass(frozen=True)
class Bar:
    """One horizontal bar, with a mark at its target."""

    name: str
    value: float
    target: float | None = None


def document(title: str, width: int, height: int, body: Iterable[str], style: str = STYLE) -> str:
    """Return an SVG document with the page behind its content."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}"><style>{style}</style><rect class="page" width="{width}" height="{height}"/>'
        f'<text class="title" x="16" y="24">{escape(title)}</text>{"".join(body)}</svg>\n'
    )


class Scale:
    """Map values to pixels: logarithmic if all are positive and differ by more than a factor of 20, else linear."""

    def __init__(self, values: Sequence[float], low_pixel: float, high_pixel: float) -> None:
        positive = min(values) > 0
        self.is_logarithmic = positive and max(values) / min(values) > 20
        if self.is_logarithmic:
            self.low, self.high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
        else:
            self.low, self.high = 0.0, _round_up(max(values))
        self._pixels = (low_pixel, high_pixel)

    def pixel(self, value: float) -> float:
        """Return the position of a value."""
        if self.is_logarithmic:
            share = math.log10(value / self.low) / math.log10(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self._pixels[0] + share * (self._pixels[1] - self._pixels[0]), 1)

    def ticks(self) -> list[float]:
        """Return the values with a grid line."""
        if not self.is_logarithmic:
            return [self.low + (self.high - self.low) * step / 4 for step in range(5)]
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    unit = 10 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 2, 4, 5, 8, 10) if unit * step >= value)


def line_chart(title: str, x_label: str, y_label: str, lines: Sequence[Line]) -> str:
    """Return a chart of lines; their names stand at their ends."""
    points = [point for line in lines for point in line.points]
    across = Scale([x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = Scale([y for _, y in points], HEIGHT - BOTTOM, TOP)
    body = [*_grid(across, up), *_axis_names(x_label, y_label)]
    ends = _spread_labels([up.pixel(line.points[-1][1]) for line in lines])
    for number, (line, end) in enumerate(zip(lines, ends, strict=True)):
        colour = f"s{number % len(LIGHT)}"
        path = " ".join(f"{across.pixel(x)},{up.pixel(y)}" for x, y in line.points)
        body.append(f'<polyline class="line {colour}{" rival" * line.is_rival}" points="{path}"/>')
        body += [
            f'<circle class="{colour}" cx="{across.pixel(x)}" cy="{up.pixel(y)}" r="3">'
            f"<title>{escape(line.name)}: {x:g} → {y:g}</title></circle>"
            for x, y in line.points
        ]
        last = line.points[-1]
        body.append(f'<text x="{across.pixel(last[0]) + 8}" y="{end + 4}">{escape(line.name)} {last[1]:.3g}</text>')
    return document(title, WIDTH, HEIGHT, body)


def _spread_labels(wanted: Sequence[float], distance: float = 15.0) -> list[float]:
    """Move labels down until none covers another; return their positions in the given order."""
    placed: dict[int, float] = {}
    previous = -math.inf
    for index in sorted(range(len(wanted)), key=lambda index: wanted[index]):
        previous = max(wanted[index], previous + distance)
        placed[index] = previous
    return [placed[index] for index in range(len(wanted))]


def _grid(across: Scale, up: Scale) -> Iterable[str]:
    for value in up.ticks():
        y = up.pixel(value)
        yield f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{value:g}</text>'
    for value in across.ticks():
        x = across.pixel(value)
        yield f'<path class="grid" d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:,.10g}</text>'


def _axis_names(x_label: str, y_label: str) -> Iterable[str]:
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
    yield f'<text x="16" y="38">{escape(y_label)}</text>'


def bar_chart(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """Return horizontal bars from zero, each with its value; a vertical mark shows the target."""
    height = TOP + 26 * len(bars) + 16
    name_width = 150
    values = [value for bar in bars for value in (bar.value, bar.target or 0.0)]
    across = Scale([0.0, max(values)], name_width, WIDTH - 70)
    body = []
    for number, bar in enumerate(bars):
        y = TOP + 26 * number
        colour = 1 if bar.target is not None and bar.value > bar.target else 0
        body.append(f'<text x="{name_width - 8}" y="{y + 14}" text-anchor="end">{escape(bar.name)}</text>')
        width = round(across.pixel(bar.value) - name_width, 1)
        body.append(f'<rect class="bar s{colour}" x="{name_width}" y="{y}" width="{width}" height="18" rx="2"/>')
        body.append(f'<text x="{across.pixel(bar.value) + 6}" y="{y + 14}">{bar.value:.3g} {escape(unit)}</text>')
        if bar.target is not None:
            x = across.pixel(bar.target)
            body.append(f'<path class="target" d="M{x} {y - 3}V{y + 21}"><title>target {bar.target:g}</title></path>')
    return document(title, WIDTH, height, body)
