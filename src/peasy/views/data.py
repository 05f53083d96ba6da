"""Datasets and tokenized text as documents: the list of datasets, the card of one, and the tokens of a text."""

from collections.abc import Iterator

from peasy.datasets.catalogue import BuiltInCorpus
from peasy.datasets.corpus import DataProblems, DatasetCard, LabelledText, Sample, TextPair
from peasy.tokenization.encoding import Encoding
from peasy.views.document import Cell, Document, DocumentPart, Heading, Paragraph, Table, pluralize, short_title

_MAX_EXAMPLE_LENGTH = 160
_OWN_DATA_NOTE = (
    "Your own data: a .txt, .jsonl, .tsv or .parquet file, a folder, or two line-aligned files: peasy data PATH"
)
_MAX_TOKENS = 500


def datasets_document(built_in: tuple[BuiltInCorpus, ...]) -> Document:
    """Document with one row for each built-in dataset (no download needed)."""
    rows = tuple((dataset.name, dataset.kind, dataset.description, dataset.usage) for dataset in built_in)
    return Document("Data", (Table(("name", "kind", "description", "usage"), rows), Paragraph(_OWN_DATA_NOTE, "note")))


def dataset_card_document(card: DatasetCard, problems: DataProblems) -> Document:
    """Document of one dataset card."""
    sizes = ((split, f"{size.documents:,}", f"{size.characters:,}") for split, size in card.sizes.items())
    settings = (f"{name}={'null' if value is None else value}" for name, value in card.suggested_settings.items())
    facts = {"kind": card.kind, "licence": card.licence, **card.notes, "suggested settings": ", ".join(settings)}
    facts = {name: value for name, value in facts.items() if value or name != "suggested settings"}
    parts = (
        Paragraph(f"{card.description[:1].upper()}{card.description[1:]}."),
        *(_problems(problems) if problems else ()),
        Table(("split", "documents", "characters"), tuple(sizes)),
        Heading("Examples"),
        _examples(card),
        Heading("About"),
        Table(("field", "value"), (*facts.items(), ("hash", card.hash[:16]))),
    )
    return Document(card.name, parts)


def _problems(problems: DataProblems) -> Iterator[DocumentPart]:
    count = problems.count
    yield Paragraph(f"{count:,} invalid {'row is' if count == 1 else 'rows are'} left out.", "bad")
    yield Table(("line", "problem"), tuple(problems.listed))
    if count > len(problems.listed):
        yield Paragraph(f"The first {len(problems.listed)} of {count:,}.", "note")
        yield Table(("problem", "rows"), tuple((problem, f"{n:,}") for problem, n in problems.reasons.most_common(10)))


def _examples(card: DatasetCard) -> Table:
    rows = tuple(_example(sample) for sample in card.examples)
    names = {"pairs": ("source", "target", "category"), "labelled": ("text", "label")}.get(card.kind, ("text",))
    if card.kind == "pairs" and not any(row[2] for row in rows):
        names = names[:2]
    return Table(names, tuple(row[: len(names)] for row in rows))


def _example(sample: Sample) -> tuple[Cell, ...]:
    if isinstance(sample, TextPair):
        return _truncate(sample.source), _truncate(sample.target), sample.category
    if isinstance(sample, LabelledText):
        return _truncate(sample.text), _truncate(sample.label)
    return (_truncate(str(sample)),)


def _truncate(text: str) -> str:
    """Return the text on one line, with visible line ends, truncated."""
    line = text[: 2 * _MAX_EXAMPLE_LENGTH].strip().replace("\n", " ⏎ ")
    fits = len(line) <= _MAX_EXAMPLE_LENGTH and len(text) <= 2 * _MAX_EXAMPLE_LENGTH
    return line if fits else f"{line[: _MAX_EXAMPLE_LENGTH - 1].rstrip()}…"


def tokens_document(encoding: Encoding, name: str, kind: str, vocab_size: int) -> Document:
    """Document with the table of tokens, truncated with a note if the text is long."""
    count, words, length = len(encoding), len(encoding.word_groups()), pluralize(len(encoding.text), "character")
    rows = []
    for position, (start, end) in enumerate(encoding.offsets[:_MAX_TOKENS]):
        # As text, so that ids and positions are not formatted with decimals.
        token_id, word = str(encoding.ids[position]), encoding.word_ids[position]
        characters = f"{start}–{end}" if end > start else ""
        rows.append((str(position), encoding.pieces[position], token_id, characters, "" if word is None else str(word)))
    size = Paragraph(f"{pluralize(count, 'token')} for {pluralize(words, 'word')}, {length}.")
    table = Table(("position", "piece", "id", "characters", "word"), tuple(rows))
    cut = f"Only the first {_MAX_TOKENS} of {count:,} tokens are shown; --json has them all."
    about = f"Tokenizer of {name}: {kind}, {vocab_size:,} ids. · is a space, ⏎ a newline."
    notes = (Paragraph(note, "note") for note in ([cut] if count > _MAX_TOKENS else []) + [about])
    return Document(short_title(encoding.text), (size, table, *notes))
