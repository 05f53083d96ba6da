"""Similarity of two sentences as a document: cosine as a sum over pairs of words."""

import numpy as np

from peasy.inspection.results import Similarity
from peasy.views.document import Document, DocumentPart, Links, Matrix, Paragraph, Table

TOP_PAIRS = 8


def similarity_document(similarity: Similarity) -> Document:
    """Document with the cosine similarity, the pairs that contribute most, and the matrix of all pairs."""
    pairs = np.asarray(similarity.pairs, dtype=float)
    first, second = similarity.first.words, similarity.second.words
    order = np.argsort(-np.abs(pairs), axis=None)[:TOP_PAIRS]
    rows = tuple(
        (first[i], second[j], float(pairs[i, j])) for i, j in (np.unravel_index(flat, pairs.shape) for flat in order)
    )
    above = pairs - max(
        float(pairs.mean()), 0.0
    )  # relative to the mean, so that links differ even if all pairs contribute about the same
    share = np.clip(above / max(float(above.max()), 1e-9), 0, 1)
    parts: list[DocumentPart] = [
        Paragraph(f"Cosine similarity {similarity.cosine:.4f}; sum over all pairs of words: {pairs.sum():.4f}."),
        Table(("first sentence", "second sentence", "contribution"), rows, "Largest contributions"),
        Links(
            "Largest contributions", first, second, share, "first sentence", "second sentence", min_weight=0.1,
            description="The strength of a line is the contribution of its pair above the average of all pairs.",
        ),
        Matrix("pairs", tuple(map(tuple, pairs.tolist())), first, second, "first", "second", shaded=True,
               description="The sum of all cells is the cosine similarity."),
    ]  # fmt: skip
    return Document(f"{similarity.first.text} / {similarity.second.text}", tuple(parts))
