"""Data loaders: batches of tensors from token shards, each a pure function of the position in the run."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from peasy.datasets.batches import (
    PaddedBatch,
    WindowBatch,
    bucketed_indices,
    num_windows,
    padded_batch,
    sequential_windows,
    window_batch,
)
from peasy.datasets.shards import TokenColumn, TokenShards
from peasy.errors import InvalidInput
from peasy.models.config import SpecialTokensConfig
from peasy.parameters import Record
from peasy.tokenization import Tokenizer
from peasy.training.objective import IGNORE_INDEX, Batch, Contrastive, NextToken, Objective, Seq2Seq

TokenIds = NDArray[np.int64]
Array = NDArray[np.int64] | NDArray[np.bool_]


class WindowDataLoader:
    """Language-modelling windows of plain text: inputs and targets shifted by one token.

    A position counts samples since the start of the run.
    """

    def __init__(self, train: TokenColumn, valid: TokenColumn | None, *, seed: int) -> None:
        self.train, self.valid, self.seed = train, valid, seed

    def batch(self, position: int, batch_size: int, seq_len: int) -> Batch:
        """Return the windows from `position` on; each occurs once per epoch, shuffled anew every epoch."""
        return _window_tensors(window_batch(self.train, seq_len, batch_size, seed=self.seed, position=position))

    def validation(self, batch_size: int, seq_len: int) -> Iterator[Batch]:
        """Yield non-overlapping validation windows, if any; each token but the first is a target once."""
        if self.valid is not None and len(self.valid) > 1:
            windows = sequential_windows(self.valid, seq_len, batch_size)
            yield from (_window_tensors(window) for window in windows)

    def num_samples(self, seq_len: int) -> int:
        """Return the number of windows per epoch."""
        return num_windows(self.train, seq_len)


class SpecialTokens(Record):
    """Special tokens that a tokenizer adds around a text (bos, eos), so that training matches inference."""

    bos: int | None = None
    eos: int | None = None

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> "SpecialTokens":
        """Return the special tokens that the tokenizer adds."""
        before, after = tokenizer.added_ids
        return cls(before[0] if before else None, after[-1] if after else None)


class _SequenceDataLoader(ABC):
    """Batches of whole texts of similar length; each occurs once per epoch."""

    def __init__(
        self, shards: TokenShards, special: SpecialTokensConfig, source_tokens: SpecialTokens, *, seed: int
    ) -> None:
        self.shards, self.special, self.source_tokens, self.seed = shards, special, source_tokens, seed
        self._label_index: dict[str, tuple[TokenIds, TokenIds]] = {}

    def batch(self, position: int, batch_size: int, seq_len: int) -> Batch:
        indices = bucketed_indices(self.shards, batch_size, seed=self.seed, position=position)
        return self._make_batch("train", indices, seq_len, position)

    def validation(self, batch_size: int, seq_len: int) -> Iterator[Batch]:
        count = self.shards.num_documents("valid") if "valid" in self.shards.splits else 0
        for first in range(0, count, batch_size):
            indices = np.arange(first, min(first + batch_size, count), dtype=np.int64)
            yield self._make_batch("valid", indices, seq_len, 0)

    def num_samples(self, seq_len: int) -> int:
        return self.shards.num_documents("train")

    @abstractmethod
    def _make_batch(self, split: str, indices: TokenIds, seq_len: int, position: int) -> Batch:
        """Return the batch of these samples; `position` seeds what is drawn at random."""

    def _padded(self, split: str, column: str, indices: TokenIds) -> PaddedBatch:
        tokens, pad = self.source_tokens, self.special.pad or 0
        return padded_batch(self.shards.column(split, column), indices, pad=pad, bos=tokens.bos, eos=tokens.eos)


class DocumentDataLoader(_SequenceDataLoader):
    """Whole documents as sequences, each after the bos of the tokenizer; truncated to the sequence length."""

    def _make_batch(self, split: str, indices: TokenIds, seq_len: int, position: int) -> Batch:
        """Build a batch without padding mask: padding is on the right, where causal attention never reads it."""
        documents = padded_batch(self.shards.column(split), indices, bos=self.source_tokens.bos)
        return _to_tensors(_shifted(documents, seq_len))


class ChatDataLoader(_SequenceDataLoader):
    """Conversations, truncated to the sequence length; only tokens of answers are targets."""

    def _make_batch(self, split: str, indices: TokenIds, seq_len: int, position: int) -> Batch:
        tokens, answers = (padded_batch(self.shards.column(split, name), indices) for name in ("tokens", "answers"))
        batch = _shifted(tokens, seq_len)
        targets = np.where(answers.ids[:, 1 : seq_len + 1] == 1, batch["targets"], IGNORE_INDEX)
        return _to_tensors(batch | {"targets": targets})


class PairDataLoader(_SequenceDataLoader):
    """Source-target pairs for seq2seq; a target starts with decoder_start and ends with eos."""

    def _make_batch(self, split: str, indices: TokenIds, seq_len: int, position: int) -> Batch:
        special, pad = self.special, self.special.pad or 0
        eos = special.eos[0] if special.eos else None
        source = self._padded(split, "source", indices)
        target = padded_batch(self.shards.column(split, "target"), indices, pad=pad, bos=special.decoder_start, eos=eos)
        return _to_tensors(_shifted(target, seq_len) | _padded_fields("source", source, seq_len))


class ContrastiveDataLoader(_SequenceDataLoader):
    """Positive pairs for contrastive training: the two sides of a pair, or two texts with the same label."""

    def _make_batch(self, split: str, indices: TokenIds, seq_len: int, position: int) -> Batch:
        if self.shards.kind == "pairs":
            left, right, labels = ("source", indices), ("target", indices), {}
        else:
            label = self.shards.column(split, "labels").windows(indices, 1)[:, 0]
            positives = self._draw_positives(split, indices, label, position)
            left, right, labels = ("tokens", indices), ("tokens", positives), {"label": label}
        source, target = self._padded(split, *left), self._padded(split, *right)
        return _to_tensors(_padded_fields("source", source, seq_len) | _padded_fields("", target, seq_len) | labels)

    def _draw_positives(self, split: str, indices: TokenIds, labels: TokenIds, position: int) -> TokenIds:
        """Draw for each text another one with its label (itself if there is none), seeded by the position."""
        by_label, starts = self._index_labels(split)
        rng = np.random.default_rng([self.seed % 2**64, position])
        label_counts = starts[labels + 1] - starts[labels]
        ranks = np.array([np.searchsorted(by_label[starts[label] : starts[label + 1]], text)
                        for text, label in zip(indices, labels, strict=True)])  # fmt: skip
        offsets = np.where(label_counts > 1, 1 + rng.integers(0, np.maximum(label_counts - 1, 1)), 0)
        positives: TokenIds = by_label[starts[labels] + (ranks + offsets) % label_counts]
        return positives

    def _index_labels(self, split: str) -> tuple[TokenIds, TokenIds]:
        if split not in self._label_index:
            column = self.shards.column(split, "labels")
            labels = column.windows(np.arange(len(column)), 1)[:, 0]
            order = np.argsort(labels, kind="stable").astype(np.int64)
            starts = np.searchsorted(labels[order], np.arange(len(self.shards.labels) + 1)).astype(np.int64)
            self._label_index[split] = order, starts
        return self._label_index[split]


DataLoader = WindowDataLoader | _SequenceDataLoader


def _to_tensors(batch: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}


def _window_tensors(batch: WindowBatch) -> dict[str, Tensor]:
    if batch.padding_mask.all():
        return _to_tensors({"ids": batch.inputs, "targets": batch.targets})
    targets = np.where(batch.padding_mask, batch.targets, IGNORE_INDEX)
    return _to_tensors({"ids": batch.inputs, "targets": targets, "padding_mask": batch.padding_mask})


def _shifted(batch: PaddedBatch, seq_len: int) -> dict[str, Array]:
    """Return inputs and targets shifted by one token; padding is no target."""
    ids, padding_mask = batch.ids[:, : seq_len + 1], batch.padding_mask[:, 1 : seq_len + 1]
    return {"ids": ids[:, :-1], "targets": np.where(padding_mask, ids[:, 1:], IGNORE_INDEX)}


def _padded_fields(name: str, batch: PaddedBatch, seq_len: int) -> dict[str, Array]:
    ids, padding_mask = batch.ids[:, :seq_len], batch.padding_mask[:, :seq_len]
    ids_key, mask_key = (name, f"{name}_padding_mask") if name else ("ids", "padding_mask")
    return {ids_key: ids} if padding_mask.all() else {ids_key: ids, mask_key: padding_mask}


def make_data_loader(
    shards: TokenShards, objective: Objective, special: SpecialTokensConfig, source_tokens: SpecialTokens, *,
    seed: int, sample_unit: str = "windows",
) -> DataLoader:  # fmt: skip
    """Return the data loader for an objective: pairs for seq2seq, positive pairs for contrastive, else plain text.

    `sample_unit` applies to next-token prediction: windows of plain text, or whole documents.
    """
    if shards.kind == "chat":
        if type(objective) is not NextToken:
            raise InvalidInput("Conversations train a model that predicts the next token.", hint="peasy train gpt")
        return ChatDataLoader(shards, special, source_tokens, seed=seed)
    if isinstance(objective, Contrastive):
        if shards.kind == "text":
            hint = "For example a .tsv file of pairs."
            raise InvalidInput("Sentence embeddings need pairs or labelled texts.", hint=hint)
        return ContrastiveDataLoader(shards, special, source_tokens, seed=seed)
    pairs = isinstance(objective, Seq2Seq)
    if pairs != (shards.kind == "pairs"):
        expected, given = ("text pairs", "plain text") if pairs else ("plain text", "text pairs")
        raise InvalidInput(f"This model kind trains on {expected}, but the data are {given}.", hint="See: peasy data")
    if pairs:
        return PairDataLoader(shards, special, source_tokens, seed=seed)
    if sample_unit == "documents" and isinstance(objective, NextToken):
        return DocumentDataLoader(shards, special, source_tokens, seed=seed)
    valid = shards.column("valid") if "valid" in shards.splits else None
    return WindowDataLoader(shards.column("train"), valid, seed=seed)
