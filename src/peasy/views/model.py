"""A model as figure 1: its boxes with what they do, their parameters and their memory."""

from peasy.checkpoint.memory import show_bytes
from peasy.models.describe import Box
from peasy.views.document import Block, Diagram, Document, Paragraph


def model_document(box: Box, name: str | None = None) -> Document:
    """The document of `model.describe()`: what it is in one sentence, then the figure."""
    size = f"{box.parameters:,} parameters, {show_bytes(box.bytes)} of memory."
    columns = _columns([_block(each) for each in box.boxes])
    title = name or box.name
    return Document(title, (Paragraph(box.says), Paragraph(size), Diagram("From input to output", columns)))


def in_short(count: int) -> str:
    """A large number as people say it.

    >>> in_short(124_439_808), in_short(1_536)
    ('124.4 M', '1,536')
    """
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**4, "K")):
        if count >= size:
            return f"{count / (1000 if letter == 'K' else size):.1f} {letter}"
    return f"{count:,}"


def _block(box: Box) -> Block:
    one = "each " if box.times > 1 else ""
    note = f"{one}{in_short(box.parameters)} · {show_bytes(box.bytes)}" if box.parameters else ""
    name = box.name.replace("_", " ").replace("feedforward", "feed-forward")
    return Block(name, box.says, note, tuple(map(_block, box.boxes)), box.times)


def _columns(blocks: list[Block]) -> tuple[tuple[Block, ...], ...]:
    """One column; two where an encoder is looked at by a decoder: reading on the left, writing on the right."""
    named = {block.name: block for block in blocks}
    if "encoder" not in named or "decoder" not in named:
        return (tuple(blocks),)
    reading = [named["embedding"], named["encoder"]]
    writing = [block for block in blocks if block not in reading]
    if "target embedding" not in named:
        writing.insert(0, Block("target embedding", "the same vectors as the source's"))
    return tuple(reading), tuple(writing)
