"""SVG of a KV cache over time: one row per step, reused positions grey, computed ones coloured with a dot."""

from peasy.render import sanitize
from peasy.render.figure_tables import cache_rows
from peasy.render.grid import ELLIPSIS, shown_indices
from peasy.render.svg_layout import BOLD_WIDTH_FACTOR, SvgFragment, SvgSize, text_at, text_width, truncate_to_width
from peasy.views.document import CacheFigure

MAX_SHOWN, CELL_SIZE, LABEL_WIDTH = 48, 17, 96


def cache_fragment(cache: CacheFigure) -> SvgFragment:
    """Draw steps from top to bottom and positions from left to right."""
    steps, positions = shown_indices(len(cache.steps), MAX_SHOWN), shown_indices(len(cache.tokens), MAX_SHOWN)
    names = [token for token, *_ in cache_rows(cache)]
    labels = [ELLIPSIS if step is None else f"{step + 1} {sanitize.token_label(names[step])}" for step in steps]
    column_labels = [
        ELLIPSIS if position is None else sanitize.token_label(cache.tokens[position]) for position in positions
    ]
    labels, column_labels = (
        [truncate_to_width(label, 11, LABEL_WIDTH) for label in side] for side in (labels, column_labels)
    )
    left = max([text_width(label, 11) for label in labels], default=0) + 10
    top = 56 + max([text_width(column_label, 11) for column_label in column_labels], default=0) * 0.75
    body = [text_at(0, 13, sanitize.one_line(cache.title), "name"), *_legend(left)]
    body += [
        text_at(left + CELL_SIZE * (x + 0.6), top - 6, column_label, "small", rotate=-48)
        for x, column_label in enumerate(column_labels)
    ]
    body += [text_at(left - 8, top + CELL_SIZE * (y + 0.75), label, "small", "end") for y, label in enumerate(labels)]
    for y, step in enumerate(steps):
        if step is not None:
            body += [
                _cell(cache, step, position, left + CELL_SIZE * x, top + CELL_SIZE * y)
                for x, position in enumerate(positions)
            ]
    width = max(left + CELL_SIZE * len(positions) + 70, left + 260, text_width(cache.title, 13) * BOLD_WIDTH_FACTOR)
    return SvgFragment(SvgSize(width, top + CELL_SIZE * len(steps) + 6), "".join(body), ends_line=True)


def _cell(cache: CacheFigure, step: int, position: int | None, x: float, y: float) -> str:
    reused, computed = cache.steps[step]
    if position is None or position >= reused + computed:
        return ""
    kind = "reused" if position < reused else "computed"
    side = CELL_SIZE - 2
    square = f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{side}" height="{side}" rx="2" class="{kind}"/>'
    return (
        square
        if position < reused
        else square + f'<circle cx="{x + CELL_SIZE / 2:.1f}" cy="{y + CELL_SIZE / 2:.1f}" r="2.5" class="dot"/>'
    )


def _legend(left: float) -> list[str]:
    """Legend of the two colours."""
    return [
        f'<rect x="{left + 1:.1f}" y="22" width="15" height="15" rx="2" class="computed"/>',
        f'<circle cx="{left + 8.5:.1f}" cy="29.5" r="2.5" class="dot"/>',
        text_at(left + 22, 34, "computed", "small"),
        f'<rect x="{left + 100:.1f}" y="22" width="15" height="15" rx="2" class="reused"/>',
        text_at(left + 121, 34, "reused from the cache", "small"),
    ]
