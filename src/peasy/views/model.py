"""Architecture diagram of a model: its modules with description, parameter count and memory."""

from peasy.checkpoint.ram import format_bytes
from peasy.models.describe import Box
from peasy.views.document import Diagram, Document, Node, Paragraph


def model_document(box: Box, name: str | None = None) -> Document:
    """Document of `model.describe()`: a one-sentence summary and the architecture diagram."""
    size = f"{box.parameters:,} parameters, {format_bytes(box.bytes)} of memory."
    columns = _columns([_node(inner) for inner in box.boxes])
    title = name or box.name
    return Document(title, (Paragraph(box.description), Paragraph(size), Diagram("From input to output", columns)))


def _short_count(count: int) -> str:
    """Return a count in short form.

    >>> _short_count(124_439_808), _short_count(1_536)
    ('124.4 M', '1,536')
    """
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**4, "K")):
        if count >= size:
            return f"{count / (1000 if letter == 'K' else size):.1f} {letter}"
    return f"{count:,}"


def _node(box: Box) -> Node:
    prefix = "each " if box.repeats > 1 else ""
    note = f"{prefix}{_short_count(box.parameters)} · {format_bytes(box.bytes)}" if box.parameters else ""
    name = box.name.replace("_", " ").replace("feedforward", "feed-forward")
    return Node(name, box.description, note, tuple(map(_node, box.boxes)), box.repeats)


def _columns(nodes: list[Node]) -> tuple[tuple[Node, ...], ...]:
    """Return one column, or two for an encoder-decoder: encoder on the left, decoder on the right."""
    by_name = {block.name: block for block in nodes}
    if "encoder" not in by_name or "decoder" not in by_name:
        return (tuple(nodes),)
    encoder = [by_name["embedding"], by_name["encoder"]]
    decoder = [block for block in nodes if block not in encoder]
    if "target embedding" not in by_name:
        decoder.insert(0, Node("target embedding", "shared with the source"))
    return tuple(encoder), tuple(decoder)
