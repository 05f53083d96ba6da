"""Alignment head of a translator: found on pairs with known word alignments, stored in the model card."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from peasy.commands.models import read_card
from peasy.datasets import Corpus, TextPair

if TYPE_CHECKING:
    from peasy.commands.load import LoadedModel

CARD_KEY = "alignment_head"
"""Key of [layer, head] in a model card."""

_MAX_PAIRS = 48

LayerHead = tuple[int, int]
"""(layer, head)."""


def read_alignment_head(loaded: "LoadedModel") -> LayerHead | None:
    """Return the (layer, head) named in the model card, or None."""
    head = (read_card(loaded.folder) or {}).get(CARD_KEY)
    return None if head is None else (int(head[0]), int(head[1]))


def find_alignment_head(loaded: "LoadedModel", corpus: Corpus, max_pairs: int = _MAX_PAIRS) -> LayerHead | None:
    """Return the best head on validation pairs, or None if the corpus has no word alignments."""
    if not loaded.model.is_encoder_decoder:
        return None
    pairs = [pair for pair in corpus.documents("valid") if isinstance(pair, TextPair) and pair.alignment]
    return best_alignment_head(loaded, pairs[:: max(1, len(pairs) // max_pairs)][:max_pairs]) if pairs else None


def best_alignment_head(loaded: "LoadedModel", pairs: Sequence[TextPair]) -> LayerHead:
    """Return the head with the highest mean link accuracy over all pairs."""
    pair_scores = [link_accuracies(loaded, pair) for pair in pairs]
    means = {head: float(np.mean([scores[head] for scores in pair_scores])) for head in pair_scores[0]}
    return max(means, key=lambda head: means[head])


def link_accuracies(loaded: "LoadedModel", pair: TextPair) -> dict[LayerHead, float]:
    """Link accuracy of each head: the share of target words whose largest weight is on an aligned source word."""
    alignment = loaded.look(pair.source, pair.target).alignment(pair.alignment)
    return {(score.path.layer, score.head): float(score.accuracy or 0.0) for score in alignment.scores}
