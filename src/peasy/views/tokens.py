"""Tokenized text as a document: each piece with its id, character offsets and word."""

from peasy.text.encoding import Encoding
from peasy.views.document import Cell, Document, Paragraph, Part, Table

_MOST_ROWS = 500


def tokens_document(encoding: Encoding, name: str, kind: str, vocabulary: int) -> Document:
    """Document with the table of tokens, truncated with a note if the text is long."""
    count, words = len(encoding), len(encoding.groups())
    parts: list[Part] = [
        Paragraph(f"{_many(count, 'token')} for {_many(words, 'word')}, {_many(len(encoding.text), 'character')}."),
        Table(
            ("position", "piece", "id", "characters", "word"),
            tuple(_row(encoding, position) for position in range(min(count, _MOST_ROWS))),
        ),
        Paragraph(f"Tokenizer of {name}: {kind}, {vocabulary:,} ids. · is a space, ⏎ a newline.", "note"),
    ]
    if count > _MOST_ROWS:
        note = f"Only the first {_MOST_ROWS} of {count:,} tokens are shown; --json has them all."
        parts.insert(2, Paragraph(note, "note"))
    return Document(_title(encoding.text), tuple(parts))


def _row(encoding: Encoding, place: int) -> tuple[Cell, ...]:
    start, end = encoding.offsets[place]
    word = encoding.words[place]
    # As text, so that ids and positions are not formatted with decimals.
    return (
        str(place),
        encoding.pieces[place],
        str(encoding.ids[place]),
        f"{start}–{end}" if end > start else "",
        "" if word is None else str(word),
    )


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + "s" * (count != 1)
