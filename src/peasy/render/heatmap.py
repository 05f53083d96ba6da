"""SVG heat maps: a matrix with its numbers, a grid of maps (layers by heads) with the chosen one large, and tables."""

import base64
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from xml.sax.saxutils import escape

import numpy as np

from peasy.render import palette, sanitize, tex
from peasy.render import svg_layout as svg
from peasy.render.figure_tables import chosen_matrix, tile_notice
from peasy.render.grid import Grid, lay_out, table_text
from peasy.render.number import format_number
from peasy.render.svg_layout import BOLD_WIDTH_FACTOR, SvgFragment, rect_at, text_at, text_width, truncate_to_width
from peasy.views.document import Document, Maps, Matrix, Table

MAX_SIZE = 64
"""Maximum number of rows or columns of one heat map."""

_MAX_NUMBERED_COLUMNS = 16
"""Maximum number of columns with a number in every cell; wider maps have small cells with tooltips."""

_CELL_HEIGHT, _SMALL_CELL, _MAX_CELL_WIDTH, _MAX_LABEL_WIDTH = 30, 14, 84, 120
_MAX_TABLE_ROWS, _MAX_TABLE_CELL_WIDTH = 40, 440
_MAX_WIDTH, _GAP, _MIN_MAP_SIDE, _MAX_MAP_SIDE = 900, 6, 26, 120
_LARGE_MAP_SIDE, _MAX_IMAGE_SIDE, _THUMBNAIL_SIDE = 480, 512, 32
_LABEL_WIDTH, _MAX_TICKS = 90, 24

_NUM_COLOURS = 200
"""Number of palette colours of an image; one more, transparent, is used for NaN."""


def matrix_fragment(matrix: Matrix, decimals: int) -> SvgFragment:
    """Draw the matrix with its name, formula, labels and cells; if it is too wide for numbers, they are shaded."""
    is_wide = matrix.shape[1] > _MAX_NUMBERED_COLUMNS
    return _HeatMap(lay_out(replace(matrix, shaded=matrix.shaded or is_wide), decimals, MAX_SIZE)).fragment()


class _HeatMap:
    def __init__(self, grid: Grid) -> None:
        self.grid, matrix = grid, grid.matrix
        self.name, self.formula = sanitize.token_label(matrix.name), tex.to_plain_text(matrix.tex) if matrix.tex else ""
        self.name_is_formula = self.formula.casefold() == self.name.casefold()
        if self.name_is_formula:  # "x" above "X" would be redundant
            self.name, self.formula = self.formula, ""
        self.shows_numbers = len(grid.columns) <= _MAX_NUMBERED_COLUMNS
        self.size = 13 if self.shows_numbers else 10
        self.row_labels, self.column_labels = (
            [truncate_to_width(label, self.size, _MAX_LABEL_WIDTH) for label in labels]
            for labels in (map(grid.row_label, grid.rows), map(grid.column_label, grid.columns))
        )
        self.cell_width: float = _SMALL_CELL
        self.cell_height = _SMALL_CELL
        if self.shows_numbers:
            written = (grid.text(row, column) for row in grid.rows for column in grid.columns)
            labels = self.column_labels if len(grid.columns) <= 8 else ()
            widths = (min(text_width(label, 13) + 8, _MAX_CELL_WIDTH) for label in labels)
            self.cell_width = max([40.0, *widths, *(text_width(text, 13) + 16 for text in written)])
            self.cell_height = _CELL_HEIGHT
        label_widths = [text_width(label, self.size) for label in self.column_labels]
        self.labels_rotated = any(width > self.cell_width - 4 for width in label_widths)
        self.left = max((text_width(label, self.size) for label in self.row_labels), default=0) + 8
        self.top = 14.0 + (18 if self.formula else 0) + (19 if grid.corner else 0)
        self.top += 14 + max(label_widths) * 0.75 if self.labels_rotated else 20

    def fragment(self) -> SvgFragment:
        bottom, notes = self._notes()
        width = max(
            self.left + self.cell_width * len(self.grid.columns) + (30 if self.labels_rotated else 0),
            text_width(self.name, 13) * BOLD_WIDTH_FACTOR,
            text_width(self.formula, 12),
            text_width(self.grid.corner, 11),
        )
        return SvgFragment(width, bottom, "".join([*self._head(), *self._cells(), *notes]))

    def _head(self) -> Iterator[str]:
        name = (0, 13, self.name, "name")
        yield svg.formula_at(*name) if self.name_is_formula else text_at(*name)
        if self.formula:
            yield svg.formula_at(0, 31, self.formula)
        if self.grid.corner:
            yield text_at(0, 48 if self.formula else 30, self.grid.corner, "axis")
        kind = "label" if self.shows_numbers else "tiny"
        anchor, angle = ("start", -48) if self.labels_rotated else ("middle", 0)
        for index, label in enumerate(self.column_labels):
            yield text_at(self.left + self.cell_width * (index + 0.5), self.top - 6, label, kind, anchor, angle)
        for index, label in enumerate(self.row_labels):
            yield text_at(self.left - 8, self.top + self.cell_height * (index + 0.5) + 4.5, label, kind, "end")

    def _cells(self) -> list[str]:
        cells, marks = [], []
        for y, row in enumerate(self.grid.rows):
            for x, column in enumerate(self.grid.columns):
                left, top = self.left + self.cell_width * x, self.top + self.cell_height * y
                cells.append(self._cell(row, column, left, top))
                if self.grid.marked(row, column):
                    marks.append(rect_at(left + 1, top + 1, self.cell_width - 2, self.cell_height - 2, "marked", 3))
        return cells + marks

    def _cell(self, row: int | None, column: int | None, left: float, top: float) -> str:
        text, shade = self.grid.text(row, column), self.grid.shade(row, column)
        fill = f'fill="{shade.background}"' if shade else 'class="bare"'
        tip = f"{self.grid.row_label(row)}, {self.grid.column_label(column)}: {text}"
        rect = (
            f'<rect x="{left + 0.75:.1f}" y="{top + 0.75:.1f}" width="{self.cell_width - 1.5:.1f}" '
            f'height="{self.cell_height - 1.5:.1f}" rx="3" {fill}><title>{escape(tip)}</title></rect>'
        )
        if not self.shows_numbers:
            return rect
        x, y = left + self.cell_width / 2, top + self.cell_height / 2 + 4.5
        kind = "number" if shade else "number bare-ink"
        return rect + text_at(x, y, text, kind, "middle", fill=shade.text_colour if shade else "")

    def _notes(self) -> tuple[float, list[str]]:
        bottom, notes = self.top + self.cell_height * len(self.grid.rows), []
        if self.grid.scale and not self.shows_numbers:
            notes.append(_colour_bar(self.grid.scale, self.left, bottom + 10, self.grid.decimals))
            bottom += 40
        if self.grid.notice:
            notes.append(text_at(0, bottom + 16, self.grid.notice, "small"))
            bottom += 22
        return bottom, notes


def _colour_bar(scale: palette.ColourScale, left: float, top: float, decimals: int) -> str:
    """Draw the colour bar with the ends of the scale."""
    steps = palette.LEVELS + 1
    bars = "".join(
        f'<rect x="{left + 5 * level:.1f}" y="{top:.1f}" width="5.2" height="10" '
        f'fill="{palette.Shade(scale.palette, level).background}"/>'
        for level in range(steps)
    )
    low = text_at(left, top + 23, format_number(scale.low, decimals), "small")
    last = ("≥ " if scale.clipped else "") + format_number(scale.high, decimals)
    high = text_at(left + 5 * steps, top + 23, last, "small", "end")
    return bars + low + high


def table_fragment(table: Table, document: Document) -> SvgFragment:
    """Draw a table as lines of text below its header."""
    shown = table_text(table, document.decimals, _MAX_TABLE_ROWS)
    width = _MAX_TABLE_CELL_WIDTH
    lines = [[truncate_to_width(cell, 13, width) for cell in line] for line in (shown.header, *shown.rows)]
    widths = [max(text_width(line[index], 13) for line in lines) + 18 for index in range(len(shown.numeric))]
    title = sanitize.token_label(table.title)
    top, body = (24, [text_at(0, 13, title, "name")]) if title else (0, [])
    for row_index, line in enumerate(lines):
        left = 0.0
        for cell, column_width, numeric in zip(line, widths, shown.numeric, strict=True):
            x, anchor = (left + column_width - 18, "end") if numeric else (left, "start")
            body.append(text_at(x, top + 14 + 21 * row_index, cell, "label number" if row_index else "axis", anchor))
            left += column_width
    height = top + 21 * len(lines)
    if shown.notice:
        body.append(text_at(0, height + 14, shown.notice, "small"))
        height += 20
    full = max(sum(widths), text_width(title, 13) * BOLD_WIDTH_FACTOR)
    return SvgFragment(full, height, "".join(body), ends_line=True)


def maps_fragment(maps: Maps, decimals: int) -> SvgFragment:
    """Draw all maps small if there are several, and the chosen one large below them, with its tokens."""
    small = maps.tile_size == 1 and max(maps.values.shape[-2:]) <= MAX_SIZE
    large = matrix_fragment(chosen_matrix(maps), decimals) if small else _image_map(maps, decimals)
    return _stack_maps([_overview(maps), large] if maps.count > 1 else [large])


def _overview(maps: Maps) -> SvgFragment:
    """Draw every map small, each on its own scale."""
    columns = min(len(maps.across), max(1, _MAX_WIDTH // (_MIN_MAP_SIDE + _GAP)))
    side = min(max((_MAX_WIDTH - _LABEL_WIDTH) / columns - _GAP, _MIN_MAP_SIDE), _MAX_MAP_SIDE)
    left = 8 + max(text_width(_axis_label(maps.down_axis, label), 11) for label in maps.down)
    title = f"{maps.title}, each map on its own scale" if maps.title else "Each map on its own scale"
    body = [text_at(0, 13, truncate_to_width(sanitize.one_line(title), 13, _MAX_WIDTH), "name")]
    top = 42.0
    for first in range(0, len(maps.across), columns):
        shown = range(first, len(maps.across))[:columns]
        positions = {across: left + (across - first) * (side + _GAP) for across in shown}
        for across, x in positions.items():
            body.append(text_at(x + side / 2, top - 6, _title(maps, across, side), "small", "middle"))
        for row, row_name in enumerate(maps.down):
            y = top + row * (side + _GAP)
            label = truncate_to_width(_axis_label(maps.down_axis, row_name), 11, _LABEL_WIDTH)
            body.append(text_at(left - 8, y + side / 2 + 4, label, "small", "end"))
            for across, x in positions.items():
                numbers = np.asarray(maps.values[row, across], dtype=float)
                image = _image(max_pool(numbers, _THUMBNAIL_SIDE)[0], palette.scale_of_map(numbers), x, y, side, side)
                edge = "marked" if (row, across) == maps.selected else "edge"
                body += [image, rect_at(x, y, side, side, edge)]
        top += len(maps.down) * (side + _GAP) + 26
    width = max(left + columns * (side + _GAP), text_width(sanitize.one_line(title), 13) * BOLD_WIDTH_FACTOR)
    return SvgFragment(min(width, _MAX_WIDTH + _LABEL_WIDTH), top - 20, "".join(body))


def _title(maps: Maps, across: int, side: float) -> str:
    label = sanitize.token_label(maps.across[across])
    full = _axis_label(maps.across_axis, label)
    return full if text_width(full, 11) <= side + _GAP - 4 else truncate_to_width(label, 11, side + _GAP)


def _axis_label(axis: str, label: str) -> str:
    return f"{sanitize.one_line(axis)} {sanitize.token_label(label)}".strip()


def _image_map(maps: Maps, decimals: int) -> SvgFragment:
    """Draw a map too large for a label on every row as an image, with some of its tokens as ticks."""
    numbers = np.asarray(maps.values[maps.selected], dtype=float)
    values, shrink = max_pool(numbers, _MAX_IMAGE_SIDE)
    scale, tile = palette.scale_of_map(numbers), maps.tile_size * shrink
    ratio = values.shape[1] / max(values.shape[0], 1)
    width, height = max(_LARGE_MAP_SIDE * min(ratio, 1), 60), max(_LARGE_MAP_SIDE / max(ratio, 1), 60)
    top, left = 36.0 + _LABEL_WIDTH * 0.75, float(_LABEL_WIDTH)
    body = [
        text_at(0, 13, sanitize.one_line(maps.name(*maps.selected) or maps.title), "name"),
        text_at(0, 31, f"{sanitize.one_line(maps.row_axis)} ↓ {sanitize.one_line(maps.column_axis)} →", "axis"),
        _image(values, scale, left, top, width, height),
        rect_at(left, top, width, height, "edge"),
    ]
    for offset, text in _ticks(maps.rows, tile, values.shape[0], height):
        body.append(text_at(left - 6, top + offset + 3.5, text, "tiny", "end"))
    for offset, text in _ticks(maps.columns, tile, values.shape[1], width):
        body.append(text_at(left + offset, top - 6, text, "tiny", rotate=-48))
    body.append(_colour_bar(scale, left, top + height + 10, decimals))
    piece = SvgFragment(left + max(width + 60, 140), top + height + 40, "".join(body))
    if shrink == 1 and maps.tile_size == 1:
        return piece
    note = f"Each pixel is the maximum of {tile} by {tile} tokens." if shrink > 1 else tile_notice(maps)
    return _stack_maps([piece, svg.text_fragment([sanitize.one_line(note)])])


def _ticks(labels: tuple[str, ...], tile: int, count: int, length: float) -> Iterator[tuple[float, str]]:
    """Yield the offset and label of some of `count` cells along an axis."""
    for cell in range(0, count, -(-count // _MAX_TICKS)):
        position = cell * tile
        label = f"{position} {sanitize.token_label(labels[position])}" if position < len(labels) else str(position)
        yield (cell + 0.5) / count * length, truncate_to_width(label, 10, _LABEL_WIDTH - 10)


def _image(values: np.ndarray, scale: palette.ColourScale, x: float, y: float, width: float, height: float) -> str:
    # Upscale here: not every renderer keeps the edges of enlarged pixels sharp.
    times = max(1, round(2 * width / max(values.shape[1], 1)))
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none"'
    return f'<image {place} href="{heat_data_uri(values, scale, times)}"/>'


def _stack_maps(fragments: list[SvgFragment]) -> SvgFragment:
    stacked = svg.stack(fragments, 18)
    return SvgFragment(stacked.width, stacked.height - 18, stacked.body, ends_line=True)


def heat_png(values: np.ndarray, scale: palette.ColourScale, upscale: int = 1) -> bytes:
    """Return a PNG with `upscale` by `upscale` pixels per cell; NaN is transparent."""
    span = scale.high - scale.low
    with np.errstate(invalid="ignore"):
        share = np.clip((values - scale.low) / span, 0, 1) if span > 0 else np.where(np.isfinite(values), 0.5, np.nan)
        share = np.sqrt(share) if scale.lifted else share
        codes = np.where(np.isfinite(share), np.rint(share * (_NUM_COLOURS - 1)), _NUM_COLOURS).astype(np.uint8)
    codes = codes.repeat(upscale, axis=0).repeat(upscale, axis=1)
    height, width = codes.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), codes], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", header), (b"PLTE", _colour_table(scale.palette)), (b"tRNS", b"\xff" * _NUM_COLOURS + b"\0"),
        (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""),
    )  # fmt: skip
    packed = (struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def heat_data_uri(values: np.ndarray, scale: palette.ColourScale, upscale: int = 1) -> str:
    """Return the PNG as a data URI."""
    return "data:image/png;base64," + base64.b64encode(heat_png(values, scale, upscale)).decode("ascii")


def max_pool(values: np.ndarray, max_size: int) -> tuple[np.ndarray, int]:
    """Max-pool the last two axes to at most `max_size` tiles; return the tiles and their side length.

    >>> max_pool(np.arange(16.0).reshape(4, 4), 2)[0].tolist()
    [[5.0, 7.0], [13.0, 15.0]]
    """
    side = -(-max(values.shape[-2:]) // max_size)
    if side <= 1:
        return values, 1
    rows, columns = (-(-size // side) * side for size in values.shape[-2:])
    pad = [(0, 0)] * (values.ndim - 2) + [(0, rows - values.shape[-2]), (0, columns - values.shape[-1])]
    padded = np.pad(np.where(np.isfinite(values), values, -np.inf), pad, constant_values=-np.inf)
    tiles = padded.reshape(*values.shape[:-2], rows // side, side, columns // side, side).max(axis=(-3, -1))
    return np.where(np.isfinite(tiles), tiles, np.nan), side


@cache
def _colour_table(name: str) -> bytes:
    colours = (palette.colour(name, shade / (_NUM_COLOURS - 1)) for shade in range(_NUM_COLOURS))
    return b"".join(bytes.fromhex(colour[1:]) for colour in colours) + b"\0\0\0"
