"""SVG of weighted links between words: attention of a head in two columns, or an alignment as ribbons."""

from collections import defaultdict
from collections.abc import Iterator

from peasy.render import glyph, palette
from peasy.render.draft import BOLD, Piece, Size, fitted, measure, text_at
from peasy.views.document import Links

MOST_LINES = 1_500
WIDEST = 940
LINE, MIDDLE, WORD_ROOM = 24, 190, 150
SPACE, BAND = 14, 120
MOST_WORDS = 200
"""Maximum number of words on one side."""


def links_piece(links: Links) -> Piece:
    """Draw ribbons if requested and if they fit, else two columns."""
    widest = max(_row_width(links.left), _row_width(links.right))
    return _ribbons(links) if links.ribbons and widest <= WIDEST else _columns(links)


def _columns(links: Links) -> Piece:
    left, right = ([fitted(glyph.label(w), 13, WORD_ROOM) for w in side[:MOST_WORDS]] for side in _sides(links))
    left_width = max([measure(word, 13) for word in left] + [measure(_axes(links)[0], 11)]) + 8
    body = [text_at(0, 13, fitted(glyph.prose(links.title), 13, WIDEST), "name")]
    body += [
        text_at(left_width - 8, 36, _axes(links)[0], "axis", "end"),
        text_at(left_width + MIDDLE + 8, 36, _axes(links)[1], "axis"),
    ]
    for words, x, anchor in ((left, left_width - 8, "end"), (right, left_width + MIDDLE + 8, "start")):
        body += [text_at(x, 58 + LINE * index, word, "label", anchor) for index, word in enumerate(words)]
    for a, b, weight in reversed(links.strongest(MOST_LINES)):
        if a < len(left) and b < len(right):
            strength = (
                f'stroke-opacity="{0.15 + 0.85 * min(weight, 1):.2f}" stroke-width="{0.8 + 4 * min(weight, 1):.1f}"'
            )
            body.append(f'<path d="{_bow(left_width, a, b)}" class="link" {strength}/>')
    body += [
        f'<path d="{_bow(left_width, a, b)}" class="known"/>'
        for a, b in links.known
        if a < len(left) and b < len(right)
    ]
    height = 48 + LINE * max(len(left), len(right), 1)
    width = left_width + MIDDLE + 16 + max([measure(word, 13) for word in right], default=0)
    omitted = max(len(links.left), len(links.right)) - MOST_WORDS
    if omitted > 0:
        body.append(text_at(0, height + 14, f"{omitted:,} more words are left out.", "small"))
        height += 20
    return Piece(Size(max(width, _title_width(links)), height), "".join(body), ends_line=True)


def _bow(room: float, a: int, b: int) -> str:
    y, z, middle = 53.5 + LINE * a, 53.5 + LINE * b, room + MIDDLE / 2
    return f"M{room:.1f} {y}C{middle:.1f} {y} {middle:.1f} {z} {room + MIDDLE:.1f} {z}"


def _ribbons(links: Links) -> Piece:
    """Draw an alignment: the ribbons of each word below show which words above it comes from."""
    tops, bottoms = (_laid_out(side) for side in _sides(links))
    body = [text_at(0, 13, fitted(glyph.prose(links.title), 13, WIDEST), "name")]
    above, below = 62, 62 + BAND
    body += [text_at(0, 36, _axes(links)[0], "axis"), text_at(0, below + 42, _axes(links)[1], "axis")]
    body += list(_bands(links, tops, bottoms, above + 4, below - 4))
    for a, b in links.known:
        x, z = tops[a][0] + tops[a][1] / 2, bottoms[b][0] + bottoms[b][1] / 2
        body.append(f'<path d="M{x:.1f} {above + 4}L{z:.1f} {below - 4}" class="known"/>')
    for spans, y, words in ((tops, above - 6, links.left), (bottoms, below + 16, links.right)):
        for (x, width), word in zip(spans, words, strict=True):
            body.append(text_at(x + width / 2, y, fitted(glyph.label(word), 13, WORD_ROOM), "label", "middle"))
    ends = [spans[-1][0] + spans[-1][1] for spans in (tops, bottoms) if spans]
    return Piece(Size(max([*ends, _title_width(links)]), below + 46), "".join(body), ends_line=True)


def _bands(
    links: Links, tops: list[tuple[float, float]], bottoms: list[tuple[float, float]], above: float, below: float
) -> Iterator[str]:
    links_shown = sorted(links.strongest(MOST_LINES))
    outgoing: dict[int, float] = defaultdict(float)
    incoming: dict[int, float] = defaultdict(float)
    for a, b, weight in links_shown:
        outgoing[a] += weight
        incoming[b] += weight
    from_top: dict[int, float] = defaultdict(float)
    from_bottom: dict[int, float] = defaultdict(float)
    for a, b, weight in links_shown:
        upper, lower = (
            tops[a][1] * weight / max(outgoing[a], 1),
            bottoms[b][1] * weight / max(incoming[b], 1),
        )
        x, z = tops[a][0] + from_top[a], bottoms[b][0] + from_bottom[b]
        from_top[a] += upper
        from_bottom[b] += lower
        middle = (above + below) / 2
        yield (
            f'<path d="M{x:.1f} {above}C{x:.1f} {middle} {z:.1f} {middle} {z:.1f} {below}H{z + lower:.1f}'
            f'C{z + lower:.1f} {middle} {x + upper:.1f} {middle} {x + upper:.1f} {above}Z" class="ribbon" '
            f'fill="{palette.OKABE_ITO[a % 6]}" fill-opacity="{0.3 + 0.6 * min(weight, 1):.2f}"/>'
        )


def _laid_out(words: tuple[str, ...]) -> list[tuple[float, float]]:
    """Return (left, width) of words side by side."""
    spans, x = [], 0.0
    for word in words:
        width = max(measure(fitted(glyph.label(word), 13, WORD_ROOM), 13), 18)
        spans.append((x, width))
        x += width + SPACE
    return spans


def _row_width(words: tuple[str, ...]) -> float:
    spans = _laid_out(words)
    return spans[-1][0] + spans[-1][1] if spans else 0.0


def _title_width(links: Links) -> float:
    return min(measure(glyph.prose(links.title), 13) * BOLD, WIDEST)


def _axes(links: Links) -> tuple[str, str]:
    return glyph.prose(links.left_axis), glyph.prose(links.right_axis)


def _sides(links: Links) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return links.left, links.right
