"""Tokenized text as a document: each piece with its id, character offsets and word."""

from peasy.tokenization.encoding import Encoding
from peasy.views.document import Cell, Document, DocumentPart, Paragraph, Table

_MAX_ROWS = 500


def tokens_document(encoding: Encoding, name: str, kind: str, vocab_size: int) -> Document:
    """Document with the table of tokens, truncated with a note if the text is long."""
    count, words = len(encoding), len(encoding.word_groups())
    parts: list[DocumentPart] = [
        Paragraph(
            f"{_pluralize(count, 'token')} for {_pluralize(words, 'word')}, "
            f"{_pluralize(len(encoding.text), 'character')}."
        ),
        Table(
            ("position", "piece", "id", "characters", "word"),
            tuple(_row(encoding, position) for position in range(min(count, _MAX_ROWS))),
        ),
        Paragraph(f"Tokenizer of {name}: {kind}, {vocab_size:,} ids. · is a space, ⏎ a newline.", "note"),
    ]
    if count > _MAX_ROWS:
        note = f"Only the first {_MAX_ROWS} of {count:,} tokens are shown; --json has them all."
        parts.insert(2, Paragraph(note, "note"))
    return Document(_title(encoding.text), tuple(parts))


def _row(encoding: Encoding, position: int) -> tuple[Cell, ...]:
    start, end = encoding.offsets[position]
    word = encoding.word_ids[position]
    # As text, so that ids and positions are not formatted with decimals.
    return (
        str(position),
        encoding.pieces[position],
        str(encoding.ids[position]),
        f"{start}–{end}" if end > start else "",
        "" if word is None else str(word),
    )


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."


def _pluralize(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)
