"""Datasets as documents: the list of built-in ones, and the card of one with examples and problems."""

from collections.abc import Iterator

from peasy.corpora.catalogue import BuiltIn
from peasy.corpora.corpus import Card, Problems
from peasy.corpora.sample import Labelled, Pair, Sample
from peasy.views.document import Cell, Document, Heading, Paragraph, Part, Table

_LONGEST = 160
_OWN = "Your own data: a .txt, .jsonl, .tsv or .parquet file, a folder, or two line-aligned files: peasy data PATH"


def catalogue_document(built_in: tuple[BuiltIn, ...]) -> Document:
    """Document with one row for each built-in dataset (no download needed)."""
    rows = tuple((dataset.name, dataset.kind, dataset.says, dataset.usage) for dataset in built_in)
    return Document("Data", (Table(("name", "kind", "description", "usage"), rows), Paragraph(_OWN, "note")))


def card_document(card: Card, problems: Problems) -> Document:
    """Document of one dataset card."""
    return Document(card.name, tuple(_parts(card, problems)))


def _parts(card: Card, problems: Problems) -> Iterator[Part]:
    yield Paragraph(f"{card.says[:1].upper()}{card.says[1:]}.")
    if problems:
        yield from _problems(problems)
    sizes = ((split, f"{size.documents:,}", f"{size.characters:,}") for split, size in card.sizes.items())
    yield Table(("split", "documents", "characters"), tuple(sizes))
    yield Heading("Examples")
    yield _examples(card)
    facts = {"kind": card.kind, "licence": card.licence, **card.notes, **_suggested(card), "hash": card.hash[:16]}
    yield Heading("About")
    yield Table(("field", "value"), tuple(facts.items()))


def _suggested(card: Card) -> dict[str, str]:
    suggested = ", ".join(f"{name}={'null' if value is None else value}" for name, value in card.suggests.items())
    return {"suggested settings": suggested} if suggested else {}


def _problems(problems: Problems) -> Iterator[Part]:
    count = problems.count
    yield Paragraph(f"{count:,} invalid {'row' if count == 1 else 'rows'} {_are(count)} left out.", "bad")
    yield Table(("line", "problem"), tuple(problems.named))
    if count > len(problems.named):
        yield Paragraph(f"The first {len(problems.named)} of {count:,}.", "note")
        yield Table(("problem", "rows"), tuple((problem, f"{n:,}") for problem, n in problems.reasons.most_common(10)))


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _examples(card: Card) -> Table:
    rows = tuple(_example(sample) for sample in card.examples)
    if card.kind == "pairs":
        # No category column if no pair has one.
        with_category = any(row[2] for row in rows)
        names = ("source", "target", "category") if with_category else ("source", "target")
        return Table(names, tuple(row[: len(names)] for row in rows))
    return Table(("text", "label") if card.kind == "labelled" else ("text",), rows)


def _example(sample: Sample) -> tuple[Cell, ...]:
    if isinstance(sample, Pair):
        return _short(sample.source), _short(sample.target), sample.category
    if isinstance(sample, Labelled):
        return _short(sample.text), _short(sample.label)
    return (_short(sample),)


def _short(text: str) -> str:
    """Return the text on one line, with visible line ends, truncated."""
    line = text[: 2 * _LONGEST].strip().replace("\n", " ⏎ ")
    return line if len(line) <= _LONGEST and len(text) <= 2 * _LONGEST else f"{line[: _LONGEST - 1].rstrip()}…"
