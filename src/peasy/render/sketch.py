"""ASCII plots of curves and points for the terminal."""

import math
from collections.abc import Iterator
from itertools import pairwise
from string import ascii_lowercase
from unicodedata import combining, east_asian_width

from peasy.render import glyph
from peasy.render.number import write
from peasy.render.plot import short
from peasy.views.document import Curves, Plane

MOST_LISTED = 16
"""Maximum number of points shown as a table; more are plotted."""

HEIGHT = 14
WIDEST = 100
LONGEST_NAME = 14
DOT = "•"


def sketch(picture: Plane | Curves, width: int, decimals: int) -> list[str] | None:
    """Return the plot as lines, or None if a table is better: few points or a narrow screen."""
    if isinstance(picture, Plane):
        points = [point for point in picture.points if math.isfinite(point[1]) and math.isfinite(point[2])]
        return _map(picture, points, min(width, WIDEST)) if len(points) > MOST_LISTED and width >= 40 else None
    lines = [(name, _finite(points)) for name, points in picture.lines]
    is_large = sum(len(points) for _, points in lines) > MOST_LISTED and len(lines) <= len(ascii_lowercase)
    return list(_chart(picture, lines, min(width, WIDEST), decimals)) if is_large and width >= 40 else None


def _finite(points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    return sorted((x, y) for x, y in points if math.isfinite(x) and math.isfinite(y))


class _Paper:
    """Character canvas with a mapping from data to rows and columns."""

    def __init__(self, xs: list[float], ys: list[float], columns: int) -> None:
        self.low, self.high = (min(xs), min(ys)), (max(xs), max(ys))
        self.columns = columns
        self.rows = [[" "] * columns for _ in range(HEIGHT)]

    def place(self, x: float, y: float) -> tuple[int, int]:
        """Return (row, column) of a point."""
        across, up = ((v - low) / ((high - low) or 1) for v, low, high in zip((x, y), self.low, self.high, strict=True))
        return round((1 - up) * (HEIGHT - 1)), round(across * (self.columns - 1))

    def framed(self, x_axis: str, y_axis: str) -> Iterator[str]:
        """Yield the rows with both axes, their end values and names."""
        top, bottom = _end(self.high[1]), _end(self.low[1])
        label_width = max(len(top), len(bottom))
        if y_axis:
            yield " " * (label_width + 1) + glyph.prose(y_axis)
        for index, row in enumerate(self.rows):
            label = {0: top, HEIGHT - 1: bottom}.get(index, "")
            yield f"{label:>{label_width}} {'┤' if label else '│'}{''.join(row)}".rstrip()
        yield " " * (label_width + 1) + "└" + "─" * self.columns
        left, right = _end(self.low[0]), _end(self.high[0])
        between = self.columns - len(left) - len(right)
        yield " " * (label_width + 2) + left + glyph.prose(x_axis)[:between].center(between) + right


def _chart(
    curves: Curves, lines: list[tuple[str, list[tuple[float, float]]]], width: int, decimals: int
) -> Iterator[str]:
    """Draw each curve as its letter, from point to point; later curves cover earlier ones."""
    all_points = [point for _, points in lines for point in points]
    paper = _Paper([x for x, _ in all_points], [y for _, y in all_points], width - 12)
    for letter, (_, points) in zip(ascii_lowercase, lines, strict=False):
        for row, column in _trace([paper.place(x, y) for x, y in points]):
            paper.rows[row][column] = letter
    yield glyph.prose(curves.title)
    yield from paper.framed(curves.x_axis, curves.y_axis)
    for letter, (name, points) in zip(ascii_lowercase, lines, strict=False):
        ends = f"from {write(points[0][1], decimals)} to {write(points[-1][1], decimals)}" if points else "no numbers"
        yield f"{letter}  {glyph.label(name)}: {ends}"


def _end(value: float) -> str:
    return short(float(f"{value:.3g}"))


def _trace(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    yield from places[:1]
    for (row, column), (next_row, next_column) in pairwise(places):
        steps = max(abs(next_column - column), 1)
        for step in range(1, steps + 1):
            yield round(row + (next_row - row) * step / steps), column + (next_column - column) * step // steps


def _map(plane: Plane, points: list[tuple[str, float, float]], width: int) -> list[str]:
    """Draw each name at its point, or a dot if there is no room."""
    paper = _Paper([x for _, x, _ in points], [y for _, _, y in points], width - 12)
    unlabelled = 0
    for name, x, y in points:
        row, column = paper.place(x, y)
        label = glyph.label(name)
        label = label if len(label) <= LONGEST_NAME else label[: LONGEST_NAME - 1] + "…"
        free_starts = (
            start for start in (column, column - len(label) + 1) if _is_free(paper.rows[row], start, len(label))
        )
        start = next(free_starts, None) if all(map(_is_narrow, label)) else None
        if start is not None:
            paper.rows[row][start : start + len(label)] = label
        else:
            unlabelled += 1
            paper.rows[row][column] = DOT if paper.rows[row][column] == " " else paper.rows[row][column]
    notes = [f"{unlabelled} of {len(points)} names do not fit; --out FILE.html shows all."] if unlabelled else []
    return [glyph.prose(plane.title), *paper.framed(plane.x_axis, plane.y_axis), *notes]


def _is_narrow(letter: str) -> bool:
    """True if the character takes exactly one terminal column."""
    return not combining(letter) and east_asian_width(letter) not in ("W", "F")


def _is_free(row: list[str], at: int, count: int) -> bool:
    """True if `count` characters fit at `start`, with a space on either side."""
    return at >= 0 and at + count <= len(row) and not "".join(row[max(at - 1, 0) : at + count + 1]).strip()
