"""Objectives: what a model is asked for, and how wrong its answer was.

An objective gives the sum of the losses of a batch and how many answers it is the sum of. The mean over several
batches, or over several processes, is then exact however they are cut.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from peasy.errors import InvalidInput
from peasy.models.config import Config
from peasy.models.encoder import Encoder
from peasy.models.ngram import NGramModel
from peasy.models.protocol import Model
from peasy.models.words import WordsModel
from peasy.nn.part import check

Batch = Mapping[str, Tensor]
"""Arrays by name: ids, targets, real, source, source_real, label; `[batch, time]`."""

HIDDEN = -100
"""The target of a place that nobody is asked about."""


class Objective(ABC):
    """What is asked of a model for each batch."""

    kind: ClassVar[str]

    def prepare(self, batch: Batch, config: Config, chance: torch.Generator) -> Batch:
        """The batch as a model of this `config` is asked; `chance` depends only on seed and place."""
        return batch

    @abstractmethod
    def count(self, batch: Batch) -> int:
        """How many answers are asked for."""

    @abstractmethod
    def total(self, model: Model, batch: Batch) -> Tensor:
        """The sum of the losses of all answers, in float32."""


@dataclass(frozen=True)
class NextToken(Objective):
    """After each token, the next one; from a word, or from a window of words, the next word."""

    kind: ClassVar[str] = "next-token"

    def count(self, batch: Batch) -> int:
        """Every target."""
        return int((batch["targets"] != HIDDEN).sum())

    def total(self, model: Model, batch: Batch) -> Tensor:
        """Cross-entropy of the next token."""
        return _cross_entropy(model(batch["ids"], real=batch.get("real")), batch["targets"])


@dataclass(frozen=True)
class MaskedToken(Objective):
    """Some tokens are covered and must be guessed from both sides.

    Of the `share` that is asked about, most are covered by the mask token, some by a random one, some not at all.
    """

    kind: ClassVar[str] = "masked-token"
    share: float = 0.15
    covered: float = 0.8
    swapped: float = 0.1

    def __post_init__(self) -> None:
        check(self, share=0, covered=0, swapped=0)
        if not 0 < self.share < 1 or self.covered + self.swapped > 1:
            raise InvalidInput("share, covered and swapped are shares.", hint="Each is at most 1, and so is the sum.")

    def prepare(self, batch: Batch, config: Config, chance: torch.Generator) -> Batch:
        """Choose and cover tokens; at least one of each batch."""
        ids, mask = batch["ids"], config.special.mask
        if mask is None:
            raise InvalidInput("The tokenizer has no mask token, so nothing can be covered.", hint="Train a new one.")
        real = batch.get("real")
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        drawn = torch.rand(ids.shape, generator=chance).masked_fill(~real, 2.0)
        asked = drawn < max(self.share, float(drawn.min()) + 1e-9)
        how = torch.rand(ids.shape, generator=chance)
        others = torch.randint(0, config.vocabulary, ids.shape, generator=chance)
        shown = torch.where(asked & (how < self.covered), mask, ids)
        shown = torch.where(asked & (how >= 1 - self.swapped), others, shown)
        return dict(batch) | {"ids": shown, "targets": torch.where(asked, ids, HIDDEN)}

    def count(self, batch: Batch) -> int:
        """Every token that is asked about."""
        return int((batch["targets"] != HIDDEN).sum())

    def total(self, model: Model, batch: Batch) -> Tensor:
        """Cross-entropy at the places that are asked about; only those are scored."""
        asked = batch["targets"] != HIDDEN
        hidden = model.hidden(batch["ids"], real=batch.get("real"))
        return _cross_entropy(model.scores(hidden[asked]), batch["targets"][asked])


@dataclass(frozen=True)
class SourceToTarget(Objective):
    """The target of a source, token by token; `smoothing` of the chance is spread over all words."""

    kind: ClassVar[str] = "source-to-target"
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        check(self, smoothing=0)
        if self.smoothing >= 1:
            raise InvalidInput(f"smoothing is {self.smoothing}.", hint="smoothing must be below 1.")

    def count(self, batch: Batch) -> int:
        """Every token of the targets."""
        return int((batch["targets"] != HIDDEN).sum())

    def total(self, model: Model, batch: Batch) -> Tensor:
        """Cross-entropy with smoothed labels while learning, without them while looking."""
        asked = batch["targets"] != HIDDEN
        hidden = model.hidden(
            batch["ids"], real=batch.get("real"), source=batch["source"], source_real=batch.get("source_real")
        )
        smoothing = self.smoothing if model.training else 0.0
        return _cross_entropy(model.scores(hidden[asked]), batch["targets"][asked], smoothing)


@dataclass(frozen=True)
class Contrastive(Objective):
    """Two texts that belong together get near vectors, all others of the batch stay apart.

    `temperature` says how sharply. Texts of the same label are never pushed apart.
    """

    kind: ClassVar[str] = "contrastive"
    temperature: float = 0.05

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InvalidInput(f"temperature is {self.temperature}.", hint="temperature must be above 0.")

    def count(self, batch: Batch) -> int:
        """Every pair."""
        return len(batch["ids"])

    def total(self, model: Model, batch: Batch) -> Tensor:
        """Cross-entropy of finding the partner among all texts of the batch, both ways."""
        if not isinstance(model, Encoder):
            raise InvalidInput("Sentence vectors are learned by an encoder.", hint="peasy train encoder")
        left = functional.normalize(model.embed(batch["source"], real=batch.get("source_real")).float(), dim=-1)
        right = functional.normalize(model.embed(batch["ids"], real=batch.get("real")).float(), dim=-1)
        scores = left @ right.mT / self.temperature
        right_one = torch.arange(len(scores), device=scores.device)
        if "label" in batch:
            same = batch["label"][:, None] == batch["label"]
            scores = scores.masked_fill(same & (right_one[:, None] != right_one), -torch.inf)
        ways = (functional.cross_entropy(each, right_one, reduction="sum") for each in (scores, scores.mT))
        return sum(ways, start=scores.new_zeros(())) / 2


@dataclass(frozen=True)
class SkipGram(Objective):
    """From each word, every neighbour up to the model's window on either side."""

    kind: ClassVar[str] = "skip-gram"
    window: int = 4

    def __post_init__(self) -> None:
        check(self, window=1)

    def count(self, batch: Batch) -> int:
        """Every neighbour of every word."""
        rows, time = batch["ids"].shape
        return rows * sum(2 * (time - far) for far in range(1, min(self.window, time - 1) + 1))

    def total(self, model: Model, batch: Batch) -> Tensor:
        """Cross-entropy of the neighbours; the scores of a word are computed once for all of them."""
        if not isinstance(model, WordsModel):
            raise InvalidInput("Neighbours are learned by word vectors.", hint="peasy train words")
        ids = batch["ids"]
        chances = functional.log_softmax(model(ids).float(), dim=-1)
        found = chances.new_zeros(())
        for far in range(1, min(self.window, ids.shape[1] - 1) + 1):
            after = chances[:, :-far].gather(2, ids[:, far:, None])
            before = chances[:, far:].gather(2, ids[:, :-far, None])
            found = found - after.sum() - before.sum()
        return found


@dataclass(frozen=True)
class Counting(NextToken):
    """Every row of words is counted, once; the loss is how surprising it was before it was counted."""

    kind: ClassVar[str] = "counting"

    def observe(self, model: Model, batch: Batch) -> None:
        """Count the rows of a batch."""
        if not isinstance(model, NGramModel):
            raise InvalidInput("Only an n-gram model counts.", hint="peasy train ngram")
        model.observe(batch["ids"], batch.get("real"))


AnyObjective = NextToken | MaskedToken | SourceToTarget | Contrastive | SkipGram | Counting


def _cross_entropy(scores: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Summed over all targets that are asked for, in float32 whatever the scores are."""
    return functional.cross_entropy(
        scores.flatten(0, -2).float(),
        targets.flatten(),
        reduction="sum",
        ignore_index=HIDDEN,
        label_smoothing=smoothing,
    )
