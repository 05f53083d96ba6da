"""Architecture diagram of a model: its modules with description, parameter count and memory."""

from peasy.checkpoint.memory import show_bytes
from peasy.models.describe import Box
from peasy.views.document import Block, Diagram, Document, Paragraph


def model_document(box: Box, name: str | None = None) -> Document:
    """Document of `model.describe()`: a one-sentence summary and the architecture diagram."""
    size = f"{box.parameters:,} parameters, {show_bytes(box.bytes)} of memory."
    columns = _columns([_block(inner) for inner in box.boxes])
    title = name or box.name
    return Document(title, (Paragraph(box.says), Paragraph(size), Diagram("From input to output", columns)))


def in_short(count: int) -> str:
    """Return a count in short form.

    >>> in_short(124_439_808), in_short(1_536)
    ('124.4 M', '1,536')
    """
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**4, "K")):
        if count >= size:
            return f"{count / (1000 if letter == 'K' else size):.1f} {letter}"
    return f"{count:,}"


def _block(box: Box) -> Block:
    prefix = "each " if box.times > 1 else ""
    note = f"{prefix}{in_short(box.parameters)} · {show_bytes(box.bytes)}" if box.parameters else ""
    name = box.name.replace("_", " ").replace("feedforward", "feed-forward")
    return Block(name, box.says, note, tuple(map(_block, box.boxes)), box.times)


def _columns(blocks: list[Block]) -> tuple[tuple[Block, ...], ...]:
    """Return one column, or two for an encoder-decoder: encoder on the left, decoder on the right."""
    by_name = {block.name: block for block in blocks}
    if "encoder" not in by_name or "decoder" not in by_name:
        return (tuple(blocks),)
    encoder = [by_name["embedding"], by_name["encoder"]]
    decoder = [block for block in blocks if block not in encoder]
    if "target embedding" not in by_name:
        decoder.insert(0, Block("target embedding", "shared with the source"))
    return tuple(encoder), tuple(decoder)
