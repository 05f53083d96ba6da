"""`why-root-dk`: effect of the scale 1/√d_k on score variance, softmax entropy, gradients and training.

`scale` shows the effect at one width: attention weights of a random query.
"""

import math
from dataclasses import asdict, astuple

import numpy as np

from peasy.commands.result import JsonDict, Result
from peasy.errors import UsageError
from peasy.experiments.models import stories_for_steps, train_temporary
from peasy.experiments.result import ExperimentResult, OnStatus, Points, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, Outcome, claim_outcome
from peasy.formula import attend
from peasy.parameters import Record
from peasy.views.document import Document, DocumentPart, Matrix, Paragraph, Table

MAX_D_K = 4096
"""Largest width that `scale` accepts."""
_WIDTHS = (4, 16, 64, 256, 1024)
_NUM_KEYS, _NUM_SAMPLES = 32, 400
NUM_SHOWN_KEYS, _NUM_SHOWN_SAMPLES = 8, 200


class ScoreStatistics(Record):
    """Attention statistics of random queries and keys of one width: score variance, weight entropy, softmax gradient.

    `entropy` is relative to its maximum; `gradient` is the median norm of the softmax Jacobian.
    """

    variance: float
    entropy: float
    gradient: float


class ScaleResult(Result, repr=True):
    """Attention weights of one query `with` and `without` the scale, and average statistics of such weights."""

    d_k: int
    seed: int
    weights: dict[str, tuple[float, ...]]
    statistics: dict[str, ScoreStatistics]

    def document(self) -> Document:
        """Return both rows of weights, and the averages."""
        keys = tuple(f"key {index + 1}" for index in range(NUM_SHOWN_KEYS))
        rows = tuple((name, *astuple(statistics)) for name, statistics in self.statistics.items())
        title = f"{_NUM_SHOWN_SAMPLES} samples of {NUM_SHOWN_KEYS} keys"
        parts = (
            Matrix("weights", tuple(self.weights.values()), tuple(self.weights), keys, "√d_k", "key", shaded=True),
            Table(("√d_k", "variance of scores", "entropy", "gradient"), rows, title),
            Paragraph("Entropy is relative to its maximum; gradient is the norm of the softmax Jacobian.", "note"),
        )
        return Document(f"Why √d_k: d_k = {self.d_k}", parts)

    def data(self) -> JsonDict:
        """Return weights, variance, entropy and gradient, `without` and `with` the scale."""
        sides = {name: asdict(self.statistics[name]) | {"weights": list(row)} for name, row in self.weights.items()}
        return {"d_k": self.d_k, "seed": self.seed, "draws": _NUM_SHOWN_SAMPLES, "keys": NUM_SHOWN_KEYS} | sides


def scale(d_k: int = 64, *, seed: int = 0) -> ScaleResult:
    """Attention weights of one random query over random keys of width `d_k`, with and without the scale 1/√d_k.

    >>> result = scale(256)
    >>> result.statistics["without"].variance > 100, result.statistics["with"].variance < 2
    (True, True)
    """
    if not 1 <= d_k <= MAX_D_K:
        raise UsageError(f"d_k must be from 1 to {MAX_D_K:,}, not {d_k}.")
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((1, d_k)), rng.standard_normal((NUM_SHOWN_KEYS, d_k))
    weights, statistics = {}, {}
    for name, factor in (("without", 1.0), ("with", d_k**-0.5)):
        weights[name] = tuple(attend(query, key, np.zeros((NUM_SHOWN_KEYS, 1)), scale=factor).weights[0].tolist())
        rng = np.random.default_rng(seed)
        statistics[name] = _score_statistics(rng, d_k, factor, NUM_SHOWN_KEYS, _NUM_SHOWN_SAMPLES)
    return ScaleResult(d_k, seed, weights, statistics)


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 120, scale: float | None = None
) -> ExperimentResult:
    """Measure random attention, then train with and without the scale; `scale` replaces 1/√d_k (the control)."""
    rng = np.random.default_rng(seed)
    on_status("random queries and keys ...")
    unscaled = {width: _score_statistics(rng, width, 1.0) for width in _WIDTHS}
    scaled = {width: _score_statistics(rng, width, scale or width**-0.5) for width in _WIDTHS}
    losses: dict[str, Points] = {}
    for name, factor in (("with 1/√d_k", None), ("without", 1.0)) if steps else ():
        # One wide head; query and key norms are off, as they would replace the scale.
        attention = {"num_heads": 1, "scale": factor, "qk_norm": False}
        settings = {"model": {"d_model": 128, "stack": {"attention": attention}}}
        stories = stories_for_steps(steps)
        trained = train_temporary("gpt", stories, name, on_status, steps=steps, seed=seed, settings=settings)
        losses[name] = trained.validation_curve
    return conclude(unscaled, scaled, losses, seed)


def _score_statistics(
    rng: np.random.Generator, width: int, scale: float, keys: int = _NUM_KEYS, samples: int = _NUM_SAMPLES
) -> ScoreStatistics:
    """Attention statistics of random queries and keys of variance 1."""
    query, key = rng.standard_normal((samples, 1, width)), rng.standard_normal((samples, keys, width))
    steps = attend(query, key, np.zeros((samples, keys, 1)), scale=scale)
    weights = steps.weights[:, 0]
    entropy = -(weights * np.log(weights + 1e-300)).sum(axis=-1) / np.log(keys)
    jacobian = weights[:, :, None] * (np.eye(keys) - weights[:, None])  # d weight / d score
    gradient = np.sqrt((jacobian**2).sum(axis=(1, 2)))
    return ScoreStatistics(float(steps.scaled.var()), float(entropy.mean()), float(np.median(gradient)))


def conclude(
    unscaled: dict[int, ScoreStatistics], scaled: dict[int, ScoreStatistics], losses: dict[str, Points], seed: int
) -> ExperimentResult:
    """The growth of the variance follows from the formula and is only checked; the losses decide, over seeds.

    Halfway between constant variance (power 0) and variance that grows like d_k (power 1) is the limit of the check.
    """
    growth = {"without": _variance_power(unscaled), "with": _variance_power(scaled)}
    narrowest, widest = min(_WIDTHS), max(_WIDTHS)
    gradient_without, gradient_with = (by[widest].gradient / by[narrowest].gradient for by in (unscaled, scaled))
    comparisons = [
        Comparison("the scale keeps the variance", "power of d_k", abs(growth["with"]), "half", 0.5, True, True),
        Comparison(
            "the scale keeps the gradient", "d_k = 1024 relative to 4", gradient_with, "without", gradient_without,
            exact=True,
        ),
    ]  # fmt: skip
    identity = claim_outcome(comparisons) is Outcome.SUPPORTED
    verdict = (
        f"An identity of random vectors{'' if identity else ' does NOT hold with this scale'}: without the scale the "
        f"variance of q·k grows like d_k^{growth['without']:.2f}, and from d_k = {narrowest} to {widest} the softmax "
        f"gradient shrinks to {gradient_without:.1e} of its size. With the scale the variance "
        f"grows like d_k^{growth['with']:.2f}, and the gradient changes to {gradient_with:.2f} of its size."
    )
    columns = [("variance", ".2f"), ("entropy", ".3f"), ("gradient", ".2e")]
    entropies = {
        name: [(float(np.log2(width)), spread.entropy) for width, spread in spreads.items()]
        for name, spreads in (("without", unscaled), ("with 1/√d_k", scaled))
    }
    parts: list[DocumentPart] = [
        table(
            f"{_NUM_SAMPLES} queries and {_NUM_KEYS} keys each, components of variance 1",
            [("d_k", ""), *columns, ("scaled: variance", ".2f"), *columns[1:]],
            ((width, *astuple(unscaled[width]), *astuple(scaled[width])) for width in unscaled),
        ),
        curves("Entropy of the attention weights", entropies, "log2 of d_k", "entropy / maximum"),
    ]
    with_scale, without = (points[-1][1] for points in losses.values()) if losses else (math.nan, math.nan)
    comparisons.append(
        Comparison("training is better with the scale", "loss with it", with_scale, "without", without, lower=True)
    )
    if losses:
        verdict += (
            f" Trained on the stories, the loss ended at {with_scale:.3f} with the scale and {without:.3f} without."
        )
        parts.append(curves("Training on stories, one head with d_k = 128", losses, "step", "validation loss"))
    unscaled_by, scaled_by = ({width: asdict(spread) for width, spread in by.items()} for by in (unscaled, scaled))
    numbers = {"growth": growth, "without": unscaled_by, "with": scaled_by, "training": losses}
    return make_result("why-root-dk", parts, verdict, comparisons, numbers, seed)


def _variance_power(statistics: dict[int, ScoreStatistics]) -> float:
    """Return the power of d_k by which the variance grows: slope of a log-log fit."""
    variances = [spread.variance for spread in statistics.values()]
    return float(np.polyfit(np.log(list(statistics)), np.log(variances), 1)[0])
