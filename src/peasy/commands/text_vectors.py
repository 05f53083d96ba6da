"""Text vectors: tokenize, truncate to the context, run in batches of similar length, pool the hidden states."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from peasy.errors import InvalidInput
from peasy.tokenization import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from peasy.models.protocol import Model

Pooling = Literal["mean", "cls", "last"]
"""How hidden states become one vector: their mean, the first one or the last one."""

_BATCH_SIZE = 32


def embed_texts(
    model: "Model", tokenizer: Tokenizer, texts: Sequence[str], bfloat16: bool = False, pooling: Pooling | None = None
) -> np.ndarray:
    """Return one float32 row per text, in order; texts longer than the model's maximum length are truncated.

    Without `pooling` an encoder uses the pooling it was trained with.
    """
    if not texts:
        raise InvalidInput("There is no text to embed.")
    if pooling not in (None, "mean", "cls", "last"):
        raise InvalidInput(f'There is no pooling "{pooling}".', hint="Choose mean, cls or last.")
    config: Any = model.config
    max_length = getattr(config, "max_length", None) or getattr(config, "max_seq_len", None)
    ids = [truncate_ids(sequence, tokenizer, max_length) for sequence in tokenizer.encode_batch_ids(texts)]
    check_ids(ids, config.vocab_size)
    if pooling is None:
        encoder: Any = model
        return encoder.embed_batch(ids, bfloat16=bfloat16).float().cpu().numpy()
    return _embed_pooled(model, ids, pooling)


def _embed_pooled(model: "Model", sequences: list[list[int]], pooling: Pooling) -> np.ndarray:
    import torch

    from peasy.models.encoder import pad_sequences

    vectors = np.empty((len(sequences), model.config.d_model), np.float32)  # type: ignore[union-attr]
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    for start in range(0, len(order), _BATCH_SIZE):
        rows = order[start : start + _BATCH_SIZE]
        ids, padding_mask = (tensor.to(model.device) for tensor in pad_sequences([sequences[row] for row in rows]))
        with torch.inference_mode():
            hidden = model.hidden(ids, padding_mask=padding_mask).float()
            vectors[rows] = _pool(hidden, padding_mask, pooling).cpu().numpy()
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _pool(hidden: "Tensor", padding_mask: "Tensor", pooling: Pooling) -> "Tensor":
    """Pool hidden states `[batch, time, d_model]`, right-padded, into `[batch, d_model]`."""
    if pooling == "cls":
        return hidden[:, 0]
    lengths = padding_mask.sum(dim=1)
    if pooling == "last":
        return hidden[range(len(hidden)), lengths - 1]
    return hidden.masked_fill(~padding_mask[:, :, None], 0).sum(dim=1) / lengths[:, None]


def check_ids(sequences: Sequence[Sequence[int]], vocab_size: int) -> None:
    """Raise if an id is not below the vocabulary size: a tokenizer may have more tokens than the embedding has rows."""
    largest = max((max(row, default=0) for row in sequences), default=0)
    if largest >= vocab_size:
        raise InvalidInput(
            f"The text has a token with id {largest:,}, but the model's vocabulary size is {vocab_size:,}.",
            hint="The tokenizer and the weights do not match, or a token was added to one of them.",
        )


def truncate_ids(ids: list[int], tokenizer: Tokenizer, max_length: int | None) -> list[int]:
    """Truncate ids to the context; a final eos is kept, because an encoder expects it."""
    if not ids:
        raise InvalidInput("An empty text has no tokens to embed.")
    if max_length is None or len(ids) <= max_length:
        return ids
    return [*ids[: max_length - 1], ids[-1]] if ids[-1] == tokenizer.special_tokens.eos else ids[:max_length]
