"""`softmax-or-sum`: softmax against division by the sum, on chosen scores and in training."""

import math
from collections.abc import Callable

import numpy as np

from peasy.experiments.models import fit
from peasy.experiments.result import ExperimentResult, OnStatus, Points, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison
from peasy.extras import require_extra
from peasy.formula import attend
from peasy.views.document import DocumentPart, Matrix

_SCORES = {
    "all alike": (1.0, 1.0, 1.0),
    "positive": (1.0, 2.0, 3.0),
    "one negative": (-1.0, 2.0, 3.0),
    "sum near zero": (-2.0, 1.0, 1.01),
    "one extreme": (1.0, 2.0, 400.0),
    "all shifted by 10": (11.0, 12.0, 13.0),
}
_WAYS = ("softmax", "sum")
_NUM_RANDOM = 200
_Normalize = Callable[[tuple[float, ...], str], np.ndarray]


def normalize(scores: tuple[float, ...], normalization: str) -> np.ndarray:
    """Return the attention weights that the formula gives for these scores."""
    keys = [[score] for score in scores]
    return np.asarray(attend([[1.0]], keys, keys, scoring="dot", normalise=normalization).weights[0])


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 300, normalize: _Normalize = normalize
) -> ExperimentResult:
    """Compare weights of chosen and random scores, their derivatives, and training of a small layer."""
    on_status("chosen scores ...")
    weights = {name: {way: normalize(scores, way) for way in _WAYS} for name, scores in _SCORES.items()}
    derivatives = {
        name: {way: _derivative(normalize, scores, way) for way in _WAYS} for name, scores in _SCORES.items()
    }
    rows = np.random.default_rng(seed).standard_normal((_NUM_RANDOM, 3))
    random = {
        name: {way: float(np.mean([not is_valid(normalize(tuple(row), way)) for row in scores])) for way in _WAYS}
        for name, scores in (("signed", rows), ("non-negative", np.abs(rows)))
    }
    return conclude(weights, derivatives, random, _train_both(seed, steps, on_status) if steps else {}, seed)


def _derivative(normalize: _Normalize, scores: tuple[float, ...], way: str, step: float = 1e-6) -> float:
    """Return the largest derivative of any weight with respect to any score, by finite differences."""
    moved = [tuple(row) for row in np.asarray(scores) + step * np.eye(len(scores))]
    return max(float(np.abs(normalize(row, way) - normalize(scores, way)).max() / step) for row in moved)


def _train_both(seed: int, steps: int, on_status: OnStatus) -> dict[str, Points]:
    """Train queries and keys to find a match among eight; return the loss by step for each normalization.

    The sum gets what it needs: queries and keys are made positive, so that no score is negative and every score has a
    gradient, and weights are valid.
    """
    require_extra("torch")
    import torch

    losses = {}
    for way in _WAYS:
        on_status(f"training with {way} ...")
        start = torch.Generator().manual_seed(seed)
        projections = [torch.nn.Parameter(torch.randn(16, 16, generator=start) / 4) for _ in range(2)]

        def loss(
            rng: torch.Generator, way: str = way, projections: list[torch.nn.Parameter] = projections
        ) -> torch.Tensor:
            inputs, targets = torch.randn(32, 8, 16, generator=rng), torch.randint(8, (32,), generator=rng)
            query, key = inputs[torch.arange(32), targets][:, None] @ projections[0], inputs @ projections[1]
            if way == "sum":
                query, key = (torch.nn.functional.softplus(vectors) for vectors in (query, key))
            weights = attend(query, key, inputs, normalise=way).weights[:, 0]
            likely: torch.Tensor = weights[torch.arange(32), targets].clamp(min=1e-6)
            return -likely.log().mean()

        losses[way] = fit(projections, loss, steps, seed, lr=0.02)
    return losses


def conclude(
    weights: dict[str, dict[str, np.ndarray]], derivatives: dict[str, dict[str, float]],
    random: dict[str, dict[str, float]], losses: dict[str, Points], seed: int,
) -> ExperimentResult:  # fmt: skip
    """The trained losses decide, over seeds; that softmax gives valid weights is an identity."""
    largest = {way: max(by[way] for by in derivatives.values()) for way in _WAYS}
    verdict = (
        f"Of {_NUM_RANDOM} random rows of scores, division by the sum gives invalid weights in "
        f"{random['signed']['sum']:.0%} if scores may be negative and in {random['non-negative']['sum']:.0%} if not; "
        f"softmax in {random['signed']['softmax']:.0%}, by its formula. The largest derivative of a weight is "
        f"{largest['sum']:.3g} with the sum and {largest['softmax']:.3g} with softmax."
    )
    parts: list[DocumentPart] = [
        *(_weights_matrix(way, [by[way] for by in weights.values()]) for way in _WAYS),
        table(
            "Largest derivative of a weight with respect to a score",
            [("scores", ""), *((way, ".3g") for way in _WAYS)],
            ((f"{name}: {_listed(_SCORES[name])}", *(by[way] for way in _WAYS)) for name, by in derivatives.items()),
        ),
    ]
    invalid = random["signed"]["softmax"]
    ends = {way: losses[way][-1][1] if losses else math.nan for way in _WAYS}
    comparisons = (
        Comparison("softmax gives valid weights", "invalid rows", invalid, "allowed", 0.0, lower=True, exact=True),
        Comparison(
            "softmax learns to pick a key", "loss with softmax", ends["softmax"], "sum", ends["sum"], lower=True
        ),
    )
    if losses:
        verdict += (
            f" Trained to find a key among eight with non-negative scores for the sum, the loss ended at "
            f"{ends['softmax']:.3f} with softmax and {ends['sum']:.3f} with the sum (chance: {np.log(8):.3f})."
        )
        parts.append(curves("Learning to find a key among eight", losses, "step", "loss"))
    numbers = {
        "weights": {name: {way: row.tolist() for way, row in by.items()} for name, by in weights.items()},
        "derivatives": derivatives,
        "invalid": random,
        "losses": losses,
    }
    return make_result("softmax-or-sum", parts, verdict, comparisons, numbers, seed)


def _listed(scores: tuple[float, ...]) -> str:
    return ", ".join(f"{score:g}" for score in scores)


def is_valid(weights: np.ndarray) -> bool:
    """True for valid weights: between 0 and 1, with sum 1."""
    return bool((weights >= 0).all() and (weights <= 1).all() and abs(weights.sum() - 1) < 1e-9)


def _weights_matrix(way: str, weights: list[np.ndarray]) -> Matrix:
    values = tuple(tuple(float(weight) for weight in row) for row in weights)
    rows = tuple(map(_listed, _SCORES.values()))
    wrong = frozenset((i, j) for i, row in enumerate(values) for j, weight in enumerate(row) if not 0 <= weight <= 1)
    keys = ("key 1", "key 2", "key 3")
    return Matrix(way, values, rows, keys, "scores", "weights", shaded=True, marks=wrong)
