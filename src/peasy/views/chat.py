"""Chat conversation as a document."""

from collections.abc import Mapping, Sequence

from peasy.views.document import Document, DocumentPart, Heading, Paragraph


def chat_document(name: str, messages: Sequence[Mapping[str, str]], note: str) -> Document:
    """Document of all messages with their roles, in order."""
    parts: list[DocumentPart] = []
    for message in messages:
        parts += [Heading(message["role"]), Paragraph(message["content"])]
    return Document(f"Conversation with {name}", (*parts, Paragraph(note, "note")))
