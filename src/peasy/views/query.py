"""Top attention weights as a document: of one word, head by head, or the strongest links of each head."""

from dataclasses import dataclass

from peasy.inspection.results import WORD_MERGE_NOTE, AttentionRecord
from peasy.nn.module_path import ModulePath
from peasy.views.attention import next_token_parts, opening_notes, short_title
from peasy.views.document import Document, Paragraph, Table


@dataclass(frozen=True)
class HeadTopWords:
    """One head and the words with the largest attention weights: (word, weight), largest first."""

    path: ModulePath
    head: int
    top_words: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class WordAttention:
    """Attention of one query word in the selected heads."""

    model: str
    query: str
    heads: tuple[HeadTopWords, ...]
    interventions: tuple[str, ...] = ()
    value_weighted: bool = False


def word_attention_document(record: AttentionRecord, attention: WordAttention) -> Document:
    """Document with one line for each head, weights without the leading zero."""
    several = len({(line.path.stack, line.path.part) for line in attention.heads}) > 1
    rows = tuple(
        (_head_label(line, several), " ".join(_word_weight(*pair) for pair in line.top_words))
        for line in attention.heads
    )
    what = "weight x norm of the value" if attention.value_weighted else "weight"
    table = Table(("head", f'"{attention.query}" attends to ({what})'), rows)
    notes = Paragraph(WORD_MERGE_NOTE, "note"), Paragraph(record.caveat[:1].upper() + record.caveat[1:], "note")
    return Document(
        short_title(record.tokens.text, record.model), (*opening_notes(record.interventions), table, *notes)
    )


@dataclass(frozen=True)
class StrongestLinks:
    """Strongest attention links of the selected heads."""

    model: str
    heads: tuple[HeadTopWords, ...]
    interventions: tuple[str, ...] = ()
    value_weighted: bool = False


def strongest_links_document(record: AttentionRecord, links: StrongestLinks) -> Document:
    """Document with one line for each head, and the next-token candidates."""
    several = len({(line.path.stack, line.path.part) for line in links.heads}) > 1
    rows = tuple(
        (_head_label(line, several), "  ".join(_word_weight(*pair) for pair in line.top_words)) for line in links.heads
    )
    table = Table(("head", "strongest links, query→key"), rows)
    omitted = "Attention of a word to itself and to the first word is not listed."
    notes = (
        Paragraph(f"{omitted} {WORD_MERGE_NOTE}", "note"),
        Paragraph(record.caveat[:1].upper() + record.caveat[1:], "note"),
    )
    parts = (
        *opening_notes(record.interventions, record.notes, record.storage),
        table,
        *next_token_parts(record),
        *notes,
    )
    return Document(short_title(record.tokens.text, record.model), parts)


def _head_label(line: HeadTopWords, with_module: bool) -> str:
    where = f"{line.path.stack} {line.path.part} ".replace("_", "-") if with_module else ""
    return f"{where}{line.path.layer}.{line.head}"


def _word_weight(word: str, weight: float) -> str:
    return f"{word} {weight:.2f}".replace(" 0.", " .")
