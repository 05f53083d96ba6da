"""Effect of the 1/√d_k scale at one width: attention weights of a random query, entropy and softmax gradient."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from peasy.commands.result import Result
from peasy.errors import UsageError
from peasy.experiments.why_root_dk import ScoreStatistics, score_statistics
from peasy.formula import attend
from peasy.views.document import Document, Matrix, Paragraph, Table

NUM_KEYS, NUM_SAMPLES = 8, 200
MAX_D_K = 4096


@dataclass(frozen=True)
class ScaleResult(Result):
    """Attention weights of one query with and without the scale, and average statistics of such weights."""

    d_k: int
    seed: int
    weights: dict[str, tuple[float, ...]]
    statistics: dict[str, ScoreStatistics]

    def document(self) -> Document:
        """Return both rows of weights, and the averages."""
        names = tuple(self.weights)
        keys = tuple(f"key {index + 1}" for index in range(NUM_KEYS))
        rows = tuple((name, *(vars(self.statistics[name]).values())) for name in names)
        return Document(
            f"Why √d_k: d_k = {self.d_k}",
            (
                Matrix("weights", tuple(self.weights.values()), names, keys, "√d_k", "key", shaded=True),
                Table(
                    ("√d_k", "variance of scores", "entropy", "gradient"),
                    rows,
                    f"{NUM_SAMPLES} samples of {NUM_KEYS} keys",
                ),
                Paragraph("Entropy is relative to its maximum; gradient is the norm of the softmax Jacobian.", "note"),
            ),
        )

    def data(self) -> dict[str, Any]:
        """Return weights, variance, entropy and gradient, `without` and `with` the scale."""
        sides = {name: vars(self.statistics[name]) | {"weights": list(row)} for name, row in self.weights.items()}
        return {"d_k": self.d_k, "seed": self.seed, "draws": NUM_SAMPLES, "keys": NUM_KEYS} | sides


def scale(d_k: int = 64, *, seed: int = 0) -> ScaleResult:
    """Attention weights of one random query over random keys of width `d_k`, with and without the scale 1/√d_k.

    >>> result = scale(256)
    >>> result.statistics["without"].variance > 100, result.statistics["with"].variance < 2
    (True, True)
    """
    if not 1 <= d_k <= MAX_D_K:
        raise UsageError(f"d_k must be from 1 to {MAX_D_K:,}, not {d_k}.")
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((1, d_k)), rng.standard_normal((NUM_KEYS, d_k))
    scales = {"without": 1.0, "with": d_k**-0.5}
    weights = {
        name: attend(query, key, np.zeros((NUM_KEYS, 1)), scale=factor).weights[0] for name, factor in scales.items()
    }
    spreads = {
        name: score_statistics(np.random.default_rng(seed), d_k, factor, NUM_KEYS, NUM_SAMPLES)
        for name, factor in scales.items()
    }
    return ScaleResult(d_k, seed, {name: tuple(row.tolist()) for name, row in weights.items()}, spreads)
