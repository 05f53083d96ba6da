"""Why two sentences are alike: their cosine as a sum over pairs of words."""

import numpy as np

from peasy.errors import InvalidInput
from peasy.looking.label import Tokens
from peasy.looking.reading import Reading, run
from peasy.looking.record import Similarity
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model


def explain_similarity(model: Model, first: Tokens, second: Tokens, name: str = "") -> Similarity:
    """Split the cosine of two sentences.

    With mean pooling a sentence's vector is the mean of its tokens' vectors, so the cosine is a sum: each pair of
    tokens brings the product of their vectors, divided by both counts and both lengths.
    """
    if not isinstance(model, Encoder):
        raise InvalidInput(f"{name or 'This model'} is a {type(model.config).kind}: only an encoder embeds sentences.")
    if model.config.pooling != "mean":
        raise InvalidInput(
            f"{name or 'This encoder'} pools by {model.config.pooling}, not by the mean.",
            hint="Only a mean is a sum of its words, which can be taken apart.",
        )
    left, right = (run(model, Reading(tokens.ids))[0].double().cpu().numpy() for tokens in (first, second))
    lengths = np.linalg.norm(left.mean(0)) * np.linalg.norm(right.mean(0))
    pairs = left @ right.T / (len(left) * len(right) * lengths)
    words = np.stack([pairs[list(group)].sum(0) for group in first.groups])
    words = np.stack([words[:, list(group)].sum(1) for group in second.groups], axis=1)
    return Similarity(name, first, second, words, pairs, float(pairs.sum()))
