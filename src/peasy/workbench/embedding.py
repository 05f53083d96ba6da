"""Texts into vectors: cut into tokens, cut to what the model reads, read in batches of like length."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.text import Tokenizer

if TYPE_CHECKING:
    from peasy.models.protocol import Model


def embed_texts(model: "Model", tokenizer: Tokenizer, texts: Sequence[str], half: bool = False) -> np.ndarray:
    """One float32 row for each text, in the order given. Longer texts than the model reads are cut at its end."""
    if not texts:
        raise InvalidInput("There is no text to embed.")
    encoder: Any = model
    ids = [_cut(each, tokenizer, encoder.config.longest or encoder.config.context) for each in tokenizer.ids(texts)]
    check_ids(ids, encoder.config.vocabulary)
    return encoder.embed_many(ids, half=half).float().cpu().numpy()


def check_ids(rows: Sequence[Sequence[int]], vocabulary: int) -> None:
    """A tokenizer may know more tokens than its model has vectors for; such a token cannot be read."""
    largest = max((max(row, default=0) for row in rows), default=0)
    if largest >= vocabulary:
        raise InvalidInput(
            f"The text has a token with id {largest:,}, and the model reads ids below {vocabulary:,}.",
            hint="Its tokenizer and its weights do not belong together, or a token was added to one of them.",
        )


def _cut(ids: list[int], tokenizer: Tokenizer, context: int | None) -> list[int]:
    """The end is kept as it was: an encoder expects its closing token."""
    if not ids:
        raise InvalidInput("An empty text has no tokens to embed.")
    if context is None or len(ids) <= context:
        return ids
    return [*ids[: context - 1], ids[-1]] if ids[-1] == tokenizer.special.eos else ids[:context]
