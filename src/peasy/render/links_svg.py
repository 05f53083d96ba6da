"""Words joined by lines as strong as their weight: a head's view in two columns, an alignment as ribbons."""

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
"""Words of one side; a longer text is shown as a map."""


def links_piece(links: Links) -> Piece:
    """Ribbons where they are asked for and fit beside each other, columns otherwise."""
    widest = max(_row_width(links.left), _row_width(links.right))
    return _ribbons(links) if links.ribbons and widest <= WIDEST else _columns(links)


def _columns(links: Links) -> Piece:
    left, right = ([fitted(glyph.label(w), 13, WORD_ROOM) for w in side[:MOST_WORDS]] for side in _sides(links))
    room = max([measure(word, 13) for word in left] + [measure(_axes(links)[0], 11)]) + 8
    body = [text_at(0, 13, fitted(glyph.prose(links.title), 13, WIDEST), "name")]
    body += [
        text_at(room - 8, 36, _axes(links)[0], "axis", "end"),
        text_at(room + MIDDLE + 8, 36, _axes(links)[1], "axis"),
    ]
    for words, x, anchor in ((left, room - 8, "end"), (right, room + MIDDLE + 8, "start")):
        body += [text_at(x, 58 + LINE * place, word, "label", anchor) for place, word in enumerate(words)]
    for a, b, weight in reversed(links.strongest(MOST_LINES)):
        if a < len(left) and b < len(right):
            strength = (
                f'stroke-opacity="{0.15 + 0.85 * min(weight, 1):.2f}" stroke-width="{0.8 + 4 * min(weight, 1):.1f}"'
            )
            body.append(f'<path d="{_bow(room, a, b)}" class="link" {strength}/>')
    body += [
        f'<path d="{_bow(room, a, b)}" class="known"/>' for a, b in links.known if a < len(left) and b < len(right)
    ]
    height = 48 + LINE * max(len(left), len(right), 1)
    width = room + MIDDLE + 16 + max([measure(word, 13) for word in right], default=0)
    left_out = max(len(links.left), len(links.right)) - MOST_WORDS
    if left_out > 0:
        body.append(text_at(0, height + 14, f"{left_out:,} more words are left out.", "small"))
        height += 20
    return Piece(Size(max(width, _title_width(links)), height), "".join(body), ends_line=True)


def _bow(room: float, a: int, b: int) -> str:
    y, z, middle = 53.5 + LINE * a, 53.5 + LINE * b, room + MIDDLE / 2
    return f"M{room:.1f} {y}C{middle:.1f} {y} {middle:.1f} {z} {room + MIDDLE:.1f} {z}"


def _ribbons(links: Links) -> Piece:
    """Each word below is a hundred per cent; its ribbons say from which words above they come."""
    tops, bottoms = (_laid_out(side) for side in _sides(links))
    body = [text_at(0, 13, fitted(glyph.prose(links.title), 13, WIDEST), "name")]
    above, below = 62, 62 + BAND
    body += [text_at(0, 36, _axes(links)[0], "axis"), text_at(0, below + 42, _axes(links)[1], "axis")]
    body += list(_bands(links, tops, bottoms, above + 4, below - 4))
    for a, b in links.known:
        x, z = tops[a][0] + tops[a][1] / 2, bottoms[b][0] + bottoms[b][1] / 2
        body.append(f'<path d="M{x:.1f} {above + 4}L{z:.1f} {below - 4}" class="known"/>')
    for places, y, words in ((tops, above - 6, links.left), (bottoms, below + 16, links.right)):
        for (x, width), word in zip(places, words, strict=True):
            body.append(text_at(x + width / 2, y, fitted(glyph.label(word), 13, WORD_ROOM), "label", "middle"))
    ends = [places[-1][0] + places[-1][1] for places in (tops, bottoms) if places]
    return Piece(Size(max([*ends, _title_width(links)]), below + 46), "".join(body), ends_line=True)


def _bands(
    links: Links, tops: list[tuple[float, float]], bottoms: list[tuple[float, float]], above: float, below: float
) -> Iterator[str]:
    shown = sorted(links.strongest(MOST_LINES))
    given: dict[int, float] = defaultdict(float)
    taken: dict[int, float] = defaultdict(float)
    for a, b, weight in shown:
        given[a] += weight
        taken[b] += weight
    from_top: dict[int, float] = defaultdict(float)
    from_bottom: dict[int, float] = defaultdict(float)
    for a, b, weight in shown:
        wide, thin = (tops[a][1] * weight / max(given[a], 1), bottoms[b][1] * weight / max(taken[b], 1))
        x, z = tops[a][0] + from_top[a], bottoms[b][0] + from_bottom[b]
        from_top[a] += wide
        from_bottom[b] += thin
        middle = (above + below) / 2
        yield (
            f'<path d="M{x:.1f} {above}C{x:.1f} {middle} {z:.1f} {middle} {z:.1f} {below}H{z + thin:.1f}'
            f'C{z + thin:.1f} {middle} {x + wide:.1f} {middle} {x + wide:.1f} {above}Z" class="ribbon" '
            f'fill="{palette.OKABE_ITO[a % 6]}" fill-opacity="{0.3 + 0.6 * min(weight, 1):.2f}"/>'
        )


def _laid_out(words: tuple[str, ...]) -> list[tuple[float, float]]:
    """(left, width) of words beside each other."""
    places, x = [], 0.0
    for word in words:
        width = max(measure(fitted(glyph.label(word), 13, WORD_ROOM), 13), 18)
        places.append((x, width))
        x += width + SPACE
    return places


def _row_width(words: tuple[str, ...]) -> float:
    places = _laid_out(words)
    return places[-1][0] + places[-1][1] if places else 0.0


def _title_width(links: Links) -> float:
    return min(measure(glyph.prose(links.title), 13) * BOLD, WIDEST)


def _axes(links: Links) -> tuple[str, str]:
    return glyph.prose(links.left_axis), glyph.prose(links.right_axis)


def _sides(links: Links) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return links.left, links.right
