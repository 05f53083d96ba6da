"""Training objectives: next token, masked token, seq2seq, contrastive, skip-gram, n-gram counting.

An objective returns the summed loss of a batch and the number of targets. The mean over micro-batches or processes
is then exact, however the batch is split.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor
from torch.nn import functional

from peasy.errors import InvalidInput
from peasy.models.baselines import NGramModel, Word2VecModel
from peasy.models.config import ModelConfig
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model
from peasy.parameters import BoundedSettings

Batch = Mapping[str, Tensor]
"""Tensors by name: ids, targets, padding_mask, source, source_padding_mask, label; `[batch, time]`."""

IGNORE_INDEX = -100
"""Targets with this value are ignored by the loss."""


class Objective(BoundedSettings, ABC):
    """Loss of a model on a batch."""

    kind: ClassVar[str]

    def prepare(self, batch: Batch, config: ModelConfig, rng: torch.Generator) -> Batch:
        """Return the batch as model input; `rng` depends only on seed and position."""
        return batch

    def num_targets(self, batch: Batch) -> int:
        """Return the number of targets that are not ignored."""
        return int((batch["targets"] != IGNORE_INDEX).sum())

    @abstractmethod
    def loss_sum(self, model: Model, batch: Batch) -> Tensor:
        """Return the summed loss of all targets, in float32."""


class NextToken(Objective):
    """Next-token prediction (causal language modelling)."""

    kind: ClassVar[str] = "next-token"

    def loss_sum(self, model: Model, batch: Batch) -> Tensor:
        return _cross_entropy(model(batch["ids"], padding_mask=batch.get("padding_mask")), batch["targets"])


class MaskedToken(Objective):
    """Masked language modelling, as in BERT.

    A fraction `mask_prob` of tokens are targets: most are replaced by the mask token, some by a random one, some kept.
    """

    kind: ClassVar[str] = "masked-token"
    mask_prob: Annotated[float, Gt(0), Lt(1)] = 0.15
    """Fraction of tokens to predict, between 0 and 1."""
    mask_replace_prob: Annotated[float, Ge(0)] = 0.8
    """Fraction of those that are replaced by the mask token."""
    random_replace_prob: Annotated[float, Ge(0)] = 0.1
    """Fraction of those that are replaced by a random token; the rest is kept."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_replace_prob + self.random_replace_prob > 1:
            message = "mask_replace_prob and random_replace_prob are fractions."
            raise InvalidInput(message, hint="Their sum must be at most 1.")

    def prepare(self, batch: Batch, config: ModelConfig, rng: torch.Generator) -> Batch:
        """Choose targets and mask them; at least one per batch."""
        ids, mask = batch["ids"], config.special_tokens.mask
        if mask is None:
            message = "The tokenizer has no mask token, so no token can be masked."
            raise InvalidInput(message, hint="Train a new tokenizer.")
        padding_mask = batch.get("padding_mask")
        padding_mask = torch.ones_like(ids, dtype=torch.bool) if padding_mask is None else padding_mask
        priority = torch.rand(ids.shape, generator=rng).masked_fill(~padding_mask, 2.0)
        is_target = priority < max(self.mask_prob, float(priority.min()) + 1e-9)
        replacement = torch.rand(ids.shape, generator=rng)
        random_ids = torch.randint(0, config.vocab_size, ids.shape, generator=rng)
        masked_ids = torch.where(is_target & (replacement < self.mask_replace_prob), mask, ids)
        masked_ids = torch.where(is_target & (replacement >= 1 - self.random_replace_prob), random_ids, masked_ids)
        return dict(batch) | {"ids": masked_ids, "targets": torch.where(is_target, ids, IGNORE_INDEX)}

    def loss_sum(self, model: Model, batch: Batch) -> Tensor:
        """Return the cross-entropy at the masked positions; logits are computed only there."""
        is_target = batch["targets"] != IGNORE_INDEX
        hidden = model.hidden(batch["ids"], padding_mask=batch.get("padding_mask"))
        return _cross_entropy(model.logits(hidden[is_target]), batch["targets"][is_target])


class Seq2Seq(Objective):
    """Sequence-to-sequence prediction of the target, with teacher forcing and label smoothing."""

    kind: ClassVar[str] = "seq2seq"
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Probability moved from the target to all tokens evenly, below 1."""

    def loss_sum(self, model: Model, batch: Batch) -> Tensor:
        """Return the cross-entropy, with label smoothing in training mode only."""
        is_target = batch["targets"] != IGNORE_INDEX
        padding, of_source = batch.get("padding_mask"), batch.get("source_padding_mask")
        hidden = model.hidden(batch["ids"], padding_mask=padding, source=batch["source"], source_padding_mask=of_source)
        smoothing = self.label_smoothing if model.training else 0.0
        return _cross_entropy(model.logits(hidden[is_target]), batch["targets"][is_target], smoothing)


class Contrastive(Objective):
    """InfoNCE loss with in-batch negatives: texts that belong together get similar embeddings.

    `temperature` divides the similarities. Texts with the same label are never negatives of each other.
    """

    kind: ClassVar[str] = "contrastive"
    temperature: Annotated[float, Gt(0)] = 0.05
    """Divisor of the similarities, above 0."""

    def num_targets(self, batch: Batch) -> int:
        """Return the number of pairs."""
        return len(batch["ids"])

    def loss_sum(self, model: Model, batch: Batch) -> Tensor:
        """Return the cross-entropy of finding the positive among all texts of the batch, in both directions."""
        if not isinstance(model, Encoder):
            raise InvalidInput("The contrastive objective needs an encoder.", hint="peasy train encoder")
        left = model.embed(batch["source"], padding_mask=batch.get("source_padding_mask")).float()
        right = model.embed(batch["ids"], padding_mask=batch.get("padding_mask")).float()
        left, right = functional.normalize(left, dim=-1), functional.normalize(right, dim=-1)
        similarities = left @ right.mT / self.temperature
        positives = torch.arange(len(similarities), device=similarities.device)
        if "label" in batch:
            same = batch["label"][:, None] == batch["label"]
            similarities = similarities.masked_fill(same & (positives[:, None] != positives), -torch.inf)
        directions = (similarities, similarities.mT)
        losses = (functional.cross_entropy(logits, positives, reduction="sum") for logits in directions)
        return sum(losses, start=similarities.new_zeros(())) / 2


class SkipGram(Objective):
    """Skip-gram: from each word, predict all words within the window on either side."""

    kind: ClassVar[str] = "skip-gram"
    window: Annotated[int, Ge(1)] = 4
    """Largest distance of a predicted neighbour, in words, on either side."""

    def num_targets(self, batch: Batch) -> int:
        """Return the number of (word, neighbour) pairs."""
        rows, time = batch["ids"].shape
        return rows * sum(2 * (time - distance) for distance in range(1, min(self.window, time - 1) + 1))

    def loss_sum(self, model: Model, batch: Batch) -> Tensor:
        """Return the cross-entropy of the neighbours; the logits of a word are computed once for all of them."""
        if not isinstance(model, Word2VecModel):
            raise InvalidInput("The skip-gram objective needs a word-vector model.", hint="peasy train words")
        ids = batch["ids"]
        log_probs = functional.log_softmax(model(ids).float(), dim=-1)
        loss = log_probs.new_zeros(())
        for distance in range(1, min(self.window, ids.shape[1] - 1) + 1):
            after = log_probs[:, :-distance].gather(2, ids[:, distance:, None])
            before = log_probs[:, distance:].gather(2, ids[:, :-distance, None])
            loss = loss - after.sum() - before.sum()
        return loss


class NGramCounting(NextToken):
    """N-gram counting: every sequence is counted once; the loss is measured before counting it."""

    kind: ClassVar[str] = "ngram-counting"

    def count_ngrams(self, model: Model, batch: Batch) -> None:
        """Count the n-grams of a batch."""
        if not isinstance(model, NGramModel):
            raise InvalidInput("The counting objective needs an n-gram model.", hint="peasy train ngram")
        model.add_counts(batch["ids"], batch.get("padding_mask"))


ObjectiveConfig = NextToken | MaskedToken | Seq2Seq | Contrastive | SkipGram | NGramCounting


def _cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Sum the cross-entropy over all targets that are not ignored, in float32."""
    logits, targets = logits.flatten(0, -2).float(), targets.flatten()
    return functional.cross_entropy(
        logits, targets, reduction="sum", ignore_index=IGNORE_INDEX, label_smoothing=label_smoothing
    )
