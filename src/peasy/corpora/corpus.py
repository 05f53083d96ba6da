"""The corpus: documents by split, a card that says what it is, and the problems that were met while reading it."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any

from peasy.corpora.sample import Labelled, Pair, Probe, Sample, texts_of
from peasy.errors import InvalidInput, did_you_mean

_NAMED = 20


@dataclass(frozen=True)
class Size:
    """How much there is in a split."""

    documents: int = 0
    characters: int = 0


class Problems:
    """Lines that could not be used: all are counted by reason, the first ones are named as file:line."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self.named: list[tuple[str, str]] = []

    def add(self, where: str, reason: str) -> None:
        """Take note of one; where the corpus is strict, refuse it."""
        if self.strict:
            raise InvalidInput(f"{where}: {reason}.", hint="Put the line right, or read without strict.")
        self.count += 1
        self.reasons[reason] += 1
        if len(self.named) < _NAMED:
            self.named.append((where, reason))

    def __bool__(self) -> bool:
        return self.count > 0


@dataclass(frozen=True)
class Card:
    """What a corpus is. `notes` holds what else it depends on: versions, options, files that were left out.

    `suggests` are settings of a recipe that suit it; they hold unless a person says otherwise.
    """

    name: str
    kind: str
    says: str
    licence: str
    hash: str
    sizes: Mapping[str, Size]
    examples: tuple[Sample, ...]
    notes: Mapping[str, str] = field(default_factory=dict)
    suggests: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "name": self.name,
            "kind": self.kind,
            "says": self.says,
            "licence": self.licence,
            "hash": self.hash,
            "sizes": {split: {"documents": s.documents, "characters": s.characters} for split, s in self.sizes.items()},
            "examples": [_plain(sample) for sample in self.examples],
            "notes": dict(self.notes),
            "suggests": dict(self.suggests),
        }


@dataclass(frozen=True)
class Survey:
    """What one pass over all documents found."""

    hash: str
    sizes: Mapping[str, Size]


class Corpus(ABC):
    """Something to learn from.

    `kind` is "text" (documents are texts), "pairs" (`Pair`) or "labelled" (`Labelled`). Reading is repeatable: the same
    split gives the same documents in the same order, and nothing is kept in memory that grows with the corpus.
    """

    kind = "text"
    name = ""
    says = ""
    licence = ""
    splits: tuple[str, ...] = ("train", "valid")
    suggests: Mapping[str, Any] = MappingProxyType({})
    """Settings of a training recipe that suit these data; see `Card`."""

    def __init__(self) -> None:
        self.problems = Problems()

    @abstractmethod
    def read(self, split: str) -> Iterator[Sample]:
        """The documents of one split, which is known to exist."""

    def documents(self, split: str = "train") -> Iterator[Sample]:
        """The documents of a split, in order. A very long text comes in several parts (see `pieces`)."""
        return self.read(self._known(split))

    def pieces(self, split: str = "train") -> Iterator[tuple[Sample, bool]]:
        """The documents again, each with whether it ends here; what does not end goes on in the next."""
        return ((document, True) for document in self.documents(split))

    def texts(self, split: str = "train") -> Iterator[str]:
        """Every text of a split, of pairs both sides: what a tokenizer is trained on."""
        for document in self.documents(split):
            yield from texts_of(document)

    def probes(self, split: str = "valid") -> Iterator[Probe]:
        """Questions with known answers, where the corpus has them."""
        self._known(split)
        return iter(())

    def examples(self) -> Iterable[Sample]:
        """What the card shows of it."""
        return islice(self.documents(self.splits[0]), 5)

    def notes(self) -> Mapping[str, str]:
        """What else the card should tell."""
        return {}

    def survey(self) -> Survey:
        """Count and hash everything, once."""
        found = {split: digest_of(self.documents(split)) for split in self.splits}
        whole = hashlib.sha256("".join(f"{split}{digest}" for split, (_, digest) in found.items()).encode())
        return Survey(whole.hexdigest(), {split: size for split, (size, _) in found.items()})

    @cached_property
    def surveyed(self) -> Survey:
        """The one survey that all others read."""
        return self.survey()

    @cached_property
    def card(self) -> Card:
        """What this corpus is; the first call reads all of it once."""
        found = self.surveyed
        examples = tuple(self.examples())
        notes = dict(self.notes())
        return Card(
            self.name, self.kind, self.says, self.licence, found.hash, found.sizes, examples, notes, self.suggests
        )

    def _known(self, split: str) -> str:
        if split not in self.splits:
            hint = did_you_mean(split, self.splits) or f"There are {', '.join(self.splits)}."
            raise InvalidInput(f'{self.name} has no split "{split}".', hint=hint)
        return split


class Unlabelled(Corpus):
    """The texts of a labelled corpus without their labels, for models that read running text."""

    def __init__(self, labelled: Corpus) -> None:
        self.labelled, self.problems = labelled, labelled.problems
        self.name, self.says, self.licence = labelled.name, labelled.says, labelled.licence
        self.splits, self.suggests = labelled.splits, labelled.suggests

    def read(self, split: str) -> Iterator[Sample]:
        """Text by text."""
        return self.labelled.texts(split)

    def pieces(self, split: str = "train") -> Iterator[tuple[Sample, bool]]:
        """The texts again, each with whether it ends here."""
        return ((texts_of(document)[0], ends) for document, ends in self.labelled.pieces(split))

    def notes(self) -> Mapping[str, str]:
        """What the corpus itself says."""
        return self.labelled.notes()


def digest_of(documents: Iterator[Sample]) -> tuple[Size, str]:
    """How many documents and characters there are, and their hash; in constant memory."""
    digest, count, characters = hashlib.sha256(), 0, 0
    for document in documents:
        count += 1
        characters += sum(map(len, texts_of(document)))
        digest.update(_bytes(document) + b"\x1e")
    return Size(count, characters), digest.hexdigest()


def _plain(sample: Sample) -> Any:
    if isinstance(sample, Pair):
        return {"source": sample.source, "target": sample.target, "category": sample.category}
    if isinstance(sample, Labelled):
        return {"text": sample.text, "label": sample.label}
    return sample


def _bytes(sample: Sample) -> bytes:
    parts = (sample.text, sample.label) if isinstance(sample, Labelled) else texts_of(sample)
    return "\x1f".join(parts).encode("utf-8", "surrogatepass")
