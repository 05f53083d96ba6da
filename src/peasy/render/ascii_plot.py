"""ASCII plots of curves and points for the terminal."""

import math
from collections.abc import Iterator
from itertools import pairwise
from string import ascii_lowercase
from unicodedata import combining, east_asian_width

from peasy.render import sanitize
from peasy.render.number import format_number
from peasy.render.plot import format_tick
from peasy.views.document import Curves, Plane

MAX_TABLE_POINTS = 16
"""Maximum number of points shown as a table; more are plotted."""

HEIGHT = 14
_MAX_WIDTH = 100
_MAX_NAME_LENGTH = 14
_DOT = "•"


def ascii_plot(figure: Plane | Curves, width: int, decimals: int) -> list[str] | None:
    """Return the plot as lines, or None if a table is better: few points or a narrow screen."""
    if isinstance(figure, Plane):
        points = [point for point in figure.points if math.isfinite(point[1]) and math.isfinite(point[2])]
        is_large = len(points) > MAX_TABLE_POINTS
        return _plot_points(figure, points, min(width, _MAX_WIDTH)) if is_large and width >= 40 else None
    lines = [(name, sorted(each for each in points if all(map(math.isfinite, each)))) for name, points in figure.lines]
    is_large = sum(len(points) for _, points in lines) > MAX_TABLE_POINTS and len(lines) <= len(ascii_lowercase)
    return list(_plot_curves(figure, lines, min(width, _MAX_WIDTH), decimals)) if is_large and width >= 40 else None


class _Canvas:
    """Character canvas with a mapping from data to rows and columns."""

    def __init__(self, xs: list[float], ys: list[float], columns: int) -> None:
        self.low, self.high = (min(xs), min(ys)), (max(xs), max(ys))
        self.columns = columns
        self.rows = [[" "] * columns for _ in range(HEIGHT)]

    def to_cell(self, x: float, y: float) -> tuple[int, int]:
        across, up = ((v - low) / ((high - low) or 1) for v, low, high in zip((x, y), self.low, self.high, strict=True))
        return round((1 - up) * (HEIGHT - 1)), round(across * (self.columns - 1))

    def with_axes(self, x_axis: str, y_axis: str) -> Iterator[str]:
        top, bottom = _format_end(self.high[1]), _format_end(self.low[1])
        label_width = max(len(top), len(bottom))
        if y_axis:
            yield " " * (label_width + 1) + sanitize.one_line(y_axis)
        for index, row in enumerate(self.rows):
            label = {0: top, HEIGHT - 1: bottom}.get(index, "")
            yield f"{label:>{label_width}} {'┤' if label else '│'}{''.join(row)}".rstrip()
        yield " " * (label_width + 1) + "└" + "─" * self.columns
        left, right = _format_end(self.low[0]), _format_end(self.high[0])
        between = self.columns - len(left) - len(right)
        yield " " * (label_width + 2) + left + sanitize.one_line(x_axis)[:between].center(between) + right


def _plot_curves(
    curves: Curves, lines: list[tuple[str, list[tuple[float, float]]]], width: int, decimals: int
) -> Iterator[str]:
    """Draw each curve as its letter, from point to point; later curves cover earlier ones."""
    all_points = [point for _, points in lines for point in points]
    paper = _Canvas([x for x, _ in all_points], [y for _, y in all_points], width - 12)
    for letter, (_, points) in zip(ascii_lowercase, lines, strict=False):
        for row, column in _line_cells([paper.to_cell(x, y) for x, y in points]):
            paper.rows[row][column] = letter
    yield sanitize.one_line(curves.title)
    yield from paper.with_axes(curves.x_axis, curves.y_axis)
    for letter, (name, points) in zip(ascii_lowercase, lines, strict=False):
        ends = " to ".join(format_number(y, decimals) for _, y in (points[0], points[-1])) if points else ""
        yield f"{letter}  {sanitize.token_label(name)}: {f'from {ends}' if points else 'no numbers'}"


def _format_end(value: float) -> str:
    return format_tick(float(f"{value:.3g}"))


def _line_cells(cells: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    yield from cells[:1]
    for (row, column), (next_row, next_column) in pairwise(cells):
        steps = max(abs(next_column - column), 1)
        for step in range(1, steps + 1):
            yield round(row + (next_row - row) * step / steps), column + (next_column - column) * step // steps


def _plot_points(plane: Plane, points: list[tuple[str, float, float]], width: int) -> list[str]:
    """Draw each name at its point, or a dot if it does not fit."""
    paper = _Canvas([x for _, x, _ in points], [y for _, _, y in points], width - 12)
    unlabelled = 0
    for name, x, y in points:
        row, column = paper.to_cell(x, y)
        label = sanitize.token_label(name)
        label = label if len(label) <= _MAX_NAME_LENGTH else label[: _MAX_NAME_LENGTH - 1] + "…"
        starts = (column, column - len(label) + 1)
        # Wide and combining characters do not take exactly one terminal column.
        narrow = not any(combining(letter) or east_asian_width(letter) in ("W", "F") for letter in label)
        start = next((at for at in starts if narrow and _is_free(paper.rows[row], at, len(label))), None)
        if start is not None:
            paper.rows[row][start : start + len(label)] = label
        else:
            unlabelled += 1
            paper.rows[row][column] = _DOT if paper.rows[row][column] == " " else paper.rows[row][column]
    notes = [f"{unlabelled} of {len(points)} names do not fit; --out FILE.html shows all."] if unlabelled else []
    return [sanitize.one_line(plane.title), *paper.with_axes(plane.x_axis, plane.y_axis), *notes]


def _is_free(row: list[str], start: int, count: int) -> bool:
    """True if `count` characters fit at `start`, with a space on either side."""
    return start >= 0 and start + count <= len(row) and not "".join(row[max(start - 1, 0) : start + count + 1]).strip()
