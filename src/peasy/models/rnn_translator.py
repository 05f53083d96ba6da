"""RNN translator of 2015: recurrent encoder and decoder with additive attention."""

import torch
from torch import Tensor, nn

from peasy.formula import AttentionSteps
from peasy.models.config import RecurrentTranslatorConfig
from peasy.models.protocol import Model, ModelInputs, require_source
from peasy.models.transformer import check_token_ids, normalize_padding_mask
from peasy.nn.intervention import Intervention, edit_activation, edit_single_query, to_intervention
from peasy.nn.lm_head import LMHead
from peasy.nn.module_path import ModulePath
from peasy.nn.recurrent import AdditiveAttention, Recurrent, RecurrentState
from peasy.nn.tap import HEAD_STEPS, Activation, Tap, record_step

_ATTENTION_PATH = ModulePath("decoder", 0, "cross_attention")


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
        decode_state, tap = inputs.cache, inputs.tap
        if decode_state is None:
            decode_state = self._encode(require_source(inputs.source), inputs.source_padding_mask, tap)
        check_token_ids(ids, self.decoder_embedding.num_embeddings)
        assert decode_state.encoder_output is not None
        padding_mask, vectors = normalize_padding_mask(inputs.padding_mask), self.dropout(self.decoder_embedding(ids))
        hidden, attentions, intervention = [], [], to_intervention(inputs.intervention)
        for t in range(ids.shape[1]):
            mask = None if padding_mask is None else padding_mask[:, t : t + 1]
            steps, output = self._decode_step(decode_state, t, vectors[:, t : t + 1], mask, intervention)
            attentions.append(steps)
            hidden.append(output)
        decode_state.length += ids.shape[1]
        if tap is not None and tap.wants(_ATTENTION_PATH):
            # Pass the requested steps of all decoded tokens to the tap, concatenated as if computed at once.
            rows = tap.resolve_rows(len(attentions))
            for step in (step for step in HEAD_STEPS if step in tap.steps):
                is_kv, caption = step in ("key", "value"), attentions[0].step(step)
                array = attentions[0][step] if is_kv else torch.cat([attentions[row][step] for row in rows], dim=2)
                tap.callback(Activation(_ATTENTION_PATH, step, array, (0,), None if is_kv else rows, caption))
        return torch.cat(hidden, dim=1)

    def _decode_step(
        self,
        decode_state: RecurrentState,
        t: int,
        token_vector: Tensor,
        padding_mask: Tensor | None,
        intervention: Intervention | None,
    ) -> tuple[AttentionSteps, Tensor]:
        assert decode_state.hidden_state is not None
        assert decode_state.encoder_output is not None
        query = decode_state.hidden_state[0][-1][:, None, None]
        row = decode_state.length + t
        keys, mask = decode_state.encoder_output, decode_state.encoder_padding_mask
        steps = self.attention(query, keys, *edit_single_query(intervention, _ATTENTION_PATH, row, mask, keys))
        positions = torch.tensor([[row]], device=token_vector.device)
        context = edit_activation(intervention, _ATTENTION_PATH, "context", steps.context, positions)[:, 0]
        context = context.to(token_vector.dtype)
        if not self.config.use_attention:
            context = context * 0  # the unused weights stay, so that both variants have the same size
        output, state = self.decoder(torch.cat([token_vector, context], dim=-1), decode_state.hidden_state)
        if padding_mask is not None:
            pairs = zip(state, decode_state.hidden_state, strict=True)
            state = tuple(torch.where(padding_mask[None], after, before) for after, before in pairs)
        decode_state.hidden_state = state
        return steps, self.dropout(torch.tanh(self.combine(torch.cat([output, context, token_vector], dim=-1))))

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.lm_head(hidden_states, self.decoder_embedding.weight)
