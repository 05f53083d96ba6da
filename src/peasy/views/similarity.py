"""Why two sentences are alike: their cosine as a sum over pairs of words."""

import numpy as np

from peasy.looking.record import Similarity
from peasy.views.document import Document, Links, Matrix, Paragraph, Part, Table

TOP = 8


def similarity_document(similarity: Similarity) -> Document:
    """The cosine, the pairs that make most of it, and all pairs; their sum is the cosine."""
    pairs = np.asarray(similarity.pairs, dtype=float)
    first, second = similarity.first.words, similarity.second.words
    order = np.argsort(-np.abs(pairs), axis=None)[:TOP]
    rows = tuple(
        (first[i], second[j], float(pairs[i, j])) for i, j in (np.unravel_index(o, pairs.shape) for o in order)
    )
    above = pairs - max(float(pairs.mean()), 0.0)  # where all pairs bring about as much, what stands out is the rest
    share = np.clip(above / max(float(above.max()), 1e-9), 0, 1)
    parts: list[Part] = [
        Paragraph(f"Cosine {similarity.cosine:.4f}: the sum of what all pairs of words bring, {pairs.sum():.4f}."),
        Table(("word", "word of the other", "brings"), rows, "What makes most of it"),
        Links(
            "Pairs that bring most", first, second, share, "first sentence", "second sentence", least=0.1,
            says="A line is as strong as what its pair brings above the average of all; the tables have every number.",
        ),
        Matrix("pairs", tuple(map(tuple, pairs.tolist())), first, second, "first", "second", shaded=True,
               says="All cells add up to the cosine."),
    ]  # fmt: skip
    return Document(f"{similarity.first.text} / {similarity.second.text}", tuple(parts))
