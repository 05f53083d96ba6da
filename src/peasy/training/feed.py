"""Data loaders: batches of tensors from token shards, each a pure function of the position in the run."""

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
    """Data loader protocol. A position counts samples since the start of the run."""

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """Return the batch of `batch_size` samples from `position` on, each at most `seq_len` tokens long."""

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """Yield all validation samples in order; nothing if there are none."""

    def samples(self, context: int) -> int:
        """Return the number of samples per epoch."""


class TextFeed:
    """Language-modelling windows of plain text: inputs and targets shifted by one token."""

    def __init__(self, train: Column, valid: Column | None, *, seed: int) -> None:
        self.train, self.valid, self.seed = train, valid, seed

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """Return a batch of windows; each occurs once per epoch, shuffled anew every epoch."""
        return _windowed(windows(self.train, context, rows, seed=self.seed, position=position))

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """Yield non-overlapping validation windows; each token but the first is a target once."""
        if self.valid is not None and len(self.valid) > 1:
            yield from (_windowed(window) for window in windows_in_order(self.valid, context, rows))

    def samples(self, context: int) -> int:
        """Return the number of windows per epoch."""
        return window_count(self.train, context)


class DocumentFeed:
    """Whole documents as sequences, each preceded by bos; truncated to the sequence length."""

    def __init__(self, shards: Shards, begin: int | None, *, seed: int) -> None:
        self.shards, self.begin, self.seed = shards, begin, seed

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """Return a batch of documents of similar length; each occurs once per epoch."""
        return self._rows("train", picks(self.shards, rows, seed=self.seed, position=position), context)

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """Yield all validation documents."""
        for indices in _in_order(self.shards, rows):
            yield self._rows("valid", indices, context)

    def samples(self, context: int) -> int:
        """Return the number of training documents."""
        return self.shards.documents("train")

    def _rows(self, split: str, chosen: Ids, context: int) -> Batch:
        """Build a batch without padding mask: padding is on the right, where causal attention never reads it."""
        documents = padded(self.shards.column(split), chosen, begin=self.begin)
        ids, padding_mask = documents.ids[:, : context + 1], documents.real[:, 1 : context + 1]
        return tensors({"ids": ids[:, :-1], "targets": np.where(padding_mask, ids[:, 1:], HIDDEN)})


@dataclass(frozen=True)
class Frame:
    """Special tokens that a tokenizer adds around a text (bos, eos), so that training matches inference."""

    begin: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Frame":
        """Determine the special tokens by encoding a sample text."""
        encoded, text_ids = tokenizer.encode("a").ids, tokenizer.encode("a", special=False).ids
        num_before = next(
            (start for start in range(len(encoded) + 1) if encoded[start : start + len(text_ids)] == text_ids), 0
        )
        suffix = encoded[num_before + len(text_ids) :]
        return cls(encoded[0] if num_before else None, suffix[-1] if suffix else None)


class PairFeed:
    """Source-target pairs for seq2seq; a target starts with decoder_start and ends with eos."""

    def __init__(self, shards: Shards, special: Special, frame: Frame, *, seed: int) -> None:
        self.shards, self.special, self.frame, self.seed = shards, special, frame, seed

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """Return a batch of pairs of similar length; each occurs once per epoch."""
        return self._pairs("train", picks(self.shards, rows, seed=self.seed, position=position), context)

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """Yield all validation pairs."""
        for indices in _in_order(self.shards, rows):
            yield self._pairs("valid", indices, context)

    def samples(self, context: int) -> int:
        """Return the number of training pairs."""
        return self.shards.documents("train")

    def _pairs(self, split: str, chosen: Ids, context: int) -> Batch:
        special, frame, pad = self.special, self.frame, self.special.padding or 0
        eos = special.end[0] if special.end else None
        source = padded(self.shards.column(split, "source"), chosen, pad=pad, begin=frame.begin, end=frame.end)
        target = padded(self.shards.column(split, "target"), chosen, pad=pad, begin=special.start, end=eos)
        ids, padding_mask = target.ids[:, : context + 1], target.real[:, : context + 1]
        batch = {"ids": ids[:, :-1], "targets": np.where(padding_mask[:, 1:], ids[:, 1:], HIDDEN)}
        return tensors(batch | _text("source", source, context))


class SentenceFeed:
    """Positive pairs for contrastive training: the two sides of a pair, or two texts with the same label."""

    def __init__(self, shards: Shards, special: Special, frame: Frame, *, seed: int) -> None:
        self.shards, self.special, self.frame, self.seed = shards, special, frame, seed
        self._partners: dict[str, tuple[Ids, Ids]] = {}

    def batch(self, position: int, rows: int, context: int) -> Batch:
        """Return a batch of positive pairs; each text occurs once per epoch."""
        chosen = picks(self.shards, rows, seed=self.seed, position=position)
        return self._together("train", chosen, context, position)

    def held_out(self, rows: int, context: int) -> Iterator[Batch]:
        """Yield all validation texts with their positives."""
        for indices in _in_order(self.shards, rows):
            yield self._together("valid", indices, context, 0)

    def samples(self, context: int) -> int:
        """Return the number of training texts."""
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
        """Draw for each text another one with its label (itself if there is none), seeded by the position."""
        by_label, starts = self._sorted(split)
        rng = np.random.default_rng([self.seed % 2**64, position])
        label_counts = starts[labels + 1] - starts[labels]
        ranks = np.array([np.searchsorted(by_label[starts[label] : starts[label + 1]], text)
                        for text, label in zip(chosen, labels, strict=True)])  # fmt: skip
        offsets = np.where(label_counts > 1, 1 + rng.integers(0, np.maximum(label_counts - 1, 1)), 0)
        return by_label[starts[labels] + (ranks + offsets) % label_counts]

    def _sorted(self, split: str) -> tuple[Ids, Ids]:
        if split not in self._partners:
            column = self.shards.column(split, "labels")
            labels = column.windows(np.arange(len(column)), 1)[:, 0]
            order = np.argsort(labels, kind="stable").astype(np.int64)
            starts = np.searchsorted(labels[order], np.arange(len(self.shards.labels) + 1)).astype(np.int64)
            self._partners[split] = order, starts
        return self._partners[split]


def tensors(batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Convert arrays to tensors."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}


def _windowed(found: Windows) -> dict[str, Tensor]:
    if found.real.all():
        return tensors({"ids": found.inputs, "targets": found.targets})
    return tensors({"ids": found.inputs, "targets": np.where(found.real, found.targets, HIDDEN), "real": found.real})


def _text(name: str, found: Padded, context: int) -> dict[str, Any]:
    ids, padding_mask = found.ids[:, :context], found.real[:, :context]
    ids_key, mask_key = (name, f"{name}_real") if name else ("ids", "real")
    return {ids_key: ids} if padding_mask.all() else {ids_key: ids, mask_key: padding_mask}


def _in_order(shards: Shards, rows: int) -> Iterator[Ids]:
    if "valid" not in shards.splits:
        return
    count = shards.documents("valid")
    for first in range(0, count, rows):
        yield np.arange(first, min(first + rows, count), dtype=np.int64)


def choose_feed(
    shards: Shards, objective: Objective, special: Special, frame: Frame, *, seed: int, rows: str = "windows"
) -> Feed:
    """Return the data loader for an objective: pairs for seq2seq, positive pairs for contrastive, else plain text.

    `sample_unit` applies to next-token prediction: windows of plain text, or whole documents.
    """
    if isinstance(objective, Contrastive):
        if shards.kind == "text":
            raise InvalidInput(
                "Sentence embeddings need pairs or labelled texts.", hint="For example a .tsv file of pairs."
            )
        return SentenceFeed(shards, special, frame, seed=seed)
    pairs = isinstance(objective, SourceToTarget)
    if pairs != (shards.kind == "pairs"):
        expected, given = ("text pairs", "plain text") if pairs else ("plain text", "text pairs")
        raise InvalidInput(f"This model kind trains on {expected}, but the data are {given}.", hint="See: peasy data")
    if pairs:
        return PairFeed(shards, special, frame, seed=seed)
    if rows == "documents" and isinstance(objective, NextToken):
        return DocumentFeed(shards, special.begin, seed=seed)
    valid = shards.column("valid") if "valid" in shards.splits else None
    return TextFeed(shards.column("train"), valid, seed=seed)
