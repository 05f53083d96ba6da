"""Encoder-only Transformer: bidirectional, with pooling to one vector per text."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.errors import InvalidInput
from peasy.models.config import EncoderConfig
from peasy.models.protocol import Memory, Model
from peasy.models.transformer import set_scene
from peasy.nn.embedding import Embedding
from peasy.nn.head import Head
from peasy.nn.scene import Edit
from peasy.nn.stack import Stack
from peasy.nn.tap import Tap

ENOUGH = 512
"""Tokens that fill the CPU: a batch this large is not extended by longer texts, so nothing is padded."""


class Encoder(Model):
    """Bidirectional Transformer: embedding, blocks, optional pooler and masked-language-model head."""

    config: EncoderConfig

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        norm = config.stack.norm
        self.embedding = Embedding(
            config.vocabulary, config.d_model, config.embedding, config.position, norm, config.context, config.dropout
        )
        self.encoder = Stack(
            "encoder", config.d_model, config.stack, config.position, causal=False, dropout=config.dropout
        )
        self.pooler = nn.Linear(config.d_model, config.d_model) if config.pooler else None
        self.head = Head(config.vocabulary, config.d_model, config.head, norm) if config.head else None

    def start(self, batch: int = 1, *, room: int = 0, **source: Any) -> Memory:
        """Raise: an encoder cannot decode token by token."""
        raise InvalidInput(
            "An encoder cannot generate text: it has no KV cache.", hint="Use a decoder to generate, or embed the text."
        )

    def hidden(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: None = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        segments: Tensor | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the hidden states of the last layer."""
        ctx = set_scene(self.embedding, ids, real, causal=False, tap=tap, edit=edit)
        return self.encoder(self.embedding(ids, ctx, segments), ctx)

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits of the token at each position (masked language model)."""
        if self.head is None:
            raise InvalidInput("This encoder has no head for masked tokens.", hint="Use embed() or hidden().")
        return self.head(hidden, self.embedding.token.weight)

    def embed(self, ids: Tensor, *, real: Tensor | None = None, **more: Any) -> Tensor:
        """Return one vector per text, `[batch, d_model]`."""
        return self.pool(self.hidden(ids, real=real, **more), real)

    def embed_many(self, texts: Sequence[Sequence[int]], *, tokens: int = 1024, half: bool = False) -> Tensor:
        """Return the vectors of any number of texts, in their order, without gradients.

        Texts of similar length are batched, about `max_batch_tokens` at a time, so that there is little padding.
        `bfloat16` is used for products only; pooling and normalisation keep the model's precision.
        """
        vectors = torch.empty(len(texts), self.config.d_model, device=self.device)
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            for rows in _batches([len(text) for text in texts], tokens):
                ids, real = pad([texts[row] for row in rows])
                vectors[rows] = self.embed(ids.to(self.device), real=real.to(self.device)).to(vectors.dtype)
        return vectors

    def pool(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        """Pool hidden states to one vector per text; half precision is summed in float32."""
        pooled = self._pooled(hidden, real)
        pooled = pooled.to(_wide(pooled))
        return functional.normalize(pooled, dim=-1) if self.config.normalise else pooled

    def _pooled(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        pooling = self.config.pooling
        if pooling == "first" or pooling == "pooler":
            first = hidden[:, 0] if real is None else hidden[torch.arange(len(hidden)), real.int().argmax(dim=1)]
            return first if self.pooler is None or pooling == "first" else torch.tanh(self.pooler(first))
        if real is None:
            return hidden.mean(dim=1, dtype=_wide(hidden)) if pooling == "mean" else hidden.amax(dim=1)
        padding = ~real.bool()[:, :, None]
        if pooling == "max":
            return hidden.masked_fill(padding, -torch.inf).amax(dim=1)
        total = hidden.masked_fill(padding, 0).sum(dim=1, dtype=_wide(hidden))
        return total / real.sum(dim=1, keepdim=True).clamp(min=1)


def _wide(array: Tensor) -> torch.dtype:
    return torch.promote_types(array.dtype, torch.float32)


def _batches(lengths: list[int], tokens: int) -> Iterator[list[int]]:
    """Group texts into batches of at most `max_batch_tokens`, of one length where there are enough of them."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if batch:
            longer, num_tokens = lengths[row] > lengths[batch[0]], lengths[batch[-1]] * len(batch)
            if lengths[row] * (len(batch) + 1) > tokens or (longer and num_tokens >= ENOUGH):
                yield batch
                batch = []
        batch.append(row)
    if batch:
        yield batch


def pad(texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad texts on the right; return ids and padding mask (True = token).

    >>> pad([[5, 6, 7], [8]])[0].tolist()
    [[5, 6, 7], [8, 0, 0]]
    """
    longest = max(len(text) for text in texts)
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    lengths = torch.tensor([len(text) for text in texts])
    return ids, torch.arange(longest) < lengths[:, None]
