"""`data`: what can be learned from, and what one corpus is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from peasy.corpora import BUILT_IN, Card, Corpus, open_corpus
from peasy.views.data import card_document, catalogue_document
from peasy.views.document import Document
from peasy.workbench.result import Result


@dataclass(frozen=True, repr=False)
class CatalogueResult(Result):
    """The corpora that come with peasy."""

    def document(self) -> Document:
        """One row for each."""
        return catalogue_document(tuple(BUILT_IN.values()))

    def data(self) -> dict[str, Any]:
        """Names, kinds and how each is written."""
        return {
            "corpora": [
                {"name": each.name, "kind": each.kind, "says": each.says, "usage": each.usage}
                for each in BUILT_IN.values()
            ]
        }

    def __repr__(self) -> str:
        return f"CatalogueResult({', '.join(BUILT_IN)})"


@dataclass(frozen=True, repr=False)
class DataResult(Result):
    """One corpus: `card` says what it is, `corpus` reads it."""

    corpus: Corpus
    card: Card

    def document(self) -> Document:
        """The card, with example lines and with the rows that could not be used."""
        return card_document(self.card, self.corpus.problems)

    def data(self) -> dict[str, Any]:
        """The card, and the problems: how many, why, and where the first ones are."""
        problems = self.corpus.problems
        named = [{"where": where, "reason": reason} for where, reason in problems.named]
        told = {"count": problems.count, "reasons": dict(problems.reasons), "first": named}
        return self.card.data() | {"problems": told}

    def __repr__(self) -> str:
        return f"DataResult({self.card.name}, {self.card.kind})"


@overload
def data(what: None = None) -> CatalogueResult: ...
@overload
def data(what: str | Path | Sequence[str | Path], *, seed: int = 0, **options: Any) -> DataResult: ...


def data(
    what: str | Path | Sequence[str | Path] | None = None, *, seed: int = 0, **options: Any
) -> CatalogueResult | DataResult:
    """What can be learned from: the built-in corpora, or the card of one corpus, file or folder.

    >>> data("recall", distance=9, size=100).card.sizes["train"]
    Size(documents=100, characters=2776)
    """
    if what is None:
        return CatalogueResult()
    corpus = open_corpus(what, seed=seed, **options)
    return DataResult(corpus, corpus.card)
