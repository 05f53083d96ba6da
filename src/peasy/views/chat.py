"""A conversation, ready to be shown."""

from collections.abc import Mapping, Sequence

from peasy.views.document import Document, Heading, Paragraph, Part


def chat_document(name: str, messages: Sequence[Mapping[str, str]], note: str) -> Document:
    """Who said what, in order."""
    parts: list[Part] = []
    for message in messages:
        parts += [Heading(message["role"]), Paragraph(message["content"])]
    return Document(f"A conversation with {name}", (*parts, Paragraph(note, "note")))
