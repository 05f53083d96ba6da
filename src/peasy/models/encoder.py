"""Encoder-only Transformer: bidirectional, with pooling to one vector per text."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.errors import InvalidInput
from peasy.models.config import EncoderConfig
from peasy.models.protocol import Model, ModelInputs
from peasy.models.transformer import make_context
from peasy.nn.embedding import Embedding
from peasy.nn.feedforward import ACTIVATIONS
from peasy.nn.kv_cache import KVCache
from peasy.nn.lm_head import Classifier, LMHead
from peasy.nn.stack import Stack

_MIN_BATCH_TOKENS = 512
"""Tokens that fill the CPU: a batch this large is not extended by longer texts, so nothing is padded."""


class Encoder(Model[KVCache]):
    """Bidirectional Transformer: embedding, blocks; optional pooler, masked-language-model and classification head."""

    config: EncoderConfig

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        c, norm = config, config.stack.norm
        self.embedding = Embedding(c.vocab_size, c.d_model, c.embedding, c.position, norm, c.max_seq_len, c.dropout)
        self.encoder = Stack("encoder", c.d_model, c.stack, c.position, causal=False, dropout=c.dropout)
        self.pooler = nn.Linear(c.d_model, c.d_model) if c.pooler else None
        width = c.embedding.width
        self.lm_head = LMHead(c.vocab_size, c.d_model, c.lm_head, norm, width) if c.lm_head else None
        self.dense = nn.Linear(c.d_model, c.dense.width, bias=c.dense.bias) if c.dense else None
        self.classifier = Classifier(c.d_model, c.classifier, norm) if c.classifier else None

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> KVCache:
        """Raise: an encoder cannot decode token by token."""
        message = "An encoder cannot generate text: it has no KV cache."
        raise InvalidInput(message, hint="Use a decoder to generate, or embed the text.")

    def _hidden(self, ids: Tensor, inputs: ModelInputs[KVCache]) -> Tensor:
        ctx = make_context(self.embedding, ids, inputs, causal=False)
        return self.encoder(self.embedding(ids, ctx, inputs.segments), ctx)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the token at each position (masked language model)."""
        if self.lm_head is None:
            raise InvalidInput("This encoder has no head for masked tokens.", hint="Use embed() or hidden().")
        return self.lm_head(hidden_states, self.embedding.token.weight)

    def classify(self, ids: Tensor, *, padding_mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Return the logits of the labels: `[batch, labels]` for texts, `[batch, time, labels]` for tokens."""
        if self.classifier is None:
            raise InvalidInput("This encoder has no classification head.", hint="Use embed() or hidden().")
        hidden = self.hidden(ids, padding_mask=padding_mask, segments=segments)
        settings = self.classifier.settings
        if settings.level == "text":
            hidden = self._pooled(hidden, padding_mask, settings.pooling).to(hidden.dtype)
        return self.classifier(hidden)

    def embed(self, ids: Tensor, *, padding_mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Return one vector per text, `[batch, d_model]`, or of the width of the layer after pooling."""
        return self.pool(self.hidden(ids, padding_mask=padding_mask, segments=segments), padding_mask)

    def embed_batch(
        self, sequences: Sequence[Sequence[int]], *, max_batch_tokens: int = 1024, bfloat16: bool = False
    ) -> Tensor:
        """Return the vectors of any number of texts, in their order, without gradients.

        Texts of similar length are batched, about `max_batch_tokens` at a time, so that there is little padding.
        `bfloat16` is used for products only; pooling and normalisation keep the model's precision.
        """
        width = self.config.dense.width if self.config.dense else self.config.d_model
        vectors = torch.empty(len(sequences), width, device=self.device)
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=bfloat16):
            for rows in _length_batches([len(text) for text in sequences], max_batch_tokens):
                ids, mask = pad_sequences([sequences[row] for row in rows])
                vectors[rows] = self.embed(ids.to(self.device), padding_mask=mask.to(self.device)).to(vectors.dtype)
        return vectors

    def pool(self, hidden: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Pool hidden states to one vector per text; half precision is summed in float32."""
        pooled, settings = self._pooled(hidden, padding_mask, self.config.pooling), self.config.dense
        if self.dense is not None and settings is not None:
            pooled = self.dense(pooled.to(hidden.dtype))
            pooled = ACTIVATIONS[settings.activation](pooled) if settings.activation else pooled
        pooled = pooled.to(_at_least_float32(pooled))
        return functional.normalize(pooled, dim=-1) if self.config.normalise else pooled

    def _pooled(self, hidden: Tensor, padding_mask: Tensor | None, pooling: str) -> Tensor:
        if pooling == "first" or pooling == "pooler":
            at = 0 if padding_mask is None else padding_mask.int().argmax(dim=1)
            first = hidden[torch.arange(len(hidden)), at]
            return first if self.pooler is None or pooling == "first" else torch.tanh(self.pooler(first))
        if padding_mask is None:
            return hidden.mean(dim=1, dtype=_at_least_float32(hidden)) if pooling == "mean" else hidden.amax(dim=1)
        padding = ~padding_mask.bool()[:, :, None]
        if pooling == "max":
            return hidden.masked_fill(padding, -torch.inf).amax(dim=1)
        total = hidden.masked_fill(padding, 0).sum(dim=1, dtype=_at_least_float32(hidden))
        return total / padding_mask.sum(dim=1, keepdim=True).clamp(min=1)


def _at_least_float32(array: Tensor) -> torch.dtype:
    return torch.promote_types(array.dtype, torch.float32)


def _length_batches(lengths: list[int], max_batch_tokens: int) -> Iterator[list[int]]:
    """Group texts into batches of at most `max_batch_tokens`, of one length where there are enough of them."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if batch:
            longer, num_tokens = lengths[row] > lengths[batch[0]], lengths[batch[-1]] * len(batch)
            if lengths[row] * (len(batch) + 1) > max_batch_tokens or (longer and num_tokens >= _MIN_BATCH_TOKENS):
                yield batch
                batch = []
        batch.append(row)
    if batch:
        yield batch


def pad_sequences(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad texts on the right; return ids and padding mask (True = token).

    >>> pad_sequences([[5, 6, 7], [8]])[0].tolist()
    [[5, 6, 7], [8, 0, 0]]
    """
    longest = max(len(text) for text in sequences)
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in sequences])
    lengths = torch.tensor([len(text) for text in sequences])
    return ids, torch.arange(longest) < lengths[:, None]
