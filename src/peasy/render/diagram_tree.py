"""Text tree of a model diagram: one line per box."""

from collections.abc import Iterator

from peasy.render import glyph
from peasy.views.document import Block, Diagram


def tree_rows(diagram: Diagram) -> list[tuple[str, str, str]]:
    """Return a row for each box: tree branch with name, description, size."""
    return [row for column in diagram.columns for block in column for row in _rows(block, "", "")]


def _rows(block: Block, lead: str, below: str) -> Iterator[tuple[str, str, str]]:
    times = f"{block.times} × " if block.times > 1 else ""
    yield lead + times + glyph.label(block.name), glyph.prose(block.says), glyph.prose(block.note)
    for inner in block.blocks:
        last = inner is block.blocks[-1]
        yield from _rows(inner, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
