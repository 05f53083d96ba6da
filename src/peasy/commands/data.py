"""`data`: list the built-in corpora, or show the card of one corpus."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from peasy.commands.result import JsonDict, Result
from peasy.datasets import BUILT_IN, Corpus, DataProblems, DatasetCard, Sample, TextPair, open_corpus
from peasy.datasets.corpus import LabelledText
from peasy.errors import UsageError
from peasy.views.document import Cell, Document, DocumentPart, Heading, Paragraph, Table

_COLUMNS = ("name", "kind", "description", "usage")
_MAX_EXAMPLE_LENGTH = 160
_OWN_DATA_NOTE = (
    "Your own data: a .txt, .jsonl, .tsv or .parquet file, a folder, or two line-aligned files: peasy data PATH"
)


class CatalogueResult(Result, repr=True):
    """The corpora that come with peasy."""

    corpora: tuple[str, ...] = tuple(BUILT_IN)

    def document(self) -> Document:
        """One row for each corpus (no download needed)."""
        rows = tuple(tuple(getattr(corpus, name) for name in _COLUMNS) for corpus in BUILT_IN.values())
        return Document("Data", (Table(_COLUMNS, rows), Paragraph(_OWN_DATA_NOTE, "note")))

    def data(self) -> JsonDict:
        """Name, kind, description and usage of each corpus."""
        return {"corpora": [{key: getattr(corpus, key) for key in _COLUMNS} for corpus in BUILT_IN.values()]}


class DataResult(Result):
    """One corpus with its dataset card."""

    corpus: Corpus
    card: DatasetCard

    def document(self) -> Document:
        """The card, with example lines and the rows that could not be used."""
        card, problems = self.card, self.corpus.problems
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

    def data(self) -> JsonDict:
        """The card, and the problems: count, reasons, and the location of the first ones."""
        problems = self.corpus.problems
        first = [{"where": where, "reason": reason} for where, reason in problems.listed]
        summary = {"count": problems.count, "reasons": dict(problems.reasons), "first": first}
        return self.card.data() | {"problems": summary}

    def __repr__(self) -> str:
        return f"DataResult({self.card.name}, {self.card.kind})"


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


@overload
def data(source: None = None, /) -> CatalogueResult: ...
@overload
def data(source: str | Path | Sequence[str | Path], /, *, seed: int = 0, **options: object) -> DataResult: ...


def data(
    source: str | Path | Sequence[str | Path] | None = None, /, *, seed: int = 0, **options: object
) -> CatalogueResult | DataResult:
    """List the built-in corpora, or show the card of one corpus, file or folder.

    Args:
        source: Built-in dataset, file, folder, or several files.
        seed: Random seed of a synthetic dataset.
        options: Options of the dataset, such as length=20; its configuration class declares them.

    >>> data("recall", distance=9, num_train=100).card.sizes["train"]
    SplitSize(documents=100, characters=2776)
    """
    if source is None:
        if options:  # positional only, since the options of a table have a column `source`
            raise UsageError("data needs a source before its options.", hint='For example: data("stories")')
        return CatalogueResult()
    corpus = open_corpus(source, seed=seed, **options)
    return DataResult(corpus, corpus.card)
