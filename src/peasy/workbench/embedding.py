"""Text vectors: tokenize, truncate to the context, run in batches of similar length, pool the hidden states."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from peasy.errors import InvalidInput
from peasy.text import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from peasy.models.protocol import Model

Pooling = Literal["mean", "cls", "last"]
"""How hidden states become one vector: their mean, the first one or the last one."""

_ROWS = 32


def embed_texts(
    model: "Model", tokenizer: Tokenizer, texts: Sequence[str], half: bool = False, pooling: Pooling | None = None
) -> np.ndarray:
    """Return one float32 row per text, in order; texts longer than the model's maximum length are truncated.

    Without `pooling` an encoder uses the pooling it was trained with.
    """
    if not texts:
        raise InvalidInput("There is no text to embed.")
    if pooling not in (None, "mean", "cls", "last"):
        raise InvalidInput(f'There is no pooling "{pooling}".', hint="Choose mean, cls or last.")
    config: Any = model.config
    max_length = getattr(config, "longest", None) or getattr(config, "context", None)
    ids = [cut_ids(sequence, tokenizer, max_length) for sequence in tokenizer.ids(texts)]
    check_ids(ids, config.vocabulary)
    if pooling is None:
        encoder: Any = model
        return encoder.embed_many(ids, half=half).float().cpu().numpy()
    return _pool_many(model, ids, pooling)


def _pool_many(model: "Model", sequences: list[list[int]], pooling: Pooling) -> np.ndarray:
    import torch

    from peasy.models.encoder import pad

    vectors = np.empty((len(sequences), model.config.d_model), np.float32)  # type: ignore[union-attr]
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        ids, padding_mask = (tensor.to(model.device) for tensor in pad([sequences[row] for row in rows]))
        with torch.inference_mode():
            hidden = model.hidden(ids, real=padding_mask).float()
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


def check_ids(rows: Sequence[Sequence[int]], vocabulary: int) -> None:
    """Raise if an id is not below the vocabulary size: a tokenizer may have more tokens than the embedding has rows."""
    largest = max((max(row, default=0) for row in rows), default=0)
    if largest >= vocabulary:
        raise InvalidInput(
            f"The text has a token with id {largest:,}, but the model's vocabulary size is {vocabulary:,}.",
            hint="The tokenizer and the weights do not match, or a token was added to one of them.",
        )


def cut_ids(ids: list[int], tokenizer: Tokenizer, context: int | None) -> list[int]:
    """Truncate ids to the context; a final eos is kept, because an encoder expects it."""
    if not ids:
        raise InvalidInput("An empty text has no tokens to embed.")
    if context is None or len(ids) <= context:
        return ids
    return [*ids[: context - 1], ids[-1]] if ids[-1] == tokenizer.special.eos else ids[:context]
