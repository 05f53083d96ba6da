"""SVG of a grid of heat maps (layers by heads): small maps side by side, the chosen one large with its tokens."""

from collections.abc import Iterator

import numpy as np

from peasy.render import palette, sanitize
from peasy.render.figure_tables import chosen_matrix, tile_notice
from peasy.render.heatmap import MAX_SIZE, colour_bar, matrix_fragment
from peasy.render.raster import heat_data_uri, max_pool
from peasy.render.svg_layout import (
    BOLD_WIDTH_FACTOR,
    SvgFragment,
    SvgSize,
    text_at,
    text_fragment,
    text_width,
    truncate_to_width,
)
from peasy.views.document import Maps

MAX_WIDTH, GAP, MIN_MAP_SIDE, MAX_MAP_SIDE = 900, 6, 26, 120
LARGE_MAP_SIDE, MAX_IMAGE_SIDE, THUMBNAIL_SIDE = 480, 512, 32
LABEL_WIDTH, MAX_TICKS = 90, 24


def maps_fragment(maps: Maps, decimals: int) -> SvgFragment:
    """Draw all maps small if there are several, and the chosen one large below them."""
    pieces = [overview_fragment(maps)] if maps.count > 1 else []
    pieces.append(large_map_fragment(maps, decimals))
    return _stack_vertically(pieces)


def large_map_fragment(maps: Maps, decimals: int) -> SvgFragment:
    """Draw the chosen map with its tokens: cell by cell if small, as an image if large."""
    if maps.tile_size == 1 and max(maps.values.shape[-2:]) <= MAX_SIZE:
        return matrix_fragment(chosen_matrix(maps), decimals)
    return _image_map(maps, decimals)


def colour_scale_of(values: np.ndarray) -> palette.ColourScale:
    """Return the scale from 0 to the maximum, or symmetric around zero if there are negative numbers."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    limit = max(-low, high)
    return palette.ColourScale(-limit, limit, "diverging") if low < 0 else palette.ColourScale(0.0, high, "sequential")


def overview_fragment(maps: Maps) -> SvgFragment:
    """Draw every map small, each on its own scale."""
    across, down = len(maps.across), len(maps.down)
    columns = min(across, max(1, MAX_WIDTH // (MIN_MAP_SIDE + GAP)))
    side = min(max((MAX_WIDTH - LABEL_WIDTH) / columns - GAP, MIN_MAP_SIDE), MAX_MAP_SIDE)
    left = 8 + max(text_width(_axis_label(maps.down_axis, label), 11) for label in maps.down)
    title = f"{maps.title}, each map scaled from 0 to its maximum" if maps.title else "Each map on its own scale"
    body = [text_at(0, 13, truncate_to_width(sanitize.one_line(title), 13, MAX_WIDTH), "name")]
    top = 42.0
    for first in range(0, across, columns):
        map_indices = range(first, min(first + columns, across))
        body += [
            text_at(left + column * (side + GAP) + side / 2, top - 6, _title(maps, map_index, side), "small", "middle")
            for column, map_index in enumerate(map_indices)
        ]
        for row in range(down):
            y = top + row * (side + GAP)
            label = truncate_to_width(_axis_label(maps.down_axis, maps.down[row]), 11, LABEL_WIDTH)
            body.append(text_at(left - 8, y + side / 2 + 4, label, "small", "end"))
            for column, map_index in enumerate(map_indices):
                body.append(_thumbnail(maps, row, map_index, left + column * (side + GAP), y, side))
        top += down * (side + GAP) + 26
    width = max(left + columns * (side + GAP), text_width(sanitize.one_line(title), 13) * BOLD_WIDTH_FACTOR)
    return SvgFragment(SvgSize(min(width, MAX_WIDTH + LABEL_WIDTH), top - 20), "".join(body))


def _title(maps: Maps, across: int, side: float) -> str:
    label = sanitize.token_label(maps.across[across])
    full = _axis_label(maps.across_axis, label)
    return full if text_width(full, 11) <= side + GAP - 4 else truncate_to_width(label, 11, side + GAP)


def _axis_label(axis: str, label: str) -> str:
    return f"{sanitize.one_line(axis)} {sanitize.token_label(label)}".strip()


def _thumbnail(maps: Maps, down: int, across: int, x: float, y: float, side: float) -> str:
    values, _ = max_pool(np.asarray(maps.values[down, across], dtype=float), THUMBNAIL_SIDE)
    chosen = (down, across) == maps.selected
    image = _image(values, colour_scale_of(values), x, y, side, side)
    edge = "marked" if chosen else "edge"
    return f'{image}<rect x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" class="{edge}"/>'


def _image_map(maps: Maps, decimals: int) -> SvgFragment:
    """Draw a map too large for a label on every row as an image, with some of its tokens as ticks."""
    values, shrink = max_pool(np.asarray(maps.values[maps.selected], dtype=float), MAX_IMAGE_SIDE)
    scale, tile = colour_scale_of(values), maps.tile_size * shrink
    ratio = values.shape[1] / max(values.shape[0], 1)
    width, height = (LARGE_MAP_SIDE, LARGE_MAP_SIDE / ratio) if ratio >= 1 else (LARGE_MAP_SIDE * ratio, LARGE_MAP_SIDE)
    width, height = max(width, 60), max(height, 60)
    name = sanitize.one_line(maps.name(*maps.selected) or maps.title)
    body = [
        text_at(0, 13, name, "name"),
        text_at(0, 31, f"{sanitize.one_line(maps.row_axis)} ↓ {sanitize.one_line(maps.column_axis)} →", "axis"),
    ]
    top, left = 36.0 + LABEL_WIDTH * 0.75, float(LABEL_WIDTH)
    body.append(_image(values, scale, left, top, width, height))
    body.append(f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{height:.1f}" class="edge"/>')
    body += _ticks(maps.rows, tile, values.shape[0], height, left, top, rotated=False)
    body += _ticks(maps.columns, tile, values.shape[1], width, left, top, rotated=True)
    body.append(colour_bar(scale, left, top + height + 10, decimals))
    piece = SvgFragment(SvgSize(left + max(width + 60, 140), top + height + 40), "".join(body))
    notes = [sanitize.one_line(tile_notice(maps))] if maps.tile_size > 1 else []
    if shrink > 1:
        notes = [f"Each pixel is the maximum of {tile} by {tile} tokens."]
    return _stack_vertically([piece, text_fragment(notes)]) if notes else piece


def _ticks(
    labels: tuple[str, ...], tile: int, count: int, length: float, left: float, top: float, rotated: bool
) -> Iterator[str]:
    interval = -(-count // MAX_TICKS)
    for cell in range(0, count, interval):
        position = cell * tile
        text = truncate_to_width(
            f"{position} {sanitize.token_label(labels[position])}" if position < len(labels) else str(position),
            10,
            LABEL_WIDTH - 10,
        )
        offset = (cell + 0.5) / count * length
        if rotated:
            yield text_at(left + offset, top - 6, text, "tiny", rotate=-48)
        else:
            yield text_at(left - 6, top + offset + 3.5, text, "tiny", "end")


def _image(values: np.ndarray, scale: palette.ColourScale, x: float, y: float, width: float, height: float) -> str:
    # Upscale here: not every renderer keeps the edges of enlarged pixels sharp.
    times = max(1, round(2 * width / max(values.shape[1], 1)))
    return (
        f'<image x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none" '
        f'href="{heat_data_uri(values, scale, times)}"/>'
    )


def _stack_vertically(fragments: list[SvgFragment]) -> SvgFragment:
    body, top = "", 0.0
    for piece in fragments:
        body += piece.at(0, top)
        top += piece.size.height + 18
    return SvgFragment(SvgSize(max(piece.size.width for piece in fragments), top - 18), body, ends_line=True)
