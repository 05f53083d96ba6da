"""Shared model code: token-id and padding checks of all models; forward context and packed batches."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.models.protocol import Interventions, Taps, broadcast
from peasy.nn.embedding import Embedding
from peasy.nn.forward_context import ForwardContext, InterventionLike
from peasy.nn.kv_cache import KVCache, extend_positions
from peasy.nn.mask import MaskSpec
from peasy.nn.tap import Tap


def make_context(
    embedding: Embedding,
    ids: Tensor,
    padding_mask: Tensor | None,
    *,
    causal: bool,
    kv_cache: KVCache | None = None,
    tap: Tap | None = None,
    intervention: InterventionLike | None = None,
) -> ForwardContext:
    """Check the ids and build the forward context of one pass: positions, mask, KV cache, tap, intervention."""
    check_token_ids(ids, embedding.token.num_embeddings)
    batch, time = ids.shape
    embedding.check_length(time + (0 if kv_cache is None else kv_cache.length))
    query, key, padding_mask = extend_positions(kv_cache, batch, time, normalize_padding_mask(padding_mask), ids.device)
    return ForwardContext(MaskSpec(query, key, causal, padding_mask), kv_cache, tap, intervention)


def pack_sequences(
    embedding: Embedding,
    sequences: Sequence[Sequence[int]],
    states: Sequence[KVCache],
    tap: Taps,
    intervention: Interventions,
) -> tuple[Tensor, ForwardContext]:
    """Pack the new tokens of all sequences into `[1, total]`, with their context; check all before a state changes."""
    if not all(sequences):
        raise InvalidInput("A sequence has no new token.", hint="Leave out sequences without new tokens.")
    tokens = [token for sequence in sequences for token in sequence]
    check_token_range(min(tokens), max(tokens), embedding.token.num_embeddings)
    ids = torch.tensor([tokens], device=embedding.token.weight.device)
    for sequence, cache in zip(sequences, states, strict=True):
        embedding.check_length(cache.length + len(sequence))
    contexts = []
    taps, interventions = broadcast(tap, len(sequences)), broadcast(intervention, len(sequences))
    for sequence, cache, seq_tap, seq_intervention in zip(sequences, states, taps, interventions, strict=True):
        query, key, mask = extend_positions(cache, 1, len(sequence), None, ids.device)
        contexts.append(ForwardContext(MaskSpec(query, key, True, mask), cache, seq_tap, seq_intervention))
    positions = torch.cat([ctx.mask_spec.query_positions for ctx in contexts], dim=1)
    return ids, ForwardContext(MaskSpec(positions, positions, True), sequences=tuple(contexts))


def select_logits(
    hidden: Tensor, ctx: ForwardContext, all_positions: bool, to_logits: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Return the logits of each sequence of a packed batch, after its last token or after every token."""
    if all_positions:
        return list(to_logits(hidden)[0].split(ctx.seq_lens))
    if max(ctx.seq_lens) == 1:
        return list(to_logits(hidden[0]).unbind())
    last = torch.tensor(ctx.seq_lens, device=hidden.device).cumsum(0) - 1
    return list(to_logits(hidden[0, last]).unbind())


def normalize_padding_mask(padding_mask: Tensor | None) -> Tensor | None:
    """Return the padding mask as booleans, or None if there is no padding."""
    if padding_mask is None or torch.compiler.is_compiling():
        return None if padding_mask is None else padding_mask.bool()
    padding_mask = padding_mask.bool()
    return None if bool(padding_mask.all()) else padding_mask


def check_token_ids(ids: Tensor, vocab_size: int) -> None:
    """Raise if ids are not `[batch, time]` or outside the vocabulary."""
    if ids.ndim != 2 or not ids.shape[1]:
        raise InvalidInput(
            f"ids have the shape {tuple(ids.shape)}.",
            hint="Pass [batch, time] with at least one token, e.g. ids[None].",
        )
    if torch.compiler.is_compiling() or ids.device.type == "meta":
        return
    smallest, largest = ids.aminmax()
    check_token_range(int(smallest), int(largest), vocab_size)


def check_token_range(smallest: int, largest: int, vocab_size: int) -> None:
    """Raise if ids are outside the vocabulary."""
    if smallest < 0 or largest >= vocab_size:
        invalid = smallest if smallest < 0 else largest
        raise InvalidInput(
            f"Token id {invalid} is outside the vocabulary of this model, 0 to {vocab_size - 1}.",
            hint="Was the text tokenized with this model's own tokenizer?",
        )
