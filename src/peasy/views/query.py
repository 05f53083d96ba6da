"""What one word looked at, head by head, in words: "it": pizza .71 oven .12."""

from dataclasses import dataclass

from peasy.looking.record import MERGED, Look
from peasy.nn.place import Place
from peasy.views.attention import candidates_parts, opening, short_title
from peasy.views.document import Document, Paragraph, Table


@dataclass(frozen=True)
class HeadLine:
    """One head, and the words that the query looked at most: (word, weight), largest first."""

    place: Place
    head: int
    looked: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class QueryLook:
    """What one word looked at, in every head that was asked for."""

    model: str
    query: str
    heads: tuple[HeadLine, ...]
    edits: tuple[str, ...] = ()
    scaled: bool = False


def query_document(look: Look, found: QueryLook) -> Document:
    """A line for each head; weights short, as people write them beside words."""
    several = len({(line.place.stack, line.place.part) for line in found.heads}) > 1
    rows = tuple((_head(line, several), " ".join(_said(*pair) for pair in line.looked)) for line in found.heads)
    what = "weight x size of the value" if found.scaled else "weight"
    table = Table(("head", f'"{found.query}" looks at ({what})'), rows)
    notes = Paragraph(MERGED, "note"), Paragraph(look.caveat[:1].upper() + look.caveat[1:], "note")
    return Document(short_title(look.tokens.text, look.model), (*opening(look.edits), table, *notes))


@dataclass(frozen=True)
class BriefLook:
    """The strongest links of every head that was asked for."""

    model: str
    heads: tuple[HeadLine, ...]
    edits: tuple[str, ...] = ()
    scaled: bool = False


def brief_document(look: Look, found: BriefLook) -> Document:
    """A line for each head, and what would come next."""
    several = len({(line.place.stack, line.place.part) for line in found.heads}) > 1
    rows = tuple((_head(line, several), "  ".join(_said(*pair) for pair in line.looked)) for line in found.heads)
    table = Table(("head", "strongest links, query→key"), rows)
    left = "Links to the word itself and to the first word are left out."
    notes = Paragraph(f"{left} {MERGED}", "note"), Paragraph(look.caveat[:1].upper() + look.caveat[1:], "note")
    parts = (*opening(look.edits, look.notes, look.storage), table, *candidates_parts(look), *notes)
    return Document(short_title(look.tokens.text, look.model), parts)


def _head(line: HeadLine, several: bool) -> str:
    where = f"{line.place.stack} {line.place.part} ".replace("_", "-") if several else ""
    return f"{where}{line.place.layer}.{line.head}"


def _said(word: str, weight: float) -> str:
    return f"{word} {weight:.2f}".replace(" 0.", " .")
