"""`data`: list the built-in corpora, or show the card of one corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from peasy.commands.result import Result
from peasy.datasets import BUILT_IN, Corpus, DatasetCard, open_corpus
from peasy.errors import UsageError
from peasy.views.data import dataset_card_document, datasets_document
from peasy.views.document import Document


@dataclass(frozen=True, repr=False)
class CatalogueResult(Result):
    """The corpora that come with peasy."""

    def document(self) -> Document:
        """One row for each corpus."""
        return datasets_document(tuple(BUILT_IN.values()))

    def data(self) -> dict[str, Any]:
        """Name, kind, description and usage of each corpus."""
        return {
            "corpora": [
                {"name": corpus.name, "kind": corpus.kind, "description": corpus.description, "usage": corpus.usage}
                for corpus in BUILT_IN.values()
            ]
        }

    def __repr__(self) -> str:
        return f"CatalogueResult({', '.join(BUILT_IN)})"


@dataclass(frozen=True, repr=False)
class DataResult(Result):
    """One corpus with its dataset card."""

    corpus: Corpus
    card: DatasetCard

    def document(self) -> Document:
        """The card, with example lines and the rows that could not be used."""
        return dataset_card_document(self.card, self.corpus.problems)

    def data(self) -> dict[str, Any]:
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
def data(source: str | Path | Sequence[str | Path], /, *, seed: int = 0, **options: Any) -> DataResult: ...


def data(
    source: str | Path | Sequence[str | Path] | None = None, /, *, seed: int = 0, **options: Any
) -> CatalogueResult | DataResult:
    """List the built-in corpora, or show the card of one corpus, file or folder.

    >>> data("recall", distance=9, num_train=100).card.sizes["train"]
    SplitSize(documents=100, characters=2776)
    """
    if source is None:
        if options:  # positional only, since the options of a table have a column `source`
            raise UsageError("data needs a source before its options.", hint='For example: data("stories")')
        return CatalogueResult()
    corpus = open_corpus(source, seed=seed, **options)
    return DataResult(corpus, corpus.card)
