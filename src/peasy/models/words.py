"""Word embedding model (word2vec): next word from the mean of the last words, or skip-gram."""

from typing import Any

import torch
from torch import Tensor, nn

from peasy.models.config import WordsConfig
from peasy.models.memory import LastWords, recent
from peasy.models.protocol import Model
from peasy.models.transformer import check_ids
from peasy.nn import part
from peasy.nn.head import Head
from peasy.nn.scene import Edit
from peasy.nn.tap import Place, Tap, show


class WordsModel(Model):
    """Word2vec: the mean vector of the last words predicts the next word.

    With the task "skip-gram" a word predicts any of its neighbours.
    """

    config: WordsConfig

    def __init__(self, config: WordsConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocabulary, config.d_model)
        self.head = Head(config.vocabulary, config.d_model, part.Head(tied=False))

    @property
    def window(self) -> int:
        """Number of words from which the next one is predicted."""
        return self.config.window if self.config.task == "next" else 1

    def start(self, batch: int = 1, *, room: int = 0, **source: Any) -> LastWords:
        """Return an empty token window."""
        return LastWords(keep=self.window - 1)

    def hidden(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: LastWords | None = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the mean vector of the last words up to each token."""
        check_ids(ids, self.config.vocabulary)
        new = ids.shape[1]
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real.bool()
        if cache is not None:
            ids, real = cache.extend(ids, real)
        words, mask = recent(ids, real, self.window)
        words, weight = words[:, -new:], mask[:, -new:, :, None].to(self.embedding.weight.dtype)
        x = (self.embedding(words) * weight).sum(dim=2) / weight.sum(dim=2).clamp(min=1)
        show(tap, Place("words", 0, "stream"), "residual", x)
        return x

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next word, or of any neighbour."""
        return self.head(hidden, self.embedding.weight)
