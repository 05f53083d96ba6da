"""RNN translator of 2015: recurrent encoder and decoder with additive attention."""

from typing import Any

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.formula import AttentionSteps
from peasy.models.config import RecurrentTranslatorConfig
from peasy.models.protocol import Model
from peasy.models.transformer import check_ids, padding_or_none
from peasy.nn.additive import AdditiveAttention
from peasy.nn.edit import Edit, edit_context, edit_row
from peasy.nn.head import Head
from peasy.nn.recurrent import Recurrent, RecurrentMemory, State
from peasy.nn.tap import HEAD_STEPS, Place, Seen, Tap, show

LOOK = Place("decoder", 0, "cross_attention")


class RecurrentTranslator(Model):
    """Bidirectional encoder, additive attention, decoder; the state before a token is the query for it."""

    config: RecurrentTranslatorConfig
    reads_source = True

    def __init__(self, config: RecurrentTranslatorConfig) -> None:
        super().__init__(config)
        width, target = config.d_model, config.target_vocabulary
        self.embedding = nn.Embedding(config.vocabulary, width)
        self.target_embedding = nn.Embedding(target, width) if target else None
        self.encoder = Recurrent(config.cell, width, width // 2, config.layers, config.dropout, both=True)
        self.bridge = nn.Linear(width, width)
        self.attention = AdditiveAttention(width, width, config.d_attention or width)
        self.decoder = Recurrent(config.cell, 2 * width, width, config.layers, config.dropout)
        self.combine = nn.Linear(3 * width, width)
        self.dropout = nn.Dropout(config.dropout)
        self.head = Head(target or config.vocabulary, width, config.head)

    @property
    def writing(self) -> nn.Embedding:
        """Target embedding; the source embedding if they are shared."""
        return self.target_embedding or self.embedding

    def start(
        self,
        batch: int = 1,
        *,
        room: int = 0,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        tap: Tap | None = None,
        **_: Any,
    ) -> RecurrentMemory:
        """Encode the source: the decoder attends to its outputs and starts from its last state."""
        if source is None:
            raise InvalidInput("This model needs a source sequence, but none was given.", hint="Pass source=ids.")
        check_ids(source, self.config.vocabulary)
        real = padding_or_none(source_real)
        outputs, encoder_state = self.encoder(self.dropout(self.embedding(source)), None, real)
        show(tap, Place("encoder", self.config.layers, "stream"), "final", outputs)
        last = torch.cat([encoder_state[0][-2], encoder_state[0][-1]], dim=-1)
        hidden = torch.tanh(self.bridge(last)).expand(self.config.layers, -1, -1).contiguous()
        state = (hidden,) if self.config.cell == "gru" else (hidden, torch.zeros_like(hidden))
        return RecurrentMemory(state, 0, outputs, real)

    def hidden(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: RecurrentMemory | None = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """Return the vectors before the LM head, computed token by token."""
        memory = cache or self.start(source=source, source_real=source_real, tap=tap)
        check_ids(ids, self.writing.num_embeddings)
        assert memory.source is not None
        real, vectors = padding_or_none(real), self.dropout(self.writing(ids))
        hidden, attentions = [], []
        for t in range(ids.shape[1]):
            mask = None if real is None else real[:, t : t + 1]
            steps, output = self._write(memory, t, vectors[:, t : t + 1], mask, edit)
            attentions.append(steps)
            hidden.append(output)
        memory.length += ids.shape[1]
        if tap is not None and tap.wants(LOOK):
            hand_over(tap, attentions)
        return torch.cat(hidden, dim=1)

    def _write(
        self, memory: RecurrentMemory, t: int, word: Tensor, real: Tensor | None, edit: Edit | None
    ) -> tuple[AttentionSteps, Tensor]:
        assert memory.state is not None
        assert memory.source is not None
        query = memory.state[0][-1][:, None, None]
        row = memory.length + t
        steps = self.attention(query, memory.source, *edit_row(edit, LOOK, row, memory.source_real, memory.source))
        positions = torch.tensor([[row]], device=word.device)
        context = edit_context(edit, LOOK, steps.context, positions)[:, 0].to(word.dtype)
        if not self.config.attends:
            context = context * 0  # the unused weights stay, so that both variants have the same size
        output, state = self.decoder(torch.cat([word, context], dim=-1), memory.state)
        memory.state = state if real is None else _keep(real, state, memory.state)
        return steps, self.dropout(torch.tanh(self.combine(torch.cat([output, context, word], dim=-1))))

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.head(hidden, self.writing.weight)


def hand_over(tap: Tap, looks: list[AttentionSteps]) -> None:
    """Pass the requested steps of all decoded tokens to the tap, concatenated as if computed at once."""
    rows = tap.rows_of(len(looks))
    for step in HEAD_STEPS:
        if step not in tap.steps:
            continue
        if step in ("key", "value"):
            tap.hand(Seen(LOOK, step, looks[0][step], (0,), None, looks[0].step(step)))
        else:
            array = torch.cat([looks[row][step] for row in rows], dim=2)
            tap.hand(Seen(LOOK, step, array, (0,), rows, looks[0].step(step)))


def _keep(real: Tensor, new: State, old: State) -> State:
    return tuple(torch.where(real[None], after, before) for after, before in zip(new, old, strict=True))
