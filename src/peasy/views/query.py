"""Attention of one word, head by head, as text: "it": pizza .71 oven .12."""

from dataclasses import dataclass

from peasy.looking.record import MERGED, Look
from peasy.nn.place import Place
from peasy.views.attention import candidates_parts, opening, short_title
from peasy.views.document import Document, Paragraph, Table


@dataclass(frozen=True)
class HeadLine:
    """One head and the words with the largest attention weights: (word, weight), largest first."""

    place: Place
    head: int
    looked: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class QueryLook:
    """Attention of one query word in the selected heads."""

    model: str
    query: str
    heads: tuple[HeadLine, ...]
    edits: tuple[str, ...] = ()
    scaled: bool = False


def query_document(look: Look, found: QueryLook) -> Document:
    """Document with one line for each head, weights without the leading zero."""
    several = len({(line.place.stack, line.place.part) for line in found.heads}) > 1
    rows = tuple((_head(line, several), " ".join(_said(*pair) for pair in line.looked)) for line in found.heads)
    what = "weight x norm of the value" if found.scaled else "weight"
    table = Table(("head", f'"{found.query}" attends to ({what})'), rows)
    notes = Paragraph(MERGED, "note"), Paragraph(look.caveat[:1].upper() + look.caveat[1:], "note")
    return Document(short_title(look.tokens.text, look.model), (*opening(look.edits), table, *notes))


@dataclass(frozen=True)
class BriefLook:
    """Strongest attention links of the selected heads."""

    model: str
    heads: tuple[HeadLine, ...]
    edits: tuple[str, ...] = ()
    scaled: bool = False


def brief_document(look: Look, found: BriefLook) -> Document:
    """Document with one line for each head, and the next-token candidates."""
    several = len({(line.place.stack, line.place.part) for line in found.heads}) > 1
    rows = tuple((_head(line, several), "  ".join(_said(*pair) for pair in line.looked)) for line in found.heads)
    table = Table(("head", "strongest links, query→key"), rows)
    omitted = "Attention of a word to itself and to the first word is not listed."
    notes = Paragraph(f"{omitted} {MERGED}", "note"), Paragraph(look.caveat[:1].upper() + look.caveat[1:], "note")
    parts = (*opening(look.edits, look.notes, look.storage), table, *candidates_parts(look), *notes)
    return Document(short_title(look.tokens.text, look.model), parts)


def _head(line: HeadLine, several: bool) -> str:
    where = f"{line.place.stack} {line.place.part} ".replace("_", "-") if several else ""
    return f"{where}{line.place.layer}.{line.head}"


def _said(word: str, weight: float) -> str:
    return f"{word} {weight:.2f}".replace(" 0.", " .")
