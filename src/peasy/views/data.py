"""Datasets as documents: the list of built-in ones, and the card of one with examples and problems."""

from collections.abc import Iterator

from peasy.datasets.catalogue import BuiltInCorpus
from peasy.datasets.corpus import DataProblems, DatasetCard
from peasy.datasets.sample import LabelledText, Sample, TextPair
from peasy.views.document import Cell, Document, DocumentPart, Heading, Paragraph, Table

_MAX_EXAMPLE_LENGTH = 160
_OWN_DATA_NOTE = (
    "Your own data: a .txt, .jsonl, .tsv or .parquet file, a folder, or two line-aligned files: peasy data PATH"
)


def datasets_document(built_in: tuple[BuiltInCorpus, ...]) -> Document:
    """Document with one row for each built-in dataset (no download needed)."""
    rows = tuple((dataset.name, dataset.kind, dataset.description, dataset.usage) for dataset in built_in)
    return Document("Data", (Table(("name", "kind", "description", "usage"), rows), Paragraph(_OWN_DATA_NOTE, "note")))


def dataset_card_document(card: DatasetCard, problems: DataProblems) -> Document:
    """Document of one dataset card."""
    return Document(card.name, tuple(_parts(card, problems)))


def _parts(card: DatasetCard, problems: DataProblems) -> Iterator[DocumentPart]:
    yield Paragraph(f"{card.description[:1].upper()}{card.description[1:]}.")
    if problems:
        yield from _problems(problems)
    sizes = ((split, f"{size.documents:,}", f"{size.characters:,}") for split, size in card.sizes.items())
    yield Table(("split", "documents", "characters"), tuple(sizes))
    yield Heading("Examples")
    yield _examples(card)
    facts = {
        "kind": card.kind,
        "licence": card.licence,
        **card.notes,
        **_suggested_settings(card),
        "hash": card.hash[:16],
    }
    yield Heading("About")
    yield Table(("field", "value"), tuple(facts.items()))


def _suggested_settings(card: DatasetCard) -> dict[str, str]:
    suggested = ", ".join(
        f"{name}={'null' if value is None else value}" for name, value in card.suggested_settings.items()
    )
    return {"suggested settings": suggested} if suggested else {}


def _problems(problems: DataProblems) -> Iterator[DocumentPart]:
    count = problems.count
    yield Paragraph(f"{count:,} invalid {'row' if count == 1 else 'rows'} {_is_or_are(count)} left out.", "bad")
    yield Table(("line", "problem"), tuple(problems.listed))
    if count > len(problems.listed):
        yield Paragraph(f"The first {len(problems.listed)} of {count:,}.", "note")
        yield Table(("problem", "rows"), tuple((problem, f"{n:,}") for problem, n in problems.reasons.most_common(10)))


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def _examples(card: DatasetCard) -> Table:
    rows = tuple(_example(sample) for sample in card.examples)
    if card.kind == "pairs":
        # No category column if no pair has one.
        with_category = any(row[2] for row in rows)
        names = ("source", "target", "category") if with_category else ("source", "target")
        return Table(names, tuple(row[: len(names)] for row in rows))
    return Table(("text", "label") if card.kind == "labelled" else ("text",), rows)


def _example(sample: Sample) -> tuple[Cell, ...]:
    if isinstance(sample, TextPair):
        return _truncate(sample.source), _truncate(sample.target), sample.category
    if isinstance(sample, LabelledText):
        return _truncate(sample.text), _truncate(sample.label)
    return (_truncate(sample),)


def _truncate(text: str) -> str:
    """Return the text on one line, with visible line ends, truncated."""
    line = text[: 2 * _MAX_EXAMPLE_LENGTH].strip().replace("\n", " ⏎ ")
    return (
        line
        if len(line) <= _MAX_EXAMPLE_LENGTH and len(text) <= 2 * _MAX_EXAMPLE_LENGTH
        else f"{line[: _MAX_EXAMPLE_LENGTH - 1].rstrip()}…"
    )
