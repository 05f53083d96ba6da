"""SVG of a model diagram: nested boxes, read upwards like figure 1 of the Transformer paper."""

from peasy.render import sanitize
from peasy.render.svg_layout import BOLD_WIDTH_FACTOR, SvgFragment, SvgSize, text_at, text_width, truncate_to_width
from peasy.views.document import Diagram, Node

PAD, ARROW_GAP, LINE_HEIGHT, COLUMN_GAP, MAX_TEXT_WIDTH = 10.0, 18.0, 17.0, 40.0, 460.0
TITLE_HEIGHT, SHADOW_OFFSET = 26.0, 5.0


def diagram_fragment(diagram: Diagram) -> SvgFragment:
    """Draw the columns side by side, aligned at the bottom."""
    columns = [_stack_boxes([_box(block) for block in column]) for column in diagram.columns if column]
    height = max((column.size.height for column in columns), default=0.0)
    body, left = [text_at(0, 13, sanitize.one_line(diagram.title), "name")], 0.0
    for column in columns:
        body.append(column.at(left, TITLE_HEIGHT + height - column.size.height))
        left += column.size.width + COLUMN_GAP
    width = max(left - COLUMN_GAP, text_width(sanitize.one_line(diagram.title), 13) * BOLD_WIDTH_FACTOR)
    return SvgFragment(SvgSize(width, TITLE_HEIGHT + height), "".join(body), ends_line=True)


def _box(block: Node) -> SvgFragment:
    """Draw one box: text at the top, inner boxes below."""
    boxes = [_box(child) for child in block.nodes] if any(child.nodes for child in block.nodes) else []
    lines, inner = _text_lines(block, has_boxes=bool(boxes)), _stack_boxes(boxes)
    width = max(
        inner.size.width,
        *(text_width(text, 13) * (BOLD_WIDTH_FACTOR if kind == "name" else 0.9) for text, kind in lines),
    )
    head = PAD + LINE_HEIGHT * len(lines)
    size = SvgSize(width + 2 * PAD, head + PAD / 2 + (inner.size.height + PAD if boxes else 0))
    body = [_frame(size, SHADOW_OFFSET), _frame(size, 0.0)] if block.repeat > 1 else [_frame(size, 0.0)]
    body += [text_at(PAD, PAD + 9 + LINE_HEIGHT * index, text, kind) for index, (text, kind) in enumerate(lines)]
    body.append(inner.at(PAD + (width - inner.size.width) / 2, head))
    offset = SHADOW_OFFSET if block.repeat > 1 else 0.0
    return SvgFragment(SvgSize(size.width + offset, size.height + offset), "".join(body))


def _text_lines(block: Node, has_boxes: bool) -> list[tuple[str, str]]:
    """Return the text lines of a box: name, description, size, and its content if that is not drawn as boxes."""
    times = f"{block.repeat} × " if block.repeat > 1 else ""
    lines = [(times + sanitize.token_label(block.name), "name")]
    lines += [(sanitize.one_line(text), "small") for text in (block.description, block.note) if text]
    if not has_boxes:
        lines += [
            (f"· {sanitize.token_label(inner.name)}: {sanitize.one_line(inner.description)}", "small")
            for inner in block.nodes
        ]
    return [(truncate_to_width(text, 13, MAX_TEXT_WIDTH), kind) for text, kind in lines]


def _stack_boxes(boxes: list[SvgFragment]) -> SvgFragment:
    """Stack boxes, the first at the bottom, with arrows between them."""
    width = max((box.size.width for box in boxes), default=0.0)
    body, top = [], 0.0
    for index, box in enumerate(reversed(boxes)):
        if index:
            middle = width / 2
            body.append(
                f'<path d="M{middle:.1f} {top + ARROW_GAP - 3:.1f}V{top + 4:.1f}m-4 5l4 -5l4 5" class="arrow"/>'
            )
            top += ARROW_GAP
        body.append(box.at((width - box.size.width) / 2, top))
        top += box.size.height
    return SvgFragment(SvgSize(width, top), "".join(body))


def _frame(size: SvgSize, offset: float) -> str:
    return (
        f'<rect x="{offset:.1f}" y="{offset:.1f}" width="{size.width:.1f}" height="{size.height:.1f}" rx="6" '
        'class="bare"/>'
    )
