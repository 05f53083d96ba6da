"""Text tree of a model diagram: one line per box."""

from collections.abc import Iterator

from peasy.render import sanitize
from peasy.views.document import Diagram, Node


def tree_rows(diagram: Diagram) -> list[tuple[str, str, str]]:
    """Return a row for each box: tree branch with name, description, size."""
    return [row for column in diagram.columns for block in column for row in _rows(block, "", "")]


def _rows(block: Node, lead: str, below: str) -> Iterator[tuple[str, str, str]]:
    times = f"{block.repeat} × " if block.repeat > 1 else ""
    yield (
        lead + times + sanitize.token_label(block.name),
        sanitize.one_line(block.description),
        sanitize.one_line(block.note),
    )
    for inner in block.nodes:
        last = inner is block.nodes[-1]
        yield from _rows(inner, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
