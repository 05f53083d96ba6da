"""SVG of weighted links between words, KV cache use per step, and model diagrams."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from peasy.render import palette, sanitize
from peasy.render.figure_tables import cache_rows
from peasy.render.grid import ELLIPSIS, shown_indices
from peasy.render.svg_layout import BOLD_WIDTH_FACTOR, SvgFragment, rect_at, text_at, text_width, truncate_to_width
from peasy.views.document import CacheFigure, Diagram, Links, Node

_MAX_LINKS, _MAX_WIDTH = 1_500, 940
_LINE_HEIGHT, _LINK_WIDTH, _MAX_WORD_WIDTH = 24, 190, 150
_WORD_GAP, _RIBBON_HEIGHT = 14, 120
_MAX_WORDS = 200
"""Maximum number of words on one side."""

_MAX_CACHE_SHOWN, _CACHE_CELL, _CACHE_LABEL_WIDTH = 48, 17, 96

_PAD, _ARROW_GAP, _NODE_LINE_HEIGHT, _COLUMN_GAP, _MAX_TEXT_WIDTH = 10.0, 18.0, 17.0, 40.0, 460.0
_TITLE_HEIGHT, _SHADOW_OFFSET = 26.0, 5.0


def links_fragment(links: Links) -> SvgFragment:
    """Draw attention as two columns of words, or an alignment as ribbons if requested and if they fit."""
    shown = ((sanitize.token_label(word) for word in side) for side in (links.left, links.right))
    sides = [[truncate_to_width(word, 13, _MAX_WORD_WIDTH) for word in side] for side in shown]
    spans = [_word_spans(words) for words in sides]
    title = truncate_to_width(sanitize.one_line(links.title), 13, _MAX_WIDTH)
    body = [text_at(0, 13, title, "name")]
    ribbons = links.ribbons and max(_end(side) for side in spans) <= _MAX_WIDTH
    width, height = _ribbons(links, sides, spans, body) if ribbons else _link_columns(links, sides, body)
    title_width = min(text_width(sanitize.one_line(links.title), 13) * BOLD_WIDTH_FACTOR, _MAX_WIDTH)
    return SvgFragment(max(width, title_width), height, "".join(body), ends_line=True)


def _link_columns(links: Links, sides: list[list[str]], body: list[str]) -> tuple[float, float]:
    """Draw a column of words on each side; return width and height."""
    left, right = (side[:_MAX_WORDS] for side in sides)
    axes = sanitize.one_line(links.left_axis), sanitize.one_line(links.right_axis)
    left_width = max([text_width(word, 13) for word in left] + [text_width(axes[0], 11)]) + 8
    columns = ((left, left_width - 8, "end"), (right, left_width + _LINK_WIDTH + 8, "start"))
    body += [text_at(x, 36, axis, "axis", anchor) for axis, (_, x, anchor) in zip(axes, columns, strict=True)]
    for words, x, anchor in columns:
        body += [text_at(x, 58 + _LINE_HEIGHT * index, word, "label", anchor) for index, word in enumerate(words)]

    def path(a: int, b: int) -> str:
        y, z, middle = 53.5 + _LINE_HEIGHT * a, 53.5 + _LINE_HEIGHT * b, left_width + _LINK_WIDTH / 2
        return f"M{left_width:.1f} {y}C{middle:.1f} {y} {middle:.1f} {z} {left_width + _LINK_WIDTH:.1f} {z}"

    for a, b, weight in reversed(links.strongest(_MAX_LINKS)):
        if a < len(left) and b < len(right):
            opacity, width = 0.15 + 0.85 * min(weight, 1), 0.8 + 4 * min(weight, 1)
            drawn = f'stroke-opacity="{opacity:.2f}" stroke-width="{width:.1f}"'
            body.append(f'<path d="{path(a, b)}" class="link" {drawn}/>')
    body += [f'<path d="{path(a, b)}" class="known"/>' for a, b in links.gold if a < len(left) and b < len(right)]
    height = 48 + _LINE_HEIGHT * max(len(left), len(right), 1)
    omitted = max(len(links.left), len(links.right)) - _MAX_WORDS
    if omitted > 0:
        body.append(text_at(0, height + 14, f"{omitted:,} more words are left out.", "small"))
        height += 20
    return left_width + _LINK_WIDTH + 16 + max([text_width(word, 13) for word in right], default=0), height


_Span = tuple[float, float]
"""Left edge and width of a word."""


def _ribbons(links: Links, sides: list[list[str]], spans: list[list[_Span]], body: list[str]) -> tuple[float, float]:
    """Draw an alignment: the ribbons of each word below show which words above it comes from."""
    (tops, bottoms), above, below = spans, 62, 62 + _RIBBON_HEIGHT
    body.append(text_at(0, 36, sanitize.one_line(links.left_axis), "axis"))
    body.append(text_at(0, below + 42, sanitize.one_line(links.right_axis), "axis"))
    body += _ribbon_paths(links, tops, bottoms, above + 4, below - 4)
    for a, b in links.gold:
        x, z = tops[a][0] + tops[a][1] / 2, bottoms[b][0] + bottoms[b][1] / 2
        body.append(f'<path d="M{x:.1f} {above + 4}L{z:.1f} {below - 4}" class="known"/>')
    for side, y, words in ((tops, above - 6, sides[0]), (bottoms, below + 16, sides[1])):
        body += [text_at(x + w / 2, y, word, "label", "middle") for (x, w), word in zip(side, words, strict=True)]
    return max(map(_end, spans)), below + 46


def _ribbon_paths(links: Links, tops: list[_Span], bottoms: list[_Span], above: float, below: float) -> Iterator[str]:
    shown, middle = sorted(links.strongest(_MAX_LINKS)), (above + below) / 2
    outgoing, incoming, from_top, from_bottom = (defaultdict[int, float](float) for _ in range(4))
    for a, b, weight in shown:
        outgoing[a] += weight
        incoming[b] += weight
    for a, b, weight in shown:
        upper, lower = tops[a][1] * weight / max(outgoing[a], 1), bottoms[b][1] * weight / max(incoming[b], 1)
        x, z = tops[a][0] + from_top[a], bottoms[b][0] + from_bottom[b]
        from_top[a] += upper
        from_bottom[b] += lower
        yield (
            f'<path d="M{x:.1f} {above}C{x:.1f} {middle} {z:.1f} {middle} {z:.1f} {below}H{z + lower:.1f}'
            f'C{z + lower:.1f} {middle} {x + upper:.1f} {middle} {x + upper:.1f} {above}Z" class="ribbon" '
            f'fill="{palette.OKABE_ITO[a % 6]}" fill-opacity="{0.3 + 0.6 * min(weight, 1):.2f}"/>'
        )


def _word_spans(words: list[str]) -> list[_Span]:
    """Return (left, width) of words side by side."""
    widths = [max(text_width(word, 13), 18) for word in words]
    lefts = accumulate((width + _WORD_GAP for width in widths), initial=0.0)
    return list(zip(lefts, widths, strict=False))


def _end(spans: list[_Span]) -> float:
    return spans[-1][0] + spans[-1][1] if spans else 0.0


def cache_fragment(cache: CacheFigure) -> SvgFragment:
    """Draw steps from top to bottom, positions from left to right: reused ones grey, computed ones with a dot."""
    steps, positions = (shown_indices(len(side), _MAX_CACHE_SHOWN) for side in (cache.steps, cache.tokens))
    names = [sanitize.token_label(token) for token, *_ in cache_rows(cache)]
    labels = [ELLIPSIS if step is None else f"{step + 1} {names[step]}" for step in steps]
    tokens = [ELLIPSIS if position is None else sanitize.token_label(cache.tokens[position]) for position in positions]
    labels, tokens = ([truncate_to_width(label, 11, _CACHE_LABEL_WIDTH) for label in side] for side in (labels, tokens))
    left = max([text_width(label, 11) for label in labels], default=0) + 10
    top = 56 + max([text_width(label, 11) for label in tokens], default=0) * 0.75
    body = [
        text_at(0, 13, sanitize.one_line(cache.title), "name"),
        f'<rect x="{left + 1:.1f}" y="22" width="15" height="15" rx="2" class="computed"/>',
        f'<circle cx="{left + 8.5:.1f}" cy="29.5" r="2.5" class="dot"/>',
        text_at(left + 22, 34, "computed", "small"),
        f'<rect x="{left + 100:.1f}" y="22" width="15" height="15" rx="2" class="reused"/>',
        text_at(left + 121, 34, "reused from the cache", "small"),
    ]
    side = _CACHE_CELL
    body += [text_at(left + side * (x + 0.6), top - 6, label, "small", rotate=-48) for x, label in enumerate(tokens)]
    body += [text_at(left - 8, top + side * (y + 0.75), label, "small", "end") for y, label in enumerate(labels)]
    for y, step in enumerate(steps):
        for x, position in enumerate(positions):
            if step is not None and position is not None and position < sum(cache.steps[step]):
                cell_x, cell_y, is_reused = left + side * x, top + side * y, position < cache.steps[step][0]
                place = f'x="{cell_x + 1:.1f}" y="{cell_y + 1:.1f}" width="15" height="15" rx="2"'
                body.append(f'<rect {place} class="{"reused" if is_reused else "computed"}"/>')
                if not is_reused:
                    dot = f'cx="{cell_x + side / 2:.1f}" cy="{cell_y + side / 2:.1f}" r="2.5" class="dot"'
                    body.append(f"<circle {dot}/>")
    width = max(left + _CACHE_CELL * len(positions) + 70, left + 260, text_width(cache.title, 13) * BOLD_WIDTH_FACTOR)
    return SvgFragment(width, top + _CACHE_CELL * len(steps) + 6, "".join(body), ends_line=True)


def diagram_fragment(diagram: Diagram) -> SvgFragment:
    """Draw nested boxes, read upwards like figure 1 of the Transformer paper; columns are aligned at the bottom."""
    columns = [_stack_boxes([_box(block) for block in column]) for column in diagram.columns if column]
    height = max((column.height for column in columns), default=0.0)
    body, left = [text_at(0, 13, sanitize.one_line(diagram.title), "name")], 0.0
    for column in columns:
        body.append(column.at(left, _TITLE_HEIGHT + height - column.height))
        left += column.width + _COLUMN_GAP
    width = max(left - _COLUMN_GAP, text_width(sanitize.one_line(diagram.title), 13) * BOLD_WIDTH_FACTOR)
    return SvgFragment(width, _TITLE_HEIGHT + height, "".join(body), ends_line=True)


def _box(block: Node) -> SvgFragment:
    """Draw one box: text at the top, inner boxes below; repeated ones with a shadow."""
    boxes = [_box(child) for child in block.nodes] if any(child.nodes for child in block.nodes) else []
    lines, inner = _text_lines(block, has_boxes=bool(boxes)), _stack_boxes(boxes)
    factors = {"name": BOLD_WIDTH_FACTOR, "small": 0.9}
    inner_width = max(inner.width, *(text_width(text, 13) * factors[kind] for text, kind in lines))
    head = _PAD + _NODE_LINE_HEIGHT * len(lines)
    width, height = inner_width + 2 * _PAD, head + _PAD / 2 + (inner.height + _PAD if boxes else 0)
    offset = _SHADOW_OFFSET if block.repeat > 1 else 0.0
    body = [rect_at(shift, shift, width, height, "bare", 6) for shift in dict.fromkeys((offset, 0.0))]
    starts = enumerate(lines)
    body += [text_at(_PAD, _PAD + 9 + _NODE_LINE_HEIGHT * at, text, kind) for at, (text, kind) in starts]
    body.append(inner.at(_PAD + (inner_width - inner.width) / 2, head))
    return SvgFragment(width + offset, height + offset, "".join(body))


def _text_lines(block: Node, has_boxes: bool) -> list[tuple[str, str]]:
    """Return the text lines of a box: name, description, size, and its content if that is not drawn as boxes."""
    lines = [(block.times + sanitize.token_label(block.name), "name")]
    lines += [(sanitize.one_line(text), "small") for text in (block.description, block.note) if text]
    for inner in () if has_boxes else block.nodes:
        lines.append((f"· {sanitize.token_label(inner.name)}: {sanitize.one_line(inner.description)}", "small"))
    return [(truncate_to_width(text, 13, _MAX_TEXT_WIDTH), kind) for text, kind in lines]


def _stack_boxes(boxes: list[SvgFragment]) -> SvgFragment:
    """Stack boxes, the first at the bottom, with arrows between them."""
    width = max((box.width for box in boxes), default=0.0)
    body, top = [], 0.0
    for index, box in enumerate(reversed(boxes)):
        if index:
            tail, tip = top + _ARROW_GAP - 3, top + 4
            body.append(f'<path d="M{width / 2:.1f} {tail:.1f}V{tip:.1f}m-4 5l4 -5l4 5" class="arrow"/>')
            top += _ARROW_GAP
        body.append(box.at((width - box.width) / 2, top))
        top += box.height
    return SvgFragment(width, top, "".join(body))
