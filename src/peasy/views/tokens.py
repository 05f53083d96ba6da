"""A text as tokens, ready to be shown: each piece with its id, where it came from, and its word."""

from peasy.text.encoding import Encoding
from peasy.views.document import Cell, Document, Paragraph, Part, Table

_MOST_ROWS = 500


def tokens_document(encoding: Encoding, name: str, kind: str, vocabulary: int) -> Document:
    """The table of tokens; a long text is cut, and says so."""
    count, words = len(encoding), len(encoding.groups())
    parts: list[Part] = [
        Paragraph(f"{_many(count, 'token')} for {_many(words, 'word')}, {_many(len(encoding.text), 'character')}."),
        Table(
            ("place", "piece", "id", "characters", "word"),
            tuple(_row(encoding, place) for place in range(min(count, _MOST_ROWS))),
        ),
        Paragraph(f"Tokenizer of {name}: {kind}, {vocabulary:,} ids. · is a space, ⏎ a line end.", "note"),
    ]
    if count > _MOST_ROWS:
        left = f"Only the first {_MOST_ROWS} of {count:,} tokens are shown; --json has them all."
        parts.insert(2, Paragraph(left, "note"))
    return Document(_title(encoding.text), tuple(parts))


def _row(encoding: Encoding, place: int) -> tuple[Cell, ...]:
    start, end = encoding.offsets[place]
    word = encoding.words[place]
    # Ids and places are names here, not measures: as text they keep their look whatever the decimals.
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
