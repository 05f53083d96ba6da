"""SVG of a grid of heat maps (layers by heads): small maps side by side, the chosen one large with its tokens."""

from collections.abc import Iterator

import numpy as np

from peasy.render import glyph, palette
from peasy.render.draft import BOLD, Piece, Size, fitted, measure, text_at, words_piece
from peasy.render.figure import chosen_matrix, tiled_sentence
from peasy.render.heatmap import MOST, legend, matrix_piece
from peasy.render.raster import heat_uri, shrunk
from peasy.views.document import Maps

ROOM, GAP, SMALLEST, LARGEST = 900, 6, 26, 120
LARGE, FINEST, DOTS = 480, 512, 32
LABEL, TICKS = 90, 24


def maps_piece(maps: Maps, decimals: int) -> Piece:
    """Draw all maps small if there are several, and the chosen one large below them."""
    pieces = [overview_piece(maps)] if maps.count > 1 else []
    pieces.append(large_piece(maps, decimals))
    return _below(pieces)


def large_piece(maps: Maps, decimals: int) -> Piece:
    """Draw the chosen map with its tokens: cell by cell if small, as an image if large."""
    if maps.tile == 1 and max(maps.values.shape[-2:]) <= MOST:
        return matrix_piece(chosen_matrix(maps), decimals)
    return _dots(maps, decimals)


def own_scale(values: np.ndarray) -> palette.Scale:
    """Return the scale from 0 to the maximum, or symmetric around zero if there are negative numbers."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    limit = max(-low, high)
    return palette.Scale(-limit, limit, "around-zero") if low < 0 else palette.Scale(0.0, high, "by-size")


def overview_piece(maps: Maps) -> Piece:
    """Draw every map small, each on its own scale."""
    across, down = len(maps.across), len(maps.down)
    columns = min(across, max(1, ROOM // (SMALLEST + GAP)))
    side = min(max((ROOM - LABEL) / columns - GAP, SMALLEST), LARGEST)
    left = 8 + max(measure(_short(maps.down_axis, label), 11) for label in maps.down)
    title = f"{maps.title}, each map scaled from 0 to its maximum" if maps.title else "Each map on its own scale"
    body = [text_at(0, 13, fitted(glyph.prose(title), 13, ROOM), "name")]
    top = 42.0
    for first in range(0, across, columns):
        map_indices = range(first, min(first + columns, across))
        body += [
            text_at(left + column * (side + GAP) + side / 2, top - 6, _title(maps, map_index, side), "small", "middle")
            for column, map_index in enumerate(map_indices)
        ]
        for row in range(down):
            y = top + row * (side + GAP)
            label = fitted(_short(maps.down_axis, maps.down[row]), 11, LABEL)
            body.append(text_at(left - 8, y + side / 2 + 4, label, "small", "end"))
            for column, map_index in enumerate(map_indices):
                body.append(_small(maps, row, map_index, left + column * (side + GAP), y, side))
        top += down * (side + GAP) + 26
    width = max(left + columns * (side + GAP), measure(glyph.prose(title), 13) * BOLD)
    return Piece(Size(min(width, ROOM + LABEL), top - 20), "".join(body))


def _title(maps: Maps, across: int, side: float) -> str:
    label = glyph.label(maps.across[across])
    full = _short(maps.across_axis, label)
    return full if measure(full, 11) <= side + GAP - 4 else fitted(label, 11, side + GAP)


def _short(axis: str, label: str) -> str:
    return f"{glyph.prose(axis)} {glyph.label(label)}".strip()


def _small(maps: Maps, down: int, across: int, x: float, y: float, side: float) -> str:
    values, _ = shrunk(np.asarray(maps.values[down, across], dtype=float), DOTS)
    chosen = (down, across) == maps.chosen
    image = _image(values, own_scale(values), x, y, side, side)
    edge = "marked" if chosen else "edge"
    return f'{image}<rect x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" class="{edge}"/>'


def _dots(maps: Maps, decimals: int) -> Piece:
    """Draw a map too large for a label on every row as an image, with some of its tokens as ticks."""
    values, shrink = shrunk(np.asarray(maps.values[maps.chosen], dtype=float), FINEST)
    scale, tile = own_scale(values), maps.tile * shrink
    ratio = values.shape[1] / max(values.shape[0], 1)
    width, height = (LARGE, LARGE / ratio) if ratio >= 1 else (LARGE * ratio, LARGE)
    width, height = max(width, 60), max(height, 60)
    name = glyph.prose(maps.name(*maps.chosen) or maps.title)
    body = [
        text_at(0, 13, name, "name"),
        text_at(0, 31, f"{glyph.prose(maps.row_axis)} ↓ {glyph.prose(maps.column_axis)} →", "axis"),
    ]
    top, left = 36.0 + LABEL * 0.75, float(LABEL)
    body.append(_image(values, scale, left, top, width, height))
    body.append(f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{height:.1f}" class="edge"/>')
    body += _ticks(maps.rows, tile, values.shape[0], height, left, top, turned=False)
    body += _ticks(maps.columns, tile, values.shape[1], width, left, top, turned=True)
    body.append(legend(scale, left, top + height + 10, decimals))
    piece = Piece(Size(left + max(width + 60, 140), top + height + 40), "".join(body))
    notes = [glyph.prose(tiled_sentence(maps))] if maps.tile > 1 else []
    if shrink > 1:
        notes = [f"Each pixel is the maximum of {tile} by {tile} tokens."]
    return _below([piece, words_piece(notes)]) if notes else piece


def _ticks(
    labels: tuple[str, ...], tile: int, count: int, length: float, left: float, top: float, turned: bool
) -> Iterator[str]:
    interval = -(-count // TICKS)
    for cell in range(0, count, interval):
        position = cell * tile
        text = fitted(
            f"{position} {glyph.label(labels[position])}" if position < len(labels) else str(position), 10, LABEL - 10
        )
        offset = (cell + 0.5) / count * length
        if turned:
            yield text_at(left + offset, top - 6, text, "tiny", turn=-48)
        else:
            yield text_at(left - 6, top + offset + 3.5, text, "tiny", "end")


def _image(values: np.ndarray, scale: palette.Scale, x: float, y: float, width: float, height: float) -> str:
    # Upscale here: not every renderer keeps the edges of enlarged pixels sharp.
    times = max(1, round(2 * width / max(values.shape[1], 1)))
    return (
        f'<image x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none" '
        f'href="{heat_uri(values, scale, times)}"/>'
    )


def _below(pieces: list[Piece]) -> Piece:
    body, top = "", 0.0
    for piece in pieces:
        body += piece.at(0, top)
        top += piece.size.height + 18
    return Piece(Size(max(piece.size.width for piece in pieces), top - 18), body, ends_line=True)
