"""Heat maps on a grid as a picture: small ones side by side, the chosen one large with its tokens."""

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
    """All maps small, where there are several, and the chosen one large below them."""
    pieces = [overview_piece(maps)] if maps.count > 1 else []
    pieces.append(large_piece(maps, decimals))
    return _below(pieces)


def large_piece(maps: Maps, decimals: int) -> Piece:
    """The chosen map with its tokens; cell by cell where they are few, as dots where they are many."""
    if maps.tile == 1 and max(maps.values.shape[-2:]) <= MOST:
        return matrix_piece(chosen_matrix(maps), decimals)
    return _dots(maps, decimals)


def own_scale(values: np.ndarray) -> palette.Scale:
    """From nothing to the largest of these numbers; around zero where there are both signs."""
    there = values[np.isfinite(values)]
    low, high = (float(there.min()), float(there.max())) if there.size else (0.0, 0.0)
    reach = max(-low, high)
    return palette.Scale(-reach, reach, "around-zero") if low < 0 else palette.Scale(0.0, high, "by-size")


def overview_piece(maps: Maps) -> Piece:
    """Every map by its shape alone, each on its own scale."""
    across, down = len(maps.across), len(maps.down)
    columns = min(across, max(1, ROOM // (SMALLEST + GAP)))
    side = min(max((ROOM - LABEL) / columns - GAP, SMALLEST), LARGEST)
    left = 8 + max(measure(_short(maps.down_axis, label), 11) for label in maps.down)
    said = f"{maps.title}, each map from 0 to its own largest number" if maps.title else "Each map on its own scale"
    body = [text_at(0, 13, fitted(glyph.prose(said), 13, ROOM), "name")]
    top = 42.0
    for first in range(0, across, columns):
        shown = range(first, min(first + columns, across))
        body += [
            text_at(left + place * (side + GAP) + side / 2, top - 6, _title(maps, each, side), "small", "middle")
            for place, each in enumerate(shown)
        ]
        for row in range(down):
            y = top + row * (side + GAP)
            label = fitted(_short(maps.down_axis, maps.down[row]), 11, LABEL)
            body.append(text_at(left - 8, y + side / 2 + 4, label, "small", "end"))
            for place, each in enumerate(shown):
                body.append(_small(maps, row, each, left + place * (side + GAP), y, side))
        top += down * (side + GAP) + 26
    width = max(left + columns * (side + GAP), measure(glyph.prose(said), 13) * BOLD)
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
    """A map too fine for labels on every row: some of the tokens stand at the sides."""
    values, more = shrunk(np.asarray(maps.values[maps.chosen], dtype=float), FINEST)
    scale, tile = own_scale(values), maps.tile * more
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
    said = [glyph.prose(tiled_sentence(maps))] if maps.tile > 1 else []
    if more > 1:
        said = [f"Drawn by the largest of {tile} by {tile} tokens."]
    return _below([piece, words_piece(said)]) if said else piece


def _ticks(
    labels: tuple[str, ...], tile: int, count: int, length: float, left: float, top: float, turned: bool
) -> Iterator[str]:
    every = -(-count // TICKS)
    for cell in range(0, count, every):
        place = cell * tile
        said = fitted(f"{place} {glyph.label(labels[place])}" if place < len(labels) else str(place), 10, LABEL - 10)
        at = (cell + 0.5) / count * length
        if turned:
            yield text_at(left + at, top - 6, said, "tiny", turn=-48)
        else:
            yield text_at(left - 6, top + at + 3.5, said, "tiny", "end")


def _image(values: np.ndarray, scale: palette.Scale, x: float, y: float, width: float, height: float) -> str:
    # Cells are made large here: not everyone who draws a picture keeps the edges of enlarged dots sharp.
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
