"""SVG of weighted links between words: attention of a head in two columns, or an alignment as ribbons."""

from collections import defaultdict
from collections.abc import Iterator

from peasy.render import palette, sanitize
from peasy.render.svg_layout import BOLD_WIDTH_FACTOR, SvgFragment, SvgSize, text_at, text_width, truncate_to_width
from peasy.views.document import Links

MAX_LINKS = 1_500
MAX_WIDTH = 940
LINE_HEIGHT, LINK_WIDTH, MAX_WORD_WIDTH = 24, 190, 150
WORD_GAP, RIBBON_HEIGHT = 14, 120
MAX_WORDS = 200
"""Maximum number of words on one side."""


def links_fragment(links: Links) -> SvgFragment:
    """Draw ribbons if requested and if they fit, else two columns."""
    widest = max(_row_width(links.left), _row_width(links.right))
    return _ribbons(links) if links.ribbons and widest <= MAX_WIDTH else _columns(links)


def _columns(links: Links) -> SvgFragment:
    left, right = (
        [truncate_to_width(sanitize.token_label(w), 13, MAX_WORD_WIDTH) for w in side[:MAX_WORDS]]
        for side in _sides(links)
    )
    left_width = max([text_width(word, 13) for word in left] + [text_width(_axes(links)[0], 11)]) + 8
    body = [text_at(0, 13, truncate_to_width(sanitize.one_line(links.title), 13, MAX_WIDTH), "name")]
    body += [
        text_at(left_width - 8, 36, _axes(links)[0], "axis", "end"),
        text_at(left_width + LINK_WIDTH + 8, 36, _axes(links)[1], "axis"),
    ]
    for words, x, anchor in ((left, left_width - 8, "end"), (right, left_width + LINK_WIDTH + 8, "start")):
        body += [text_at(x, 58 + LINE_HEIGHT * index, word, "label", anchor) for index, word in enumerate(words)]
    for a, b, weight in reversed(links.strongest(MAX_LINKS)):
        if a < len(left) and b < len(right):
            strength = (
                f'stroke-opacity="{0.15 + 0.85 * min(weight, 1):.2f}" stroke-width="{0.8 + 4 * min(weight, 1):.1f}"'
            )
            body.append(f'<path d="{_link_path(left_width, a, b)}" class="link" {strength}/>')
    body += [
        f'<path d="{_link_path(left_width, a, b)}" class="known"/>'
        for a, b in links.gold
        if a < len(left) and b < len(right)
    ]
    height = 48 + LINE_HEIGHT * max(len(left), len(right), 1)
    width = left_width + LINK_WIDTH + 16 + max([text_width(word, 13) for word in right], default=0)
    omitted = max(len(links.left), len(links.right)) - MAX_WORDS
    if omitted > 0:
        body.append(text_at(0, height + 14, f"{omitted:,} more words are left out.", "small"))
        height += 20
    return SvgFragment(SvgSize(max(width, _title_width(links)), height), "".join(body), ends_line=True)


def _link_path(left_width: float, a: int, b: int) -> str:
    y, z, middle = 53.5 + LINE_HEIGHT * a, 53.5 + LINE_HEIGHT * b, left_width + LINK_WIDTH / 2
    return f"M{left_width:.1f} {y}C{middle:.1f} {y} {middle:.1f} {z} {left_width + LINK_WIDTH:.1f} {z}"


def _ribbons(links: Links) -> SvgFragment:
    """Draw an alignment: the ribbons of each word below show which words above it comes from."""
    tops, bottoms = (_word_spans(side) for side in _sides(links))
    body = [text_at(0, 13, truncate_to_width(sanitize.one_line(links.title), 13, MAX_WIDTH), "name")]
    above, below = 62, 62 + RIBBON_HEIGHT
    body += [text_at(0, 36, _axes(links)[0], "axis"), text_at(0, below + 42, _axes(links)[1], "axis")]
    body += list(_ribbon_paths(links, tops, bottoms, above + 4, below - 4))
    for a, b in links.gold:
        x, z = tops[a][0] + tops[a][1] / 2, bottoms[b][0] + bottoms[b][1] / 2
        body.append(f'<path d="M{x:.1f} {above + 4}L{z:.1f} {below - 4}" class="known"/>')
    for spans, y, words in ((tops, above - 6, links.left), (bottoms, below + 16, links.right)):
        for (x, width), word in zip(spans, words, strict=True):
            body.append(
                text_at(
                    x + width / 2,
                    y,
                    truncate_to_width(sanitize.token_label(word), 13, MAX_WORD_WIDTH),
                    "label",
                    "middle",
                )
            )
    ends = [spans[-1][0] + spans[-1][1] for spans in (tops, bottoms) if spans]
    return SvgFragment(SvgSize(max([*ends, _title_width(links)]), below + 46), "".join(body), ends_line=True)


def _ribbon_paths(
    links: Links, tops: list[tuple[float, float]], bottoms: list[tuple[float, float]], above: float, below: float
) -> Iterator[str]:
    links_shown = sorted(links.strongest(MAX_LINKS))
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


def _word_spans(words: tuple[str, ...]) -> list[tuple[float, float]]:
    """Return (left, width) of words side by side."""
    spans, x = [], 0.0
    for word in words:
        width = max(text_width(truncate_to_width(sanitize.token_label(word), 13, MAX_WORD_WIDTH), 13), 18)
        spans.append((x, width))
        x += width + WORD_GAP
    return spans


def _row_width(words: tuple[str, ...]) -> float:
    spans = _word_spans(words)
    return spans[-1][0] + spans[-1][1] if spans else 0.0


def _title_width(links: Links) -> float:
    return min(text_width(sanitize.one_line(links.title), 13) * BOLD_WIDTH_FACTOR, MAX_WIDTH)


def _axes(links: Links) -> tuple[str, str]:
    return sanitize.one_line(links.left_axis), sanitize.one_line(links.right_axis)


def _sides(links: Links) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return links.left, links.right
