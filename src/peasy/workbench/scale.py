"""The scale of the scores, at one width: what √d_k does to the weights of a random query, and to their gradient."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from peasy.errors import UsageError
from peasy.formula import attend
from peasy.views.document import Document, Matrix, Paragraph, Table
from peasy.workbench.experiments.why_root_dk import Spread, spread
from peasy.workbench.result import Result

KEYS, DRAWS = 8, 200
WIDEST = 4096


@dataclass(frozen=True)
class ScaleResult(Result):
    """Weights of one query with the division and without, and what such weights are like on average."""

    d_k: int
    seed: int
    weights: dict[str, tuple[float, ...]]
    spreads: dict[str, Spread]

    def document(self) -> Document:
        """Both rows of weights, and the averages."""
        names = tuple(self.weights)
        keys = tuple(f"key {place + 1}" for place in range(KEYS))
        rows = tuple((name, *(vars(self.spreads[name]).values())) for name in names)
        return Document(
            f"Why √d_k: vectors of {self.d_k} numbers",
            (
                Matrix("weights", tuple(self.weights.values()), names, keys, "√d_k", "key", shaded=True),
                Table(("√d_k", "variance of scores", "entropy", "gradient"), rows, f"{DRAWS} draws of {KEYS} keys"),
                Paragraph("Entropy is a share of the largest possible; the gradient is that of the softmax.", "note"),
            ),
        )

    def data(self) -> dict[str, Any]:
        """`without` and `with` the division: weights, variance, entropy and gradient."""
        sides = {name: vars(self.spreads[name]) | {"weights": list(each)} for name, each in self.weights.items()}
        return {"d_k": self.d_k, "seed": self.seed, "draws": DRAWS, "keys": KEYS} | sides


def scale(d_k: int = 64, *, seed: int = 0) -> ScaleResult:
    """One random query against a few random keys of width `d_k`, its weights with the division by √d_k and without.

    >>> found = scale(256)
    >>> found.spreads["without"].variance > 100, found.spreads["with"].variance < 2
    (True, True)
    """
    if not 1 <= d_k <= WIDEST:
        raise UsageError(f"d_k should be from 1 to {WIDEST:,}, not {d_k}.")
    random = np.random.default_rng(seed)
    query, key = random.standard_normal((1, d_k)), random.standard_normal((KEYS, d_k))
    sides = {"without": 1.0, "with": d_k**-0.5}
    weights = {name: attend(query, key, np.zeros((KEYS, 1)), scale=by).weights[0] for name, by in sides.items()}
    spreads = {name: spread(np.random.default_rng(seed), d_k, by, KEYS, DRAWS) for name, by in sides.items()}
    return ScaleResult(d_k, seed, {name: tuple(each.tolist()) for name, each in weights.items()}, spreads)
