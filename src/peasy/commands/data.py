"""`data`: list the built-in corpora, or show the card of one corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from peasy.commands.result import JsonDict, Result
from peasy.datasets import BUILT_IN, Corpus, DatasetCard, open_corpus
from peasy.errors import UsageError
from peasy.views.data import dataset_card_document, datasets_document
from peasy.views.document import Document


@dataclass(frozen=True)
class CatalogueResult(Result):
    """The corpora that come with peasy."""

    corpora: tuple[str, ...] = tuple(BUILT_IN)

    def document(self) -> Document:
        """One row for each corpus."""
        return datasets_document(tuple(BUILT_IN.values()))

    def data(self) -> JsonDict:
        """Name, kind, description and usage of each corpus."""
        columns = ("name", "kind", "description", "usage")
        return {"corpora": [{key: getattr(corpus, key) for key in columns} for corpus in BUILT_IN.values()]}


@dataclass(frozen=True, repr=False)
class DataResult(Result):
    """One corpus with its dataset card."""

    corpus: Corpus
    card: DatasetCard

    def document(self) -> Document:
        """The card, with example lines and the rows that could not be used."""
        return dataset_card_document(self.card, self.corpus.problems)

    def data(self) -> JsonDict:
        """The card, and the problems: count, reasons, and the location of the first ones."""
        problems = self.corpus.problems
        first = [{"where": where, "reason": reason} for where, reason in problems.listed]
        summary = {"count": problems.count, "reasons": dict(problems.reasons), "first": first}
        return self.card.data() | {"problems": summary}

    def __repr__(self) -> str:
        return f"DataResult({self.card.name}, {self.card.kind})"


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
