"""SVG of a KV cache over time: one row per step, reused positions grey, computed ones coloured with a dot."""

from peasy.render import glyph
from peasy.render.draft import BOLD, Piece, Size, fitted, measure, text_at
from peasy.render.figure import cache_rows
from peasy.render.grid import GAP, window
from peasy.views.document import Cache

MOST, CELL, LABEL = 48, 17, 96


def cache_piece(cache: Cache) -> Piece:
    """Draw steps from top to bottom and positions from left to right."""
    steps, positions = window(len(cache.steps), MOST), window(len(cache.tokens), MOST)
    names = [token for token, *_ in cache_rows(cache)]
    labels = [GAP if step is None else f"{step + 1} {glyph.label(names[step])}" for step in steps]
    column_labels = [GAP if position is None else glyph.label(cache.tokens[position]) for position in positions]
    labels, column_labels = ([fitted(label, 11, LABEL) for label in side] for side in (labels, column_labels))
    left = max([measure(label, 11) for label in labels], default=0) + 10
    top = 56 + max([measure(column_label, 11) for column_label in column_labels], default=0) * 0.75
    body = [text_at(0, 13, glyph.prose(cache.title), "name"), *_key(left)]
    body += [
        text_at(left + CELL * (x + 0.6), top - 6, column_label, "small", turn=-48)
        for x, column_label in enumerate(column_labels)
    ]
    body += [text_at(left - 8, top + CELL * (y + 0.75), label, "small", "end") for y, label in enumerate(labels)]
    for y, step in enumerate(steps):
        if step is not None:
            body += [
                _cell(cache, step, position, left + CELL * x, top + CELL * y) for x, position in enumerate(positions)
            ]
    width = max(left + CELL * len(positions) + 70, left + 260, measure(cache.title, 13) * BOLD)
    return Piece(Size(width, top + CELL * len(steps) + 6), "".join(body), ends_line=True)


def _cell(cache: Cache, step: int, place: int | None, x: float, y: float) -> str:
    reused, computed = cache.steps[step]
    if place is None or place >= reused + computed:
        return ""
    kind = "reused" if place < reused else "computed"
    square = f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{CELL - 2}" height="{CELL - 2}" rx="2" class="{kind}"/>'
    return (
        square
        if place < reused
        else square + f'<circle cx="{x + CELL / 2:.1f}" cy="{y + CELL / 2:.1f}" r="2.5" class="dot"/>'
    )


def _key(left: float) -> list[str]:
    """Legend of the two colours."""
    return [
        f'<rect x="{left + 1:.1f}" y="22" width="15" height="15" rx="2" class="computed"/>',
        f'<circle cx="{left + 8.5:.1f}" cy="29.5" r="2.5" class="dot"/>',
        text_at(left + 22, 34, "computed", "small"),
        f'<rect x="{left + 100:.1f}" y="22" width="15" height="15" rx="2" class="reused"/>',
        text_at(left + 121, 34, "reused from the cache", "small"),
    ]
