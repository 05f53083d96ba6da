"""Recurrent translator of 2015: a decoder that, before each word, looks at what the encoder read."""

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
    """Encoder both ways, additive attention, decoder; the state before a word is the query of that word."""

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
        """The vectors of what is written: the source's own where they share them."""
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
        """Read the source once: its vectors are what the decoder looks at, its end is where the decoder begins."""
        if source is None:
            raise InvalidInput("This model answers a source, and there is none.", hint="Give source=ids.")
        check_ids(source, self.config.vocabulary)
        real = padding_or_none(source_real)
        found, after = self.encoder(self.dropout(self.embedding(source)), None, real)
        show(tap, Place("encoder", self.config.layers, "stream"), "final", found)
        end = torch.cat([after[0][-2], after[0][-1]], dim=-1)
        first = torch.tanh(self.bridge(end)).expand(self.config.layers, -1, -1).contiguous()
        state = (first,) if self.config.cell == "gru" else (first, torch.zeros_like(first))
        return RecurrentMemory(state, 0, found, real)

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
        """The vector before the head, one token after the other."""
        memory = cache or self.start(source=source, source_real=source_real, tap=tap)
        check_ids(ids, self.writing.num_embeddings)
        assert memory.source is not None
        real, words = padding_or_none(real), self.dropout(self.writing(ids))
        found, looks = [], []
        for t in range(ids.shape[1]):
            steps, one = self._write(memory, t, words[:, t : t + 1], None if real is None else real[:, t : t + 1], edit)
            looks.append(steps)
            found.append(one)
        memory.length += ids.shape[1]
        if tap is not None and tap.wants(LOOK):
            hand_over(tap, looks)
        return torch.cat(found, dim=1)

    def _write(
        self, memory: RecurrentMemory, t: int, word: Tensor, real: Tensor | None, edit: Edit | None
    ) -> tuple[AttentionSteps, Tensor]:
        assert memory.state is not None
        assert memory.source is not None
        query = memory.state[0][-1][:, None, None]
        row = memory.length + t
        steps = self.attention(query, memory.source, *edit_row(edit, LOOK, row, memory.source_real, memory.source))
        places = torch.tensor([[row]], device=word.device)
        context = edit_context(edit, LOOK, steps.context, places)[:, 0].to(word.dtype)
        if not self.config.attends:
            context = context * 0  # the weights stay, so that both are of one size; they never learn
        found, state = self.decoder(torch.cat([word, context], dim=-1), memory.state)
        memory.state = state if real is None else _keep(real, state, memory.state)
        return steps, self.dropout(torch.tanh(self.combine(torch.cat([found, context, word], dim=-1))))

    def scores(self, hidden: Tensor) -> Tensor:
        """Scores of the next token."""
        return self.head(hidden, self.writing.weight)


def hand_over(tap: Tap, looks: list[AttentionSteps]) -> None:
    """Hand the asked steps of all written words together, as if they had been computed at once."""
    rows = tap.rows_of(len(looks))
    for step in HEAD_STEPS:
        if step not in tap.steps:
            continue
        if step in ("key", "value"):
            tap.hand(Seen(LOOK, step, looks[0][step], (0,), None, looks[0].step(step)))
        else:
            together = torch.cat([looks[row][step] for row in rows], dim=2)
            tap.hand(Seen(LOOK, step, together, (0,), rows, looks[0].step(step)))


def _keep(real: Tensor, new: State, old: State) -> State:
    return tuple(torch.where(real[None], after, before) for after, before in zip(new, old, strict=True))
