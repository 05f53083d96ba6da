"""Which head of a translator aligns: found on many pairs whose words are known to belong together, told by its card."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from peasy.corpora import Corpus, Pair
from peasy.workbench.models import read_card

if TYPE_CHECKING:
    from peasy.workbench.load import LoadedModel

ALIGNS = "aligns"
"""The layer and head on a card."""

PAIRS = 48

Head = tuple[int, int]
"""Layer and head."""


def aligning_head(loaded: "LoadedModel") -> Head | None:
    """The (layer, head) that the model's card names; None without one."""
    told = (read_card(loaded.folder) or {}).get(ALIGNS)
    return None if told is None else (int(told[0]), int(told[1]))


def find_aligning_head(loaded: "LoadedModel", corpus: Corpus, most: int = PAIRS) -> Head | None:
    """The best head on held-out pairs; None where the corpus does not know which words belong together."""
    if not loaded.model.reads_source:
        return None
    known = [pair for pair in corpus.documents("valid") if isinstance(pair, Pair) and pair.alignment]
    return best_head(loaded, known[:: max(1, len(known) // most)][:most]) if known else None


def best_head(loaded: "LoadedModel", pairs: Sequence[Pair]) -> Head:
    """The head whose strongest links are most often the known ones, over all pairs."""
    scores = [head_scores(loaded, pair) for pair in pairs]
    means = {head: float(np.mean([each[head] for each in scores])) for head in scores[0]}
    return max(means, key=lambda head: means[head])


def head_scores(loaded: "LoadedModel", pair: Pair) -> dict[Head, float]:
    """By head, the share of known words of the right translation that look most at a word they come from."""
    found = loaded.look(pair.source, pair.target).alignment(pair.alignment)
    return {(each.place.layer, each.head): float(each.right or 0.0) for each in found.record.scores}
