"""SVG of a model diagram: nested boxes, read upwards like figure 1 of the Transformer paper."""

from peasy.render import glyph
from peasy.render.draft import BOLD, Piece, Size, fitted, measure, text_at
from peasy.views.document import Block, Diagram

PAD, GAP, LINE, BETWEEN, WIDEST = 10.0, 18.0, 17.0, 40.0, 460.0
TITLE, BEHIND = 26.0, 5.0


def diagram_piece(diagram: Diagram) -> Piece:
    """Draw the columns side by side, aligned at the bottom."""
    columns = [_pile([_box(block) for block in column]) for column in diagram.columns if column]
    height = max((column.size.height for column in columns), default=0.0)
    body, left = [text_at(0, 13, glyph.prose(diagram.title), "name")], 0.0
    for column in columns:
        body.append(column.at(left, TITLE + height - column.size.height))
        left += column.size.width + BETWEEN
    width = max(left - BETWEEN, measure(glyph.prose(diagram.title), 13) * BOLD)
    return Piece(Size(width, TITLE + height), "".join(body), ends_line=True)


def _box(block: Block) -> Piece:
    """Draw one box: text at the top, inner boxes below."""
    boxes = [_box(child) for child in block.blocks] if any(child.blocks for child in block.blocks) else []
    lines, inner = _words(block, boxed=bool(boxes)), _pile(boxes)
    width = max(inner.size.width, *(measure(text, 13) * (BOLD if kind == "name" else 0.9) for text, kind in lines))
    head = PAD + LINE * len(lines)
    size = Size(width + 2 * PAD, head + PAD / 2 + (inner.size.height + PAD if boxes else 0))
    body = [_frame(size, BEHIND), _frame(size, 0.0)] if block.times > 1 else [_frame(size, 0.0)]
    body += [text_at(PAD, PAD + 9 + LINE * index, text, kind) for index, (text, kind) in enumerate(lines)]
    body.append(inner.at(PAD + (width - inner.size.width) / 2, head))
    offset = BEHIND if block.times > 1 else 0.0
    return Piece(Size(size.width + offset, size.height + offset), "".join(body))


def _words(block: Block, boxed: bool) -> list[tuple[str, str]]:
    """Return the text lines of a box: name, description, size, and its content if that is not drawn as boxes."""
    times = f"{block.times} × " if block.times > 1 else ""
    lines = [(times + glyph.label(block.name), "name")]
    lines += [(glyph.prose(text), "small") for text in (block.says, block.note) if text]
    if not boxed:
        lines += [(f"· {glyph.label(inner.name)}: {glyph.prose(inner.says)}", "small") for inner in block.blocks]
    return [(fitted(text, 13, WIDEST), kind) for text, kind in lines]


def _pile(boxes: list[Piece]) -> Piece:
    """Stack boxes, the first at the bottom, with arrows between them."""
    width = max((box.size.width for box in boxes), default=0.0)
    body, top = [], 0.0
    for index, box in enumerate(reversed(boxes)):
        if index:
            middle = width / 2
            body.append(f'<path d="M{middle:.1f} {top + GAP - 3:.1f}V{top + 4:.1f}m-4 5l4 -5l4 5" class="arrow"/>')
            top += GAP
        body.append(box.at((width - box.size.width) / 2, top))
        top += box.size.height
    return Piece(Size(width, top), "".join(body))


def _frame(size: Size, shift: float) -> str:
    return (
        f'<rect x="{shift:.1f}" y="{shift:.1f}" width="{size.width:.1f}" height="{size.height:.1f}" rx="6" '
        'class="bare"/>'
    )
