"""Recurrent language model: LSTM or GRU."""

from torch import Tensor, nn

from peasy.models.config import RecurrentConfig
from peasy.models.protocol import Model, ModelInputs
from peasy.models.transformer import check_token_ids, normalize_padding_mask
from peasy.nn.lm_head import LMHead
from peasy.nn.module_path import ModulePath
from peasy.nn.recurrent import Recurrent, RecurrentState
from peasy.nn.tap import record_step


class RecurrentModel(Model[RecurrentState]):
    """Recurrent language model: embedding, LSTM or GRU, LM head."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.decoder = Recurrent(config.cell, config.d_model, config.d_model, config.num_layers, config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.lm_head = LMHead(config.vocab_size, config.d_model, config.lm_head)

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> RecurrentState:
        return RecurrentState()

    def _hidden(self, ids: Tensor, inputs: ModelInputs[RecurrentState]) -> Tensor:
        check_token_ids(ids, self.config.vocab_size)
        x, cache = self.dropout(self.embedding(ids)), inputs.cache
        record_step(inputs.tap, ModulePath("decoder", 0, "stream"), "residual", x)
        old_state = None if cache is None else cache.hidden_state
        outputs, state = self.decoder(x, old_state, normalize_padding_mask(inputs.padding_mask))
        if cache is not None:
            cache.hidden_state, cache.length = state, cache.length + ids.shape[1]
        record_step(inputs.tap, ModulePath("decoder", self.config.num_layers, "stream"), "final", outputs)
        return self.dropout(outputs)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.lm_head(hidden_states, self.embedding.weight)
