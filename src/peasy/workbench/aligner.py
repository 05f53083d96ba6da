"""Alignment head of a translator: found on pairs with known word alignments, stored in the model card."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from peasy.corpora import Corpus, Pair
from peasy.workbench.models import read_card

if TYPE_CHECKING:
    from peasy.looking.record import Alignment
    from peasy.workbench.load import LoadedModel

ALIGNS = "aligns"
"""Key of [layer, head] in a model card."""

PAIRS = 48

Head = tuple[int, int]
"""(layer, head)."""


def aligning_head(loaded: "LoadedModel") -> Head | None:
    """Return the (layer, head) named in the model card, or None."""
    head = (read_card(loaded.folder) or {}).get(ALIGNS)
    return None if head is None else (int(head[0]), int(head[1]))


def find_aligning_head(loaded: "LoadedModel", corpus: Corpus, most: int = PAIRS) -> Head | None:
    """Return the best head on validation pairs, or None if the corpus has no word alignments."""
    if not loaded.model.reads_source:
        return None
    pairs = [pair for pair in corpus.documents("valid") if isinstance(pair, Pair) and pair.alignment]
    return best_head(loaded, pairs[:: max(1, len(pairs) // most)][:most]) if pairs else None


def best_head(loaded: "LoadedModel", pairs: Sequence[Pair]) -> Head:
    """Return the head with the highest mean link accuracy over all pairs."""
    pair_scores = [head_scores(loaded, pair) for pair in pairs]
    means = {head: float(np.mean([scores[head] for scores in pair_scores])) for head in pair_scores[0]}
    return max(means, key=lambda head: means[head])


def head_scores(loaded: "LoadedModel", pair: Pair) -> dict[Head, float]:
    """Link accuracy of each head: the share of target words whose largest weight is on an aligned source word."""
    alignment: Alignment = loaded.look(pair.source, pair.target).alignment(pair.alignment).record
    return {(score.place.layer, score.head): float(score.right or 0.0) for score in alignment.scores}
