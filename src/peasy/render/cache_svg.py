"""The cache as it grows: one line a step, grey for what was reused, coloured and dotted for what was computed."""

from peasy.render import glyph
from peasy.render.draft import BOLD, Piece, Size, fitted, measure, text_at
from peasy.render.figure import cache_rows
from peasy.render.grid import GAP, window
from peasy.views.document import Cache

MOST, CELL, LABEL = 48, 17, 96


def cache_piece(cache: Cache) -> Piece:
    """Steps from top to bottom, places of the text from left to right."""
    steps, places = window(len(cache.steps), MOST), window(len(cache.tokens), MOST)
    names = [token for token, *_ in cache_rows(cache)]
    labels = [GAP if each is None else f"{each + 1} {glyph.label(names[each])}" for each in steps]
    heads = [GAP if each is None else glyph.label(cache.tokens[each]) for each in places]
    labels, heads = ([fitted(each, 11, LABEL) for each in side] for side in (labels, heads))
    left = max([measure(each, 11) for each in labels], default=0) + 10
    top = 56 + max([measure(each, 11) for each in heads], default=0) * 0.75
    body = [text_at(0, 13, glyph.prose(cache.title), "name"), *_key(left)]
    body += [text_at(left + CELL * (x + 0.6), top - 6, each, "small", turn=-48) for x, each in enumerate(heads)]
    body += [text_at(left - 8, top + CELL * (y + 0.75), each, "small", "end") for y, each in enumerate(labels)]
    for y, step in enumerate(steps):
        if step is not None:
            body += [_cell(cache, step, place, left + CELL * x, top + CELL * y) for x, place in enumerate(places)]
    width = max(left + CELL * len(places) + 70, left + 260, measure(cache.title, 13) * BOLD)
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
    """What grey and coloured mean."""
    return [
        f'<rect x="{left + 1:.1f}" y="22" width="15" height="15" rx="2" class="computed"/>',
        f'<circle cx="{left + 8.5:.1f}" cy="29.5" r="2.5" class="dot"/>',
        text_at(left + 22, 34, "computed", "small"),
        f'<rect x="{left + 100:.1f}" y="22" width="15" height="15" rx="2" class="reused"/>',
        text_at(left + 121, 34, "reused from the cache", "small"),
    ]
