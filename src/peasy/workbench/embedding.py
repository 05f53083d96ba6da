"""Texts into vectors: cut into tokens, cut to what the model reads, read in batches of like length."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from peasy.errors import InvalidInput
from peasy.text import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from peasy.models.protocol import Model

Pooling = Literal["mean", "cls", "last"]
"""What a text's vector is made of: the mean of its tokens' vectors, the first one, or the last one."""

_ROWS = 32


def embed_texts(
    model: "Model", tokenizer: Tokenizer, texts: Sequence[str], half: bool = False, pooling: Pooling | None = None
) -> np.ndarray:
    """One float32 row for each text, in the order given. Longer texts than the model reads are cut at its end.

    Without `pooling` an encoder's vectors are pooled as it was trained for.
    """
    if not texts:
        raise InvalidInput("There is no text to embed.")
    if pooling not in (None, "mean", "cls", "last"):
        raise InvalidInput(f'There is no pooling "{pooling}".', hint="Choose mean, cls or last.")
    settings: Any = model.config
    longest = getattr(settings, "longest", None) or getattr(settings, "context", None)
    ids = [cut_ids(each, tokenizer, longest) for each in tokenizer.ids(texts)]
    check_ids(ids, settings.vocabulary)
    if pooling is None:
        encoder: Any = model
        return encoder.embed_many(ids, half=half).float().cpu().numpy()
    return _pool_many(model, ids, pooling)


def _pool_many(model: "Model", texts: list[list[int]], pooling: Pooling) -> np.ndarray:
    import torch

    from peasy.models.encoder import pad

    found = np.empty((len(texts), model.config.d_model), np.float32)  # type: ignore[union-attr]
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        ids, real = (each.to(model.device) for each in pad([texts[row] for row in rows]))
        with torch.inference_mode():
            found[rows] = _pool(model.hidden(ids, real=real).float(), real, pooling).cpu().numpy()
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)


def _pool(hidden: "Tensor", real: "Tensor", pooling: Pooling) -> "Tensor":
    """`hidden` `[batch, time, d_model]`, padding at the end."""
    if pooling == "cls":
        return hidden[:, 0]
    lengths = real.sum(dim=1)
    if pooling == "last":
        return hidden[range(len(hidden)), lengths - 1]
    return hidden.masked_fill(~real[:, :, None], 0).sum(dim=1) / lengths[:, None]


def check_ids(rows: Sequence[Sequence[int]], vocabulary: int) -> None:
    """A tokenizer may know more tokens than its model has vectors for; such a token cannot be read."""
    largest = max((max(row, default=0) for row in rows), default=0)
    if largest >= vocabulary:
        raise InvalidInput(
            f"The text has a token with id {largest:,}, and the model reads ids below {vocabulary:,}.",
            hint="Its tokenizer and its weights do not belong together, or a token was added to one of them.",
        )


def cut_ids(ids: list[int], tokenizer: Tokenizer, context: int | None) -> list[int]:
    """The end is kept as it was: an encoder expects its closing token."""
    if not ids:
        raise InvalidInput("An empty text has no tokens to embed.")
    if context is None or len(ids) <= context:
        return ids
    return [*ids[: context - 1], ids[-1]] if ids[-1] == tokenizer.special.eos else ids[:context]
