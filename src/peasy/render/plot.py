"""Points, arrows and curves on two axes."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from peasy.render import glyph, palette
from peasy.render.dots import Dot, key_of_kinds, label_dots
from peasy.render.draft import Piece, Size, fitted, measure, text_at
from peasy.render.number import write
from peasy.views.document import Curves, Plane

DASHES = ("", "7 4", "2 4", "9 3 2 3", "12 5", "4 2")
"""Curves differ in dashes too, not in colour alone."""

MOST_POINTS = 1000
"""A curve with more points than a screen has dots is thinned out."""


@dataclass(frozen=True)
class Axes:
    """From numbers to places on the paper."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width: float
    height: float
    left: float = 56
    top: float = 34

    def x(self, value: float) -> float:
        """Where a number lies from left to right."""
        return self.left + (value - self.x_low) / (self.x_high - self.x_low) * self.width

    def y(self, value: float) -> float:
        """Where a number lies from top to bottom."""
        return self.top + (self.y_high - value) / (self.y_high - self.y_low) * self.height

    def draw(self, title: str, x_axis: str, y_axis: str) -> list[str]:
        """Title, grid, ticks and the names of the axes."""
        drawn = [text_at(0, 13, fitted(glyph.prose(title), 13, self.width + self.left), "name")]
        bottom, right = self.top + self.height, self.left + self.width
        for tick in ticks(self.x_low, self.x_high):
            x = self.x(tick)
            drawn.append(f'<path d="M{x:.1f} {self.top:.1f}V{bottom:.1f}" class="rule"/>')
            drawn.append(text_at(x, bottom + 16, short(tick), "small number", "middle"))
        for tick in ticks(self.y_low, self.y_high):
            y = self.y(tick)
            drawn.append(f'<path d="M{self.left:.1f} {y:.1f}H{right:.1f}" class="rule"/>')
            drawn.append(text_at(self.left - 7, y + 4, short(tick), "small number", "end"))
        drawn.append(text_at(self.left + self.width / 2, bottom + 34, glyph.prose(x_axis), "axis", "middle"))
        middle = self.top + self.height / 2
        drawn.append(text_at(11, middle, glyph.prose(y_axis), "axis", "middle", turn=-90))
        return drawn


def plane_piece(plane: Plane) -> Piece:
    """Named points or arrows on two axes of one measure."""
    points = [(name, x, y) for name, x, y in plane.points if math.isfinite(x) and math.isfinite(y)]
    segments = [line for line in plane.lines if all(map(math.isfinite, line))]
    xs = [x for _, x, _ in points] + [v for line in segments for v in line[::2]]
    ys = [y for _, _, y in points] + [v for line in segments for v in line[1::2]]
    axes = _square(_span(xs, plane.arrows), _span(ys, plane.arrows), 300 if plane.arrows else 440)
    drawn = axes.draw(plane.title, plane.x_axis, plane.y_axis)
    for x1, y1, x2, y2 in segments:
        drawn.append(
            f'<path d="M{axes.x(x1):.1f} {axes.y(y1):.1f}L{axes.x(x2):.1f} {axes.y(y2):.1f}" class="line grid-ink" '
            'stroke-dasharray="4 4"/>'
        )
    if plane.arrows:
        for place, (name, x, y) in enumerate(points):
            drawn.extend(_arrow(axes, place, glyph.label(name), x, y))
        return _with_note(axes, drawn, len(plane.points) - len(points), 90)
    return _dotted(plane, axes, drawn)


def _dotted(plane: Plane, axes: Axes, drawn: list[str]) -> Piece:
    groups = list(dict.fromkeys(plane.groups))
    dots = [
        Dot(name, glyph.label(name), axes.x(x), axes.y(y), groups.index(plane.groups[place]) if groups else place)
        for place, (name, x, y) in enumerate(plane.points)
        if math.isfinite(x) and math.isfinite(y)
    ]
    drawn += [each for dot in dots for each in dot.draw()]
    edge = axes.left + axes.width
    drawn += label_dots(dots, axes.left, edge + (12 if groups else 120))  # beside the numbers, and before the key
    drawn += key_of_kinds(groups, edge + 24, axes.top + 8)
    return _with_note(axes, drawn, len(plane.points) - len(dots), 160 if groups else 120)


def curves_piece(curves: Curves) -> Piece:
    """Lines over a common axis, each with its name at its end."""
    lines = [
        (glyph.label(name), _thinned([(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]))
        for name, points in curves.lines
    ]
    given = sum(len(points) for _, points in curves.lines)
    finite = sum(math.isfinite(x) and math.isfinite(y) for _, points in curves.lines for x, y in points)
    x_span = _span([x for _, points in lines for x, _ in points], False)
    y_span = _span([y for _, points in lines for _, y in points], False)
    axes = Axes(*x_span, *y_span, width=460, height=240)
    drawn = axes.draw(curves.title, curves.x_axis, curves.y_axis)
    ends = _spread([(axes.y(points[-1][1]) if points else axes.top) for _, points in lines])
    for place, ((name, points), end) in enumerate(zip(lines, ends, strict=True)):
        drawn.extend(_curve(axes, place, fitted(name, 13, 150), points, end))
    room = max((measure(fitted(name, 13, 150), 13) for name, _ in lines), default=0) + 24
    return _with_note(axes, drawn, given - finite, room)


def ticks(low: float, high: float, about: int = 5) -> Iterator[float]:
    """Round numbers between two ends.

    >>> list(ticks(0, 4.2))
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * 0.8)
    first = math.ceil(low / step - 1e-9)
    for count in range(first, math.floor(high / step + 1e-9) + 1):
        yield count * step


def short(value: float) -> str:
    """A tick's number, as short as it can be.

    >>> short(0.30000000000000004), short(-2.0), short(1e7)
    ('0.3', '−2', '1e+07')
    """
    return write(0.0, 0) if abs(value) < 1e-12 else f"{value:.6g}".replace("-", "−", 1 if value < 0 else 0)


def _span(values: list[float], from_zero: bool) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        reach = abs(high) / 2 or 1.0
        low, high = low - reach, high + reach
    air = (high - low) * 0.08
    return low - (air if low < 0 or not from_zero else 0), high + air


def _square(x: tuple[float, float], y: tuple[float, float], side: float) -> Axes:
    """Both axes with one measure, so that angles are seen as they are."""
    wide, high = x[1] - x[0], y[1] - y[0]
    if max(wide, high) > 20 * min(wide, high):  # a needle would show nothing: let each axis have its own measure
        return Axes(*x, *y, width=320, height=280)
    unit = side / max(wide, high)
    return Axes(*x, *y, width=max(wide * unit, 120), height=max(high * unit, 120))


def _arrow(axes: Axes, place: int, name: str, x: float, y: float) -> Iterator[str]:
    colour = palette.OKABE_ITO[place % 6]
    at_x, at_y, from_x, from_y = axes.x(x), axes.y(y), axes.x(0), axes.y(0)
    yield f'<path d="M{from_x:.1f} {from_y:.1f}L{at_x:.1f} {at_y:.1f}" class="line" stroke="{colour}"/>'
    yield _head(from_x, from_y, at_x, at_y, colour)
    yield text_at(at_x + 8, at_y - 7, fitted(name, 13, 110), "label")


def _head(from_x: float, from_y: float, x: float, y: float, colour: str) -> str:
    angle = math.degrees(math.atan2(y - from_y, x - from_x))
    return f'<path d="M0 0l-11 -5v10z" fill="{colour}" transform="translate({x:.1f} {y:.1f}) rotate({angle:.1f})"/>'


def _curve(axes: Axes, place: int, name: str, points: list[tuple[float, float]], end: float) -> Iterator[str]:
    colour, dash = palette.OKABE_ITO[place % 6], DASHES[place % len(DASHES)]
    if not points:
        return
    path = "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in points)
    yield f'<path d="M{path}" class="line" stroke="{colour}" stroke-dasharray="{dash or "none"}"/>'
    if len(points) == 1:
        yield f'<circle cx="{axes.x(points[0][0]):.1f}" cy="{axes.y(points[0][1]):.1f}" r="4" fill="{colour}"/>'
    yield text_at(axes.x(points[-1][0]) + 8, end + 4, name, "label")


def _spread(places: Iterable[float], room: float = 16) -> list[float]:
    """The places of labels, moved apart where they would lie on each other."""
    given = list(places)
    moved, last = list(given), -math.inf
    for index in sorted(range(len(given)), key=given.__getitem__):
        last = moved[index] = max(given[index], last + room)
    return moved


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    every = math.ceil(len(points) / MOST_POINTS)
    return points if every <= 1 else [*points[:-1:every], points[-1]]


def _with_note(axes: Axes, drawn: list[str], missing: int, room: float) -> Piece:
    height = axes.top + axes.height + 44
    if missing:
        drawn.append(text_at(0, height + 10, f"{missing} without a finite number, not drawn.", "small"))
        height += 20
    return Piece(Size(axes.left + axes.width + room, height), "".join(drawn))
