"""SVG plots on two axes: points with a colour and shape per group, arrows and curves."""

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from peasy.parameters import Record
from peasy.render import palette, sanitize
from peasy.render.number import format_number
from peasy.render.svg_layout import SvgFragment, text_at, text_width, truncate_to_width
from peasy.views.document import Curves, Plane

_SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0", "M-4.5-4.5h9v9h-9z", "M0-6l6 10.5h-12z", "M0-6.5l6.5 6.5l-6.5 6.5l-6.5-6.5z",
    "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z", "M0 6l6-10.5h-12z",
)  # fmt: skip
"""Circle, square, triangle, diamond, cross, inverted triangle: groups differ in shape as well as colour."""

_DASHES = ("", "7 4", "2 4", "9 3 2 3", "12 5", "4 2")
"""Dash patterns: curves differ in more than colour."""

_MAX_POINTS = 1000
"""Maximum number of points of a curve; longer ones are thinned out."""

_MAX_LABELS, _NUM_TICKS, _MIN_LABEL_GAP = 300, 5, 16


class PlotPoint(Record):
    """Point of a scatter plot in SVG coordinates; `group` selects its colour and shape."""

    label: str
    x: float
    y: float
    group: int


class _Axes(Record):
    """Axes: map data to SVG coordinates."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width: float
    height: float
    left: float = 56
    top: float = 34

    def x(self, value: float) -> float:
        return self.left + (value - self.x_low) / (self.x_high - self.x_low) * self.width

    def y(self, value: float) -> float:
        return self.top + (self.y_high - value) / (self.y_high - self.y_low) * self.height

    def draw(self, title: str, x_axis: str, y_axis: str) -> list[str]:
        """Draw title, grid, ticks and axis names."""
        elements = [text_at(0, 13, truncate_to_width(sanitize.one_line(title), 13, self.width + self.left), "name")]
        bottom, right = self.top + self.height, self.left + self.width
        for tick in _tick_values(self.x_low, self.x_high):
            x = self.x(tick)
            elements.append(f'<path d="M{x:.1f} {self.top:.1f}V{bottom:.1f}" class="rule"/>')
            elements.append(text_at(x, bottom + 16, format_tick(tick), "small number", "middle"))
        for tick in _tick_values(self.y_low, self.y_high):
            y = self.y(tick)
            elements.append(f'<path d="M{self.left:.1f} {y:.1f}H{right:.1f}" class="rule"/>')
            elements.append(text_at(self.left - 7, y + 4, format_tick(tick), "small number", "end"))
        elements.append(text_at(self.left + self.width / 2, bottom + 34, sanitize.one_line(x_axis), "axis", "middle"))
        middle = self.top + self.height / 2
        elements.append(text_at(11, middle, sanitize.one_line(y_axis), "axis", "middle", rotate=-90))
        return elements


def plane_fragment(plane: Plane) -> SvgFragment:
    """Draw named points or arrows on two axes of equal scale."""
    points = [(name, x, y) for name, x, y in plane.points if math.isfinite(x) and math.isfinite(y)]
    segments = [line for line in plane.lines if all(map(math.isfinite, line))]
    xs = [x for _, x, _ in points] + [v for line in segments for v in line[::2]]
    ys = [y for _, _, y in points] + [v for line in segments for v in line[1::2]]
    axes = _equal_axes(_axis_range(xs, plane.arrows), _axis_range(ys, plane.arrows), 300 if plane.arrows else 440)
    elements = axes.draw(plane.title, plane.x_axis, plane.y_axis)
    for x1, y1, x2, y2 in segments:
        line = f"M{axes.x(x1):.1f} {axes.y(y1):.1f}L{axes.x(x2):.1f} {axes.y(y2):.1f}"
        elements.append(f'<path d="{line}" class="line grid-ink" stroke-dasharray="4 4"/>')
    if plane.arrows:
        for index, (name, x, y) in enumerate(points):
            colour = palette.OKABE_ITO[index % 6]
            at_x, at_y, from_x, from_y = axes.x(x), axes.y(y), axes.x(0), axes.y(0)
            shaft = f"M{from_x:.1f} {from_y:.1f}L{at_x:.1f} {at_y:.1f}"
            elements.append(f'<path d="{shaft}" class="line" stroke="{colour}"/>')
            angle = math.degrees(math.atan2(at_y - from_y, at_x - from_x))
            turned = f"translate({at_x:.1f} {at_y:.1f}) rotate({angle:.1f})"
            elements.append(f'<path d="M0 0l-11 -5v10z" fill="{colour}" transform="{turned}"/>')
            label = truncate_to_width(sanitize.token_label(name), 13, 110)
            elements.append(text_at(at_x + 8, at_y - 7, label, "label"))
        return _finish_plot(axes, elements, len(plane.points) - len(points), 90)
    return _scatter(plane, axes, elements)


def _scatter(plane: Plane, axes: _Axes, elements: list[str]) -> SvgFragment:
    groups = list(dict.fromkeys(plane.groups))
    dots = [
        PlotPoint(sanitize.token_label(name), axes.x(x), axes.y(y), groups.index(plane.groups[i]) if groups else i)
        for i, (name, x, y) in enumerate(plane.points)
        if math.isfinite(x) and math.isfinite(y)
    ]
    for dot in dots:
        shape = _shape(dot.group, dot.x, dot.y, ' class="point"')
        elements.append(f"{shape}><title>{escape(dot.label)}</title></path>")
    edge = axes.left + axes.width
    left = edge + 24
    elements += label_points(dots, axes.left, edge + (12 if groups else 120))  # between the tick labels and the legend
    for index, group in enumerate(groups):
        y = axes.top + 8 + 20 * index
        elements.append(f"{_shape(index, left, y)}/>")
        elements.append(text_at(left + 12, y + 4.5, truncate_to_width(sanitize.token_label(group), 12, 110), "label"))
    return _finish_plot(axes, elements, len(plane.points) - len(dots), 160 if groups else 120)


def _shape(group: int, x: float, y: float, kind: str = "") -> str:
    """Return the opening of the path element of a group's shape."""
    moved = f'transform="translate({x:.1f} {y:.1f})"'
    return f'<path d="{_SHAPES[group % 6]}" {moved}{kind} fill="{palette.OKABE_ITO[group % 6]}"'


def label_points(points: Sequence[PlotPoint], left: float, right: float) -> Iterator[str]:
    """Yield a label beside or near each point, where it is free between `left` and `right`; none if nowhere."""
    occupied = [(dot.x - 6, dot.y - 6, dot.x + 6, dot.y + 6) for dot in points]
    for dot in points[:_MAX_LABELS]:
        text = truncate_to_width(dot.label, 12, 110)
        width = text_width(text, 12)
        for x, y in ((x, y) for y in (4, -10, 18, -24, 32, -38, 46, -52, 60) for x in (-width / 2, 8, -8 - width)):
            box = (dot.x + x, dot.y + y - 10, dot.x + x + width, dot.y + y + 3)
            overlaps = any(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in occupied)
            if left < box[0] and box[2] < right and not overlaps:
                occupied.append(box)
                yield text_at(dot.x + x, dot.y + y, text, "label")
                break


def curves_fragment(curves: Curves) -> SvgFragment:
    """Draw curves over a common axis, each labelled at its end."""
    lines, num_missing = [], 0
    for name, all_points in curves.lines:
        points = [point for point in all_points if all(map(math.isfinite, point))]
        num_missing += len(all_points) - len(points)
        if (every := math.ceil(len(points) / _MAX_POINTS)) > 1:
            points = [*points[:-1:every], points[-1]]
        lines.append((sanitize.token_label(name), points))
    x_span = _axis_range([x for _, points in lines for x, _ in points], False)
    y_span = _axis_range([y for _, points in lines for _, y in points], False)
    axes = _Axes(*x_span, *y_span, width=460, height=240)
    elements = axes.draw(curves.title, curves.x_axis, curves.y_axis)
    # Label positions, moved apart where they would overlap.
    positions = [(axes.y(points[-1][1]) if points else axes.top) for _, points in lines]
    ends, last = list(positions), -math.inf
    for index in sorted(range(len(positions)), key=positions.__getitem__):
        last = ends[index] = max(positions[index], last + _MIN_LABEL_GAP)
    for index, ((name, points), end) in enumerate(zip(lines, ends, strict=True)):
        elements.extend(_curve(axes, index, truncate_to_width(name, 13, 150), points, end))
    label_width = max((text_width(truncate_to_width(name, 13, 150), 13) for name, _ in lines), default=0) + 24
    return _finish_plot(axes, elements, num_missing, label_width)


def _tick_values(low: float, high: float) -> Iterator[float]:
    """Yield round tick values between two ends.

    >>> list(_tick_values(0, 4.2))
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    rough = (high - low) / _NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * multiple for multiple in (1, 2, 5, 10) if power * multiple >= rough * 0.8)
    first = math.ceil(low / step - 1e-9)
    for count in range(first, math.floor(high / step + 1e-9) + 1):
        yield count * step


def format_tick(value: float) -> str:
    """Format a tick value as short as possible.

    >>> format_tick(0.30000000000000004), format_tick(-2.0), format_tick(1e7)
    ('0.3', '−2', '1e+07')
    """
    return format_number(0.0, 0) if abs(value) < 1e-12 else f"{value:.6g}".replace("-", "−", 1 if value < 0 else 0)


def _axis_range(values: list[float], from_zero: bool) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        half_width = abs(high) / 2 or 1.0
        low, high = low - half_width, high + half_width
    margin = (high - low) * 0.08
    return low - (margin if low < 0 or not from_zero else 0), high + margin


def _equal_axes(x: tuple[float, float], y: tuple[float, float], side: float) -> _Axes:
    """Return axes of equal scale, so that angles are true."""
    x_extent, y_extent = x[1] - x[0], y[1] - y[0]
    if max(x_extent, y_extent) > 20 * min(x_extent, y_extent):  # too elongated: scale each axis separately
        return _Axes(*x, *y, width=320, height=280)
    unit = side / max(x_extent, y_extent)
    return _Axes(*x, *y, width=max(x_extent * unit, 120), height=max(y_extent * unit, 120))


def _curve(axes: _Axes, index: int, name: str, points: list[tuple[float, float]], end: float) -> Iterator[str]:
    colour, dash = palette.OKABE_ITO[index % 6], _DASHES[index % 6]
    if not points:
        return
    path = "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in points)
    yield f'<path d="M{path}" class="line" stroke="{colour}" stroke-dasharray="{dash or "none"}"/>'
    if len(points) == 1:
        yield f'<circle cx="{axes.x(points[0][0]):.1f}" cy="{axes.y(points[0][1]):.1f}" r="4" fill="{colour}"/>'
    yield text_at(axes.x(points[-1][0]) + 8, end + 4, name, "label")


def _finish_plot(axes: _Axes, elements: list[str], num_missing: int, right_margin: float) -> SvgFragment:
    height = axes.top + axes.height + 44
    if num_missing:
        notice = f"{num_missing} points without finite coordinates are not drawn."
        elements.append(text_at(0, height + 10, notice, "small"))
        height += 20
    return SvgFragment(axes.left + axes.width + right_margin, height, "".join(elements))
