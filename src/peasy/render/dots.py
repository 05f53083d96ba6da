"""Scatter plot points: colour and shape per group, and labels that do not overlap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from peasy.render import palette, sanitize
from peasy.render.svg_layout import text_at, text_width, truncate_to_width

SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0", "M-4.5-4.5h9v9h-9z", "M0-6l6 10.5h-12z", "M0-6.5l6.5 6.5l-6.5 6.5l-6.5-6.5z",
    "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z", "M0 6l6-10.5h-12z",
)  # fmt: skip
"""Circle, square, triangle, diamond, cross, inverted triangle: groups differ in shape as well as colour."""

MAX_LABELS = 300


@dataclass(frozen=True)
class PlotPoint:
    """Point in SVG coordinates; `group` selects its colour and shape."""

    name: str
    label: str
    x: float
    y: float
    group: int

    def draw(self) -> Iterator[str]:
        """Yield the shape with its label as a tooltip."""
        yield (
            f'<path d="{SHAPES[self.group % 6]}" transform="translate({self.x:.1f} {self.y:.1f})" class="point" '
            f'fill="{palette.OKABE_ITO[self.group % 6]}"><title>{escape(self.label)}</title></path>'
        )


def label_points(points: Sequence[PlotPoint], left: float, right: float) -> Iterator[str]:
    """Yield a label beside each point, on a side that is free between `left` and `right`; none if no side is."""
    occupied = [(dot.x - 6, dot.y - 6, dot.x + 6, dot.y + 6) for dot in points]
    for dot in points[:MAX_LABELS]:
        text = truncate_to_width(dot.label, 12, 110)
        width = text_width(text, 12)
        for x, y in ((8, 4), (-8 - width, 4), (-width / 2, -10), (-width / 2, 18)):
            box = (dot.x + x, dot.y + y - 10, dot.x + x + width, dot.y + y + 3)
            if left < box[0] and box[2] < right and not any(_overlap(box, other) for other in occupied):
                occupied.append(box)
                yield text_at(dot.x + x, dot.y + y, text, "label")
                break


def group_legend(groups: Sequence[str], left: float, top: float) -> Iterator[str]:
    """Yield the legend of shapes and colours."""
    for index, group in enumerate(groups):
        y = top + 20 * index
        yield (
            f'<path d="{SHAPES[index % 6]}" transform="translate({left:.1f} {y:.1f})" '
            f'fill="{palette.OKABE_ITO[index % 6]}"/>'
        )
        yield text_at(left + 12, y + 4.5, truncate_to_width(sanitize.token_label(group), 12, 110), "label")


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
