"""Recurrent language model: LSTM or GRU."""

from typing import Any

from torch import Tensor, nn

from peasy.models.config import RecurrentConfig
from peasy.models.protocol import Model
from peasy.models.transformer import check_ids, padding_or_none
from peasy.nn.head import Head
from peasy.nn.recurrent import Recurrent, RecurrentMemory
from peasy.nn.scene import Edit
from peasy.nn.tap import Place, Tap, show


class RecurrentModel(Model):
    """Recurrent language model: embedding, LSTM or GRU, LM head."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocabulary, config.d_model)
        self.decoder = Recurrent(config.cell, config.d_model, config.d_model, config.layers, config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.head = Head(config.vocabulary, config.d_model, config.head)

    def start(self, batch: int = 1, *, room: int = 0, **source: Any) -> RecurrentMemory:
        """Return an empty recurrent state."""
        return RecurrentMemory()

    def hidden(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: RecurrentMemory | None = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the hidden states of the top layer."""
        check_ids(ids, self.config.vocabulary)
        x = self.dropout(self.embedding(ids))
        show(tap, Place("decoder", 0, "stream"), "residual", x)
        outputs, state = self.decoder(x, None if cache is None else cache.state, padding_or_none(real))
        if cache is not None:
            cache.state, cache.length = state, cache.length + ids.shape[1]
        show(tap, Place("decoder", self.config.layers, "stream"), "final", outputs)
        return self.dropout(outputs)

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.head(hidden, self.embedding.weight)
