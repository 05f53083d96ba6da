"""Feeds: from token shards to batches of tensors, each a function of where the run stands and of nothing else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from peasy.corpora import Column, Shards, padded, picks, window_count, windows, windows_in_order
from peasy.corpora.batches import Padded, Windows
from peasy.errors import InvalidInput
from peasy.models.config import Special
from peasy.text import Tokenizer
from peasy.training.objective import HIDDEN, Batch, Contrastive, NextToken, Objective, SourceToTarget

Ids = NDArray[np.int64]


class Feed(Protocol):
    """Where batches come from. A position counts samples since the start of the run."""

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """The `rows` samples from `position` on, at most `context` tokens long."""

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """All held-out samples, in order; nothing where there are none."""

    def samples(self, context: int) -> int:
        """How many samples an epoch has."""


class TextFeed:
    """Windows of running text: the tokens and the one after each."""

    def __init__(self, train: Column, valid: Column | None, *, seed: int) -> None:
        self.train, self.valid, self.seed = train, valid, seed

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """Each window once per epoch, in an order of its own."""
        return _windowed(windows(self.train, context, rows, seed=self.seed, position=position))

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """Windows that do not overlap; each token but the first is asked for once."""
        if self.valid is not None and len(self.valid) > 1:
            yield from (_windowed(each) for each in windows_in_order(self.valid, context, rows))

    def samples(self, context: int) -> int:
        """How many windows an epoch has."""
        return window_count(self.train, context)


class DocumentFeed:
    """Whole texts as rows, each after an end token as in running text; what is longer than the context is cut."""

    def __init__(self, shards: Shards, begin: int | None, *, seed: int) -> None:
        self.shards, self.begin, self.seed = shards, begin, seed

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """Each text once per epoch, those of similar length together."""
        return self._rows("train", picks(self.shards, rows, seed=self.seed, position=position), context)

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """All held-out texts."""
        for some in _in_order(self.shards, rows):
            yield self._rows("valid", some, context)

    def samples(self, context: int) -> int:
        """How many texts there are."""
        return self.shards.documents("train")

    def _rows(self, split: str, chosen: Ids, context: int) -> Batch:
        """Nothing is said about what is real: padding stands at the end, where nobody who looks back can see it."""
        found = padded(self.shards.column(split), chosen, begin=self.begin)
        ids, real = found.ids[:, : context + 1], found.real[:, 1 : context + 1]
        return tensors({"ids": ids[:, :-1], "targets": np.where(real, ids[:, 1:], HIDDEN)})


@dataclass(frozen=True)
class Frame:
    """The tokens that a tokenizer puts around a text, where it does: a model must learn what it will be given."""

    begin: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Frame":
        """What this tokenizer does."""
        whole, bare = tokenizer.encode("a").ids, tokenizer.encode("a", special=False).ids
        before = next((at for at in range(len(whole) + 1) if whole[at : at + len(bare)] == bare), 0)
        after = whole[before + len(bare) :]
        return cls(whole[0] if before else None, after[-1] if after else None)


class PairFeed:
    """Pairs of texts: `source`, and a target that begins with the start token and ends with the end token."""

    def __init__(self, shards: Shards, special: Special, frame: Frame, *, seed: int) -> None:
        self.shards, self.special, self.frame, self.seed = shards, special, frame, seed

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """Each pair once per epoch, those of similar length together."""
        return self._pairs("train", picks(self.shards, rows, seed=self.seed, position=position), context)

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """All held-out pairs."""
        for some in _in_order(self.shards, rows):
            yield self._pairs("valid", some, context)

    def samples(self, context: int) -> int:
        """How many pairs there are."""
        return self.shards.documents("train")

    def _pairs(self, split: str, chosen: Ids, context: int) -> Batch:
        special, frame, pad = self.special, self.frame, self.special.padding or 0
        end = special.end[0] if special.end else None
        source = padded(self.shards.column(split, "source"), chosen, pad=pad, begin=frame.begin, end=frame.end)
        target = padded(self.shards.column(split, "target"), chosen, pad=pad, begin=special.start, end=end)
        ids, real = target.ids[:, : context + 1], target.real[:, : context + 1]
        batch = {"ids": ids[:, :-1], "targets": np.where(real[:, 1:], ids[:, 1:], HIDDEN)}
        return tensors(batch | _text("source", source, context))


class SentenceFeed:
    """Two texts that belong together: the two sides of a pair, or two texts of one label."""

    def __init__(self, shards: Shards, special: Special, frame: Frame, *, seed: int) -> None:
        self.shards, self.special, self.frame, self.seed = shards, special, frame, seed
        self._partners: dict[str, tuple[Ids, Ids]] = {}

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """Each text once per epoch."""
        chosen = picks(self.shards, rows, seed=self.seed, position=position)
        return self._together("train", chosen, context, position)

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """All held-out texts with their partners."""
        for some in _in_order(self.shards, rows):
            yield self._together("valid", some, context, 0)

    def samples(self, context: int) -> int:
        """How many texts there are."""
        return self.shards.documents("train")

    def _together(self, split: str, chosen: Ids, context: int, position: int) -> Batch:
        if self.shards.kind == "pairs":
            return tensors(
                _text("source", self._rows(split, "source", chosen), context)
                | _text("", self._rows(split, "target", chosen), context)
            )
        labels = self.shards.column(split, "labels").windows(chosen, 1)[:, 0]
        partners = self._partner(split, chosen, labels, position)
        return tensors(
            _text("source", self._rows(split, "tokens", chosen), context)
            | _text("", self._rows(split, "tokens", partners), context)
            | {"label": labels}
        )

    def _rows(self, split: str, name: str, chosen: Ids) -> Padded:
        column, frame = self.shards.column(split, name), self.frame
        return padded(column, chosen, pad=self.special.padding or 0, begin=frame.begin, end=frame.end)

    def _partner(self, split: str, chosen: Ids, labels: Ids, position: int) -> Ids:
        """For each text another one of its label (itself, where it is alone), drawn for this place in the run."""
        by_label, starts = self._sorted(split)
        draw = np.random.default_rng([self.seed % 2**64, position])
        sizes = starts[labels + 1] - starts[labels]
        own = np.array([np.searchsorted(by_label[starts[label] : starts[label + 1]], text)
                        for text, label in zip(chosen, labels, strict=True)])  # fmt: skip
        away = np.where(sizes > 1, 1 + draw.integers(0, np.maximum(sizes - 1, 1)), 0)
        return by_label[starts[labels] + (own + away) % sizes]

    def _sorted(self, split: str) -> tuple[Ids, Ids]:
        if split not in self._partners:
            column = self.shards.column(split, "labels")
            labels = column.windows(np.arange(len(column)), 1)[:, 0]
            order = np.argsort(labels, kind="stable").astype(np.int64)
            starts = np.searchsorted(labels[order], np.arange(len(self.shards.labels) + 1)).astype(np.int64)
            self._partners[split] = order, starts
        return self._partners[split]


def tensors(batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Arrays as tensors."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}


def _windowed(found: Windows) -> dict[str, Tensor]:
    if found.real.all():
        return tensors({"ids": found.inputs, "targets": found.targets})
    return tensors({"ids": found.inputs, "targets": np.where(found.real, found.targets, HIDDEN), "real": found.real})


def _text(name: str, found: Padded, context: int) -> dict[str, Any]:
    ids, real = found.ids[:, :context], found.real[:, :context]
    first, second = (name, f"{name}_real") if name else ("ids", "real")
    return {first: ids} if real.all() else {first: ids, second: real}


def _in_order(shards: Shards, rows: int) -> Iterator[Ids]:
    if "valid" not in shards.splits:
        return
    count = shards.documents("valid")
    for first in range(0, count, rows):
        yield np.arange(first, min(first + rows, count), dtype=np.int64)


def choose_feed(
    shards: Shards, objective: Objective, special: Special, frame: Frame, *, seed: int, rows: str = "windows"
) -> Feed:
    """The feed for what is asked: pairs to translate, texts that belong together to embed, else running text.

    `rows` says how running text is cut for the next token: into windows, or into its documents.
    """
    if isinstance(objective, Contrastive):
        if shards.kind == "text":
            raise InvalidInput("Sentence vectors need pairs or labelled texts.", hint="Give a .tsv of pairs.")
        return SentenceFeed(shards, special, frame, seed=seed)
    pairs = isinstance(objective, SourceToTarget)
    if pairs != (shards.kind == "pairs"):
        wanted, given = ("pairs of texts", "running text") if pairs else ("running text", "pairs of texts")
        raise InvalidInput(f"This kind learns from {wanted}, and the data are {given}.", hint="See: peasy data")
    if pairs:
        return PairFeed(shards, special, frame, seed=seed)
    if rows == "documents" and isinstance(objective, NextToken):
        return DocumentFeed(shards, special.begin, seed=seed)
    valid = shards.column("valid") if "valid" in shards.splits else None
    return TextFeed(shards.column("train"), valid, seed=seed)
