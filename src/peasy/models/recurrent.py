"""Recurrent language model: LSTM or GRU."""

from typing import Any

from torch import Tensor, nn

from peasy.models.config import RecurrentConfig
from peasy.models.protocol import Model
from peasy.models.transformer import check_token_ids, normalize_padding_mask
from peasy.nn.forward_context import InterventionLike
from peasy.nn.lm_head import LMHead
from peasy.nn.recurrent import Recurrent, RecurrentState
from peasy.nn.tap import ModulePath, Tap, record_step


class RecurrentModel(Model):
    """Recurrent language model: embedding, LSTM or GRU, LM head."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.decoder = Recurrent(config.cell, config.d_model, config.d_model, config.num_layers, config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.lm_head = LMHead(config.vocab_size, config.d_model, config.lm_head)

    def new_state(self, batch: int = 1, *, capacity: int = 0, **source: Any) -> RecurrentState:
        """Return an empty recurrent state."""
        return RecurrentState()

    def hidden(
        self,
        ids: Tensor,
        *,
        padding_mask: Tensor | None = None,
        cache: RecurrentState | None = None,
        tap: Tap | None = None,
        intervention: InterventionLike | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the hidden states of the top layer."""
        check_token_ids(ids, self.config.vocab_size)
        x = self.dropout(self.embedding(ids))
        record_step(tap, ModulePath("decoder", 0, "stream"), "residual", x)
        outputs, state = self.decoder(
            x, None if cache is None else cache.hidden_state, normalize_padding_mask(padding_mask)
        )
        if cache is not None:
            cache.hidden_state, cache.length = state, cache.length + ids.shape[1]
        record_step(tap, ModulePath("decoder", self.config.num_layers, "stream"), "final", outputs)
        return self.dropout(outputs)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.lm_head(hidden_states, self.embedding.weight)
