"""Corpus base class: documents by split, a dataset card, and the problems found while reading."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from random import Random
from types import MappingProxyType
from typing import Annotated, Any, Generic, TypeVar

from annotated_types import Ge

from peasy.errors import InvalidInput, did_you_mean
from peasy.parameters import BoundedSettings, Record


@dataclass(frozen=True, slots=True)
class TextPair:
    """Source text and its translation.

    `category` is the type of sentence, if known. `alignment` holds (source word, target word) index pairs for the words
    that correspond; words are counted as `peasy.tokenization.encoding.split_words` splits them.
    """

    source: str
    target: str
    category: str = ""
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledText:
    """Text with a class label."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages as pairs of role and content; a model learns the answers, which have the role "assistant"."""

    messages: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "\n".join(f"{role}: {content}" for role, content in self.messages)


@dataclass(frozen=True, slots=True)
class Probe:
    """Prompt with its correct ending.

    In a two-way choice `wrong` is the other ending, which would be correct if the pronoun referred to `other`.
    `referent` is the word that decides, and `pronoun` the word that refers to it.
    """

    prompt: str
    right: str
    wrong: str = ""
    referent: str = ""
    other: str = ""
    pronoun: str = ""
    category: str = ""

    @property
    def text(self) -> str:
        """The whole text, with the correct ending."""
        return self.prompt + self.right


Sample = str | TextPair | LabelledText | Conversation


def sample_texts(sample: Sample) -> tuple[str, ...]:
    """Return all texts of a sample: two of a pair, all messages of a conversation, else one."""
    if isinstance(sample, Conversation):
        return tuple(content for _, content in sample.messages)
    if isinstance(sample, TextPair):
        return sample.source, sample.target
    return (sample,) if isinstance(sample, str) else (sample.text,)


_MAX_LISTED = 20


class SplitSize(Record):
    """Size of a split."""

    documents: int = 0
    characters: int = 0


class DataProblems:
    """Unusable lines: counted by reason, the first ones listed as file:line."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self.listed: list[tuple[str, str]] = []

    def add(self, where: str, reason: str) -> None:
        """Record one problem; raise in strict mode."""
        if self.strict:
            raise InvalidInput(f"{where}: {reason}.", hint="Correct the line, or read without strict.")
        self.count += 1
        self.reasons[reason] += 1
        if len(self.listed) < _MAX_LISTED:
            self.listed.append((where, reason))

    def __bool__(self) -> bool:
        return self.count > 0


class DatasetCard(Record):
    """Dataset card. `notes` holds what else the corpus depends on: versions, options, skipped files.

    `suggested_settings` are recipe settings that suit the corpus; explicit settings override them.
    """

    name: str
    kind: str
    description: str
    licence: str
    hash: str
    sizes: Mapping[str, SplitSize]
    examples: tuple[Sample, ...]
    notes: Mapping[str, str] = field(default_factory=dict)
    suggested_settings: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, object]:
        """Return the card as plain data."""
        return vars(self) | {
            "sizes": {split: dict(vars(size)) for split, size in self.sizes.items()},
            "examples": [_sample_data(sample) for sample in self.examples],
            "notes": dict(self.notes),
            "suggested_settings": dict(self.suggested_settings),
        }


class CorpusSurvey(Record):
    """Hash and sizes from one pass over all documents."""

    hash: str
    sizes: Mapping[str, SplitSize]


class Corpus(ABC):
    """Training data.

    `kind` is "text" (documents are strings), "pairs" (`TextPair`), "labelled" (`LabelledText`) or "chat"
    (`Conversation`). Reading is repeatable: the same split yields the same documents in the same order; memory does not
    grow with the corpus.
    """

    kind = "text"
    name = ""
    description = ""
    licence = ""
    splits: tuple[str, ...] = ("train", "valid")
    suggested_settings: Mapping[str, Any] = MappingProxyType({})
    """Recipe settings that suit these data; see `DatasetCard`."""

    def __init__(self) -> None:
        self.problems = DataProblems()

    @abstractmethod
    def read(self, split: str) -> Iterator[Sample]:
        """Yield the documents of an existing split."""

    def documents(self, split: str = "train") -> Iterator[Sample]:
        """Yield the documents of a split, in order. A very long text comes in several pieces (see `pieces`)."""
        return self.read(self._check_split(split))

    def pieces(self, split: str = "train") -> Iterator[tuple[Sample, bool]]:
        """Yield the documents, each with whether it ends here; if not, it continues in the next piece."""
        return ((document, True) for document in self.documents(split))

    def texts(self, split: str = "train") -> Iterator[str]:
        """Yield every text of a split, both sides of pairs: training data of a tokenizer."""
        for document in self.documents(split):
            yield from sample_texts(document)

    def probes(self, split: str = "valid") -> Iterator[Probe]:
        """Yield prompts with known answers, if the corpus has any."""
        self._check_split(split)
        return iter(())

    def examples(self) -> Iterable[Sample]:
        """Return the examples shown on the card."""
        return islice(self.documents(self.splits[0]), 5)

    def notes(self) -> Mapping[str, str]:
        """Return further notes for the card."""
        return {}

    def survey(self) -> CorpusSurvey:
        """Count and hash all documents."""
        results = {split: count_and_hash(self.documents(split)) for split in self.splits}
        digest_all = hashlib.sha256("".join(f"{split}{digest}" for split, (_, digest) in results.items()).encode())
        return CorpusSurvey(digest_all.hexdigest(), {split: size for split, (size, _) in results.items()})

    @cached_property
    def cached_survey(self) -> CorpusSurvey:
        """Cached result of `survey`."""
        return self.survey()

    @cached_property
    def card(self) -> DatasetCard:
        """Dataset card; the first access reads the whole corpus once."""
        survey, examples, notes = self.cached_survey, tuple(self.examples()), self.notes()
        names = self.name, self.kind, self.description, self.licence
        return DatasetCard(*names, survey.hash, survey.sizes, examples, notes, self.suggested_settings)

    def _check_split(self, split: str) -> str:
        if split not in self.splits:
            hint = did_you_mean(split, self.splits) or f"Available: {', '.join(self.splits)}."
            raise InvalidInput(f'{self.name} has no split "{split}".', hint=hint)
        return split


class FilesCorpus(Corpus):
    """Corpus of the user's files. With training files only, the last tenth is for validation.

    `num_files` is the number of files in each split, aligned ones counted as one. `skipped` names files of the folder
    that are not read.
    """

    licence = "yours"
    unit = ""
    skipped = ""

    def __init__(self, name: str, num_files: Mapping[str, int]) -> None:
        super().__init__()
        self.name, self.num_files = name, sum(num_files.values())
        self.split_by_count = "valid" not in num_files
        self.splits = tuple(split for split in ("train", "valid", "test") if split in num_files or split == "valid")

    def notes(self) -> dict[str, str]:
        """Return how the data was split, and which files of a folder were skipped."""
        is_cut = f"the last tenth of the {self.unit} is the validation split"
        notes = {"files": str(self.num_files), "split": is_cut if self.split_by_count else "by file"}
        return notes | ({"skipped": self.skipped} if self.skipped else {})


class UnlabelledCorpus(Corpus):
    """Labelled corpus without its labels, for models that train on plain text."""

    def __init__(self, labelled: Corpus) -> None:
        self.labelled, self.problems = labelled, labelled.problems
        self.name, self.description, self.licence = labelled.name, labelled.description, labelled.licence
        self.splits, self.suggested_settings = labelled.splits, labelled.suggested_settings

    def read(self, split: str) -> Iterator[Sample]:
        return self.labelled.texts(split)

    def pieces(self, split: str = "train") -> Iterator[tuple[Sample, bool]]:
        return ((sample_texts(document)[0], ends) for document, ends in self.labelled.pieces(split))

    def notes(self) -> Mapping[str, str]:
        return self.labelled.notes()


def count_and_hash(documents: Iterator[Sample]) -> tuple[SplitSize, str]:
    """Return the number of documents and characters, and their hash; in constant memory."""
    digest, count, characters = hashlib.sha256(), 0, 0
    for document in documents:
        count += 1
        characters += sum(map(len, sample_texts(document)))
        if isinstance(document, Conversation):
            parts: tuple[str, ...] = tuple(chain.from_iterable(document.messages))
        else:
            parts = (document.text, document.label) if isinstance(document, LabelledText) else sample_texts(document)
        digest.update("\x1f".join(parts).encode("utf-8", "surrogatepass") + b"\x1e")
    return SplitSize(count, characters), digest.hexdigest()


def _sample_data(sample: Sample) -> str | dict[str, str]:
    if isinstance(sample, TextPair):
        return {"source": sample.source, "target": sample.target, "category": sample.category}
    if isinstance(sample, LabelledText):
        return {"text": sample.text, "label": sample.label}
    return str(sample)


_VALID_EVERY = 10


class SyntheticConfig(BoundedSettings):
    """Options of every synthetic corpus."""

    num_train: Annotated[int, Ge(1)] = field(default=20_000, kw_only=True)
    """Number of training texts."""
    num_valid: Annotated[int, Ge(1)] = field(default=1_000, kw_only=True)
    """Number of validation texts."""


Options = TypeVar("Options", bound=SyntheticConfig)


class SyntheticCorpus(Corpus, Generic[Options]):
    """Synthetic corpus with known endings; its options say how many texts it has, `probe` is unlimited.

    The hash of a text's content key decides its split, so no validation text occurs in training.
    """

    licence = "made by peasy (Apache-2.0)"

    def __init__(self, options: Options, *, seed: int = 0) -> None:
        super().__init__()
        self.options, self.seed = options, seed

    @abstractmethod
    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Return the content key of a text, and the text."""

    def probe(self, number: int, split: str = "train") -> Probe:
        """Return the text with this number, from 0 on."""
        self._check_split(split)
        rng = Random(f"{self.name}/{self.seed}/{split}/{number}")
        while True:
            key, probe = self.draw(rng)
            if is_validation(key) == (split == "valid"):
                return probe

    def read(self, split: str) -> Iterator[Sample]:
        return (probe.text for probe in self.probes(split))

    def probes(self, split: str = "valid") -> Iterator[Probe]:
        """Yield the same texts, each with its ending separate."""
        count = self.options.num_train if self._check_split(split) == "train" else self.options.num_valid
        return (self.probe(number, split) for number in range(count))


def is_validation(key: str) -> bool:
    """Return whether this content key is in the validation split (a tenth of all keys); depends on the key alone.

    >>> sum(is_validation(str(n)) for n in range(1000))
    89
    """
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) % _VALID_EVERY == 0
