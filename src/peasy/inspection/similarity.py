"""Sentence similarity explained: the cosine as a sum over pairs of words."""

import numpy as np

from peasy.errors import InvalidInput
from peasy.inspection.forward import ModelInput, forward_hidden
from peasy.inspection.label import Tokens
from peasy.inspection.results import Similarity
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model


def explain_similarity(model: Model, first: Tokens, second: Tokens, name: str = "") -> Similarity:
    """Decompose the cosine of two mean-pooled sentence vectors.

    Each pair of tokens contributes the dot product of its vectors, divided by both token counts and both norms.
    """
    if not isinstance(model, Encoder):
        raise InvalidInput(f"{name or 'This model'} is a {type(model.config).kind}: only an encoder embeds sentences.")
    if model.config.pooling != "mean":
        raise InvalidInput(
            f"{name or 'This encoder'} pools by {model.config.pooling}, not by the mean.",
            hint="Only mean pooling can be decomposed into words.",
        )
    left, right = (
        forward_hidden(model, ModelInput(tokens.ids))[0].double().cpu().numpy() for tokens in (first, second)
    )
    norms = np.linalg.norm(left.mean(0)) * np.linalg.norm(right.mean(0))
    token_pairs = left @ right.T / (len(left) * len(right) * norms)
    word_pairs = np.stack([token_pairs[list(positions)].sum(0) for positions in first.word_positions])
    word_pairs = np.stack([word_pairs[:, list(positions)].sum(1) for positions in second.word_positions], axis=1)
    return Similarity(name, first, second, word_pairs, token_pairs, float(token_pairs.sum()))
