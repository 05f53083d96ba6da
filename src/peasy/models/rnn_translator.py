"""RNN translator of 2015: recurrent encoder and decoder with additive attention."""

import torch
from torch import Tensor, nn

from peasy.models.config import RecurrentTranslatorConfig
from peasy.models.protocol import Model, ModelInputs, require_source
from peasy.models.transformer import check_token_ids, normalize_padding_mask
from peasy.nn.intervention import edit_activation, edit_single_query, to_intervention
from peasy.nn.lm_head import LMHead
from peasy.nn.module_path import ModulePath
from peasy.nn.recurrent import AdditiveAttention, Recurrent, RecurrentState
from peasy.nn.tap import HEAD_STEPS, Activation, Tap, record_step

_PATH = ModulePath("decoder", 0, "cross_attention")


class RecurrentTranslator(Model[RecurrentState]):
    """Bidirectional encoder, additive attention, decoder; the state before a token is the query for it."""

    config: RecurrentTranslatorConfig
    is_encoder_decoder = True

    def __init__(self, config: RecurrentTranslatorConfig) -> None:
        super().__init__(config)
        width, target = config.d_model, config.target_vocab_size
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.target_embedding = nn.Embedding(target, width) if target else None
        self.encoder = Recurrent(config.cell, width, width // 2, config.num_layers, config.dropout, bidirectional=True)
        self.bridge = nn.Linear(width, width)
        self.attention = AdditiveAttention(width, width, config.d_attention or width)
        self.decoder = Recurrent(config.cell, 2 * width, width, config.num_layers, config.dropout)
        self.combine = nn.Linear(3 * width, width)
        self.dropout = nn.Dropout(config.dropout)
        self.lm_head = LMHead(target or config.vocab_size, width, config.lm_head)

    @property
    def decoder_embedding(self) -> nn.Embedding:
        """Target embedding; the source embedding if they are shared."""
        return self.target_embedding or self.embedding

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> RecurrentState:
        return self._encode(require_source(source), source_padding_mask)

    def _encode(self, source: Tensor, source_padding_mask: Tensor | None, tap: Tap | None = None) -> RecurrentState:
        """Encode the source: the decoder attends to its outputs and starts from its last state."""
        check_token_ids(source, self.config.vocab_size)
        padding_mask = normalize_padding_mask(source_padding_mask)
        outputs, encoder_state = self.encoder(self.dropout(self.embedding(source)), None, padding_mask)
        record_step(tap, ModulePath("encoder", self.config.num_layers, "stream"), "final", outputs)
        last = torch.cat([encoder_state[0][-2], encoder_state[0][-1]], dim=-1)
        hidden = torch.tanh(self.bridge(last)).expand(self.config.num_layers, -1, -1).contiguous()
        state = (hidden,) if self.config.cell == "gru" else (hidden, torch.zeros_like(hidden))
        return RecurrentState(state, 0, outputs, padding_mask)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[RecurrentState]) -> Tensor:
        """Return the vectors before the LM head, computed token by token."""
        state, tap, intervention = inputs.cache, inputs.tap, to_intervention(inputs.intervention)
        if state is None:
            state = self._encode(require_source(inputs.source), inputs.source_padding_mask, tap)
        check_token_ids(ids, self.decoder_embedding.num_embeddings)
        keys, key_mask, path, hidden, attentions = state.encoder_output, state.encoder_padding_mask, _PATH, [], []
        padding_mask, vectors = normalize_padding_mask(inputs.padding_mask), self.dropout(self.decoder_embedding(ids))
        for t in range(ids.shape[1]):
            before, vector, row = state.hidden_state, vectors[:, t : t + 1], state.length + t
            assert before is not None
            assert keys is not None
            query, position = before[0][-1][:, None, None], torch.tensor([[row]], device=ids.device)
            steps = self.attention(query, keys, *edit_single_query(intervention, path, row, key_mask, keys))
            context = edit_activation(intervention, path, "context", steps.context, position)[:, 0].to(vector.dtype)
            if not self.config.use_attention:
                context = context * 0  # the unused weights stay, so that both variants have the same size
            output, after = self.decoder(torch.cat([vector, context], dim=-1), before)
            if padding_mask is not None:
                is_token = padding_mask[None, :, t : t + 1]
                after = tuple(torch.where(is_token, new, old) for new, old in zip(after, before, strict=True))
            state.hidden_state = after
            attentions.append(steps)
            hidden.append(self.dropout(torch.tanh(self.combine(torch.cat([output, context, vector], dim=-1)))))
        state.length += ids.shape[1]
        if tap is not None and tap.wants(_PATH):
            # Pass the requested steps of all decoded tokens to the tap, concatenated as if computed at once.
            rows = tap.resolve_rows(len(attentions))
            for step in (step for step in HEAD_STEPS if step in tap.steps):
                is_kv, caption = step in ("key", "value"), attentions[0].step(step)
                array = attentions[0][step] if is_kv else torch.cat([attentions[row][step] for row in rows], dim=2)
                tap.callback(Activation(_PATH, step, array, (0,), None if is_kv else rows, caption))
        return torch.cat(hidden, dim=1)

    def logits(self, hidden_states: Tensor) -> Tensor:
        return self.lm_head(hidden_states, self.decoder_embedding.weight)
