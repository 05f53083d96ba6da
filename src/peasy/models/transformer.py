"""Transformers with a KV cache: decoder and encoder-decoder; forward context, packed batches, checks of all models."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.models.config import DecoderConfig, EncoderDecoderConfig
from peasy.models.protocol import Interventions, Model, ModelInputs, Taps, require_source
from peasy.nn.embedding import Embedding
from peasy.nn.forward_context import ForwardContext
from peasy.nn.intervention import InterventionLike
from peasy.nn.kv_cache import KVCache, extend_positions
from peasy.nn.lm_head import Classifier, LMHead
from peasy.nn.mask import MaskSpec
from peasy.nn.stack import Stack
from peasy.nn.tap import Tap


class CausalTransformer(Model[KVCache]):
    """Base of the models with a decoder stack and a KV cache."""

    embedding: Embedding
    target_embedding: Embedding | None
    decoder: Stack
    lm_head: LMHead | None

    @property
    def decoder_embedding(self) -> Embedding:
        """Token embedding of the decoder: of its targets, if they have one of their own."""
        return self.target_embedding or self.embedding

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> KVCache:
        return KVCache.empty(self.decoder.windows, capacity)

    def forward_varlen(
        self,
        sequences: Sequence[Sequence[int]],
        states: Sequence[KVCache],
        *,
        all_positions: bool = False,
        tap: Taps = None,
        intervention: Interventions = None,
    ) -> list[Tensor]:
        """Run all new tokens in one packed batch; each attends to the KV cache (and encoder output) of its sequence."""
        if not sequences:
            return []
        if not all(sequences):
            raise InvalidInput("A sequence has no new token.", hint="Leave out sequences without new tokens.")
        embedding, tokens = self.decoder_embedding, [token for sequence in sequences for token in sequence]
        check_token_range(tokens, embedding.token.num_embeddings)
        ids = torch.tensor([tokens], device=embedding.token.weight.device)
        for sequence, cache in zip(sequences, states, strict=True):  # all are checked before a state changes
            embedding.check_length(cache.length + len(sequence))
        contexts, none = [], [None] * len(sequences)
        rows = zip(sequences, states, tap or none, intervention or none, strict=True)
        for sequence, cache, seq_tap, seq_intervention in rows:
            query, key, mask = extend_positions(cache, 1, len(sequence), None, ids.device)
            one = ForwardContext(MaskSpec(query, key, True, mask), cache, seq_tap, seq_intervention)
            if cache.encoder_output is not None:
                _set_encoder_output(one, cache.encoder_output, cache.encoder_padding_mask)
            contexts.append(one)
        positions = torch.cat([one.mask_spec.query_positions for one in contexts], dim=1)
        ctx = ForwardContext(MaskSpec(positions, positions, True), sequences=tuple(contexts))
        hidden = self.decoder(embedding(ids, ctx), ctx)
        if all_positions:
            return list(self.logits(hidden)[0].split(ctx.seq_lens))
        if max(ctx.seq_lens) == 1:
            return list(self.logits(hidden[0]).unbind())
        last = torch.tensor(ctx.seq_lens, device=hidden.device).cumsum(0) - 1
        return list(self.logits(hidden[0, last]).unbind())

    def logits(self, hidden_states: Tensor) -> Tensor:
        if self.lm_head is None:
            raise InvalidInput("This decoder has a classification head and no LM head.", hint="Use peasy classify.")
        return self.lm_head(hidden_states, self.decoder_embedding.token.weight)


class Decoder(CausalTransformer):
    """Causal Transformer: embedding, blocks, and an LM head or a classification head."""

    config: DecoderConfig

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        c, norm = config, config.stack.norm
        self.target_embedding = None
        self.embedding = Embedding(c.vocab_size, c.d_model, c.embedding, c.position, norm, c.max_seq_len, c.dropout)
        self.decoder = Stack("decoder", c.d_model, c.stack, c.position, causal=True, dropout=c.dropout)
        self.lm_head = LMHead(c.vocab_size, c.d_model, c.lm_head, norm) if c.classifier is None else None
        self.classifier = None if c.classifier is None else Classifier(c.d_model, c.classifier, norm)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[KVCache]) -> Tensor:
        ctx = make_context(self.embedding, ids, inputs, causal=True)
        return self.decoder(self.embedding(ids, ctx), ctx)

    def classify(self, ids: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Return the logits of the labels: `[batch, labels]` of the last token, or `[batch, time, labels]`."""
        if self.classifier is None:
            raise InvalidInput("This decoder has no classification head.", hint="Use hidden().")
        hidden = self.hidden(ids, padding_mask=padding_mask)
        if self.classifier.settings.level == "text":
            at = torch.full((len(ids),), ids.shape[1] - 1, device=ids.device)
            if padding_mask is not None:
                at -= padding_mask.int().flip(1).argmax(dim=1)
            hidden = hidden[torch.arange(len(ids), device=ids.device), at]
        return self.classifier(hidden)


class EncoderDecoder(CausalTransformer):
    """Transformer of figure 1: encoder stack, decoder stack with cross-attention, LM head."""

    config: EncoderDecoderConfig
    is_encoder_decoder = True

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__(config)
        c, target_size = config, config.target_vocab_size or config.vocab_size
        self.embedding = self._make_embedding(c.vocab_size)
        self.target_embedding = None
        if c.target_vocab_size or c.target_positions:
            shared = None if c.target_vocab_size else self.embedding.token
            self.target_embedding = self._make_embedding(target_size, shared)
        self.encoder = Stack("encoder", c.d_model, c.encoder, c.position, causal=False, dropout=c.dropout)
        self.decoder = Stack("decoder", c.d_model, c.decoder, c.position, causal=True, cross=True, dropout=c.dropout)
        self.lm_head = LMHead(target_size, c.d_model, c.lm_head, c.decoder.norm)

    def _make_embedding(self, vocab_size: int, tokens: nn.Embedding | None = None) -> Embedding:
        c, norm = self.config, self.config.encoder.norm
        return Embedding(vocab_size, c.d_model, c.embedding, c.position, norm, c.max_seq_len, c.dropout, tokens)

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> KVCache:
        encoded = self.encode(require_source(source), padding_mask=source_padding_mask)
        return self.state_of(encoded, capacity, normalize_padding_mask(source_padding_mask))

    def state_of(self, encoded: Tensor, capacity: int = 0, padding_mask: Tensor | None = None) -> KVCache:
        """Return a KV cache that holds this encoder output."""
        cache = KVCache.empty(self.decoder.windows, capacity)
        cache.encoder_output, cache.encoder_padding_mask = encoded, padding_mask
        return cache

    def encode_steps(self, source: Tensor) -> Iterator[Tensor]:
        """Yield after each block of the encoder, and last its output, so that other work can be done in between."""
        ctx = make_context(self.embedding, source, ModelInputs[KVCache](), causal=False)
        yield from self.encoder.forward_steps(self.embedding(source, ctx), ctx)

    def encode(
        self,
        source: Tensor,
        *,
        padding_mask: Tensor | None = None,
        tap: Tap | None = None,
        intervention: InterventionLike | None = None,
    ) -> Tensor:
        """Return the encoder output, `[batch, time, d_model]`."""
        inputs = ModelInputs[KVCache](padding_mask, tap=tap, intervention=intervention)
        ctx = make_context(self.embedding, source, inputs, causal=False)
        return self.encoder(self.embedding(source, ctx), ctx)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[KVCache]) -> Tensor:
        """Return the decoder's hidden states; a cache from `new_state` already holds the encoder output."""
        ctx = make_context(self.decoder_embedding, ids, inputs, causal=True)
        if ctx.encoder_output is None:
            source, mask = require_source(inputs.source), inputs.source_padding_mask
            encoded = self.encode(source, padding_mask=mask, tap=inputs.tap, intervention=inputs.intervention)
            _set_encoder_output(ctx, encoded, normalize_padding_mask(mask))
        return self.decoder(self.decoder_embedding(ids, ctx), ctx)


def make_context(embedding: Embedding, ids: Tensor, inputs: ModelInputs[KVCache], *, causal: bool) -> ForwardContext:
    """Check the ids and build the forward context of one pass: positions, mask, KV cache, tap, intervention."""
    check_token_ids(ids, embedding.token.num_embeddings)
    cache, (batch, time) = inputs.cache, ids.shape
    padding_mask = normalize_padding_mask(inputs.padding_mask)
    embedding.check_length(time + (0 if cache is None else cache.length))
    query, key, padding_mask = extend_positions(cache, batch, time, padding_mask, ids.device)
    ctx = ForwardContext(MaskSpec(query, key, causal, padding_mask), cache, inputs.tap, inputs.intervention)
    if cache is not None and cache.encoder_output is not None:
        _set_encoder_output(ctx, cache.encoder_output, cache.encoder_padding_mask)
    return ctx


def _set_encoder_output(ctx: ForwardContext, encoder_output: Tensor, padding_mask: Tensor | None) -> None:
    """Let the cross-attention of a pass attend to an encoder output."""
    ctx.encoder_output = encoder_output
    positions = ctx.mask_spec.key_positions.new_zeros(1, encoder_output.shape[1])
    ctx.cross_mask_spec = MaskSpec(ctx.mask_spec.query_positions, positions, causal=False, padding_mask=padding_mask)


def normalize_padding_mask(padding_mask: Tensor | None) -> Tensor | None:
    """Return the padding mask as booleans, or None if there is no padding."""
    if padding_mask is None:
        return None
    padding_mask = padding_mask.bool()
    return None if not torch.compiler.is_compiling() and bool(padding_mask.all()) else padding_mask


def check_token_ids(ids: Tensor, vocab_size: int) -> None:
    """Raise if ids are not `[batch, time]` or outside the vocabulary."""
    if ids.ndim != 2 or not ids.shape[1]:
        hint = "Pass [batch, time] with at least one token, e.g. ids[None]."
        raise InvalidInput(f"ids have the shape {tuple(ids.shape)}.", hint=hint)
    if torch.compiler.is_compiling() or ids.device.type == "meta":
        return
    smallest, largest = ids.aminmax()
    check_token_range((int(smallest), int(largest)), vocab_size)


def check_token_range(ids: Sequence[int], vocab_size: int) -> None:
    """Raise if an id is outside the vocabulary: a tokenizer may have more tokens than the embedding has rows."""
    for id in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= id < vocab_size:
            message = f"There is no token {id}: the vocabulary has ids 0 to {vocab_size - 1}."
            raise InvalidInput(message, hint="Was the text tokenized with this model's own tokenizer?")
