"""`softmax-or-sum`: softmax against division by the sum, on chosen scores and in training."""

from collections.abc import Callable

import numpy as np

from peasy.experiments.result import ExperimentResult, OnStatus, Points, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Outcome, can_reach, decide, effect_size, mean_interval, paired_p_value
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
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 300, normalize: _Normalize = normalize,
    seeds: int = 5,
) -> ExperimentResult:  # fmt: skip
    """Compare weights of chosen and random scores, their derivatives, and training of a small layer with each seed."""
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
    runs = [_train_both(one, steps, on_status) for one in range(seed, seed + seeds)] if steps else []
    return _conclude(weights, derivatives, random, runs, seed)


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
        rng = torch.Generator().manual_seed(seed)
        projections = [torch.nn.Parameter(torch.randn(16, 16, generator=rng) / 4) for _ in range(2)]
        optimizer, points = torch.optim.Adam(projections, lr=0.02), []
        for step in range(steps):
            inputs = torch.randn(32, 8, 16, generator=rng)
            targets = torch.randint(8, (32,), generator=rng)
            query, key = inputs[torch.arange(32), targets][:, None] @ projections[0], inputs @ projections[1]
            if way == "sum":
                query, key = (torch.nn.functional.softplus(vectors) for vectors in (query, key))
            weights = attend(query, key, inputs, normalise=way).weights[:, 0]
            loss = -weights[torch.arange(32), targets].clamp(min=1e-6).log().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % max(steps // 20, 1) == 0 or step == steps - 1:
                points.append((float(step), float(loss.detach())))
        losses[way] = tuple(points)
    return losses


def _conclude(
    weights: dict[str, dict[str, np.ndarray]], derivatives: dict[str, dict[str, float]],
    random: dict[str, dict[str, float]], runs: list[dict[str, Points]], seed: int,
) -> ExperimentResult:  # fmt: skip
    """The trained losses decide, by a paired test over seeds; that softmax gives valid weights is an identity."""
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
            ((name, *(by[way] for way in _WAYS)) for name, by in derivatives.items()),
        ),
    ]
    outcome, losses = Outcome.CANNOT_TELL, {way: [run[way][-1][1] for run in runs] for way in _WAYS}
    if runs:
        p_value = paired_p_value(losses["sum"], losses["softmax"])
        outcome = decide(p_value, can_reach=can_reach(len(runs)))
        verdict += (
            f" Trained to find a key among eight with non-negative scores for the sum, the loss ended at "
            f"{mean_interval(losses['softmax'])} with softmax and {mean_interval(losses['sum'])} with the sum "
            f"(chance: {np.log(8):.3f}; effect size {effect_size(losses['sum'], losses['softmax']):.1f}, "
            f"p = {p_value:.3f})."
        )
        parts.append(curves("Learning to find a key among eight", runs[0], "step", "loss"))
    numbers = {
        "weights": {name: {way: row.tolist() for way, row in by.items()} for name, by in weights.items()},
        "derivatives": derivatives,
        "invalid": random,
        "losses": losses,
    }
    return make_result("softmax-or-sum", tuple(parts), verdict, outcome, numbers, seed)


def is_valid(weights: np.ndarray) -> bool:
    """True for valid weights: between 0 and 1, with sum 1."""
    return bool((weights >= 0).all() and (weights <= 1).all() and abs(weights.sum() - 1) < 1e-9)


def _weights_matrix(way: str, weights: list[np.ndarray]) -> Matrix:
    values = tuple(tuple(float(weight) for weight in row) for row in weights)
    rows = tuple(f"{name} {' '.join(f'{score:g}' for score in scores)}" for name, scores in _SCORES.items())
    wrong = frozenset((i, j) for i, row in enumerate(values) for j, weight in enumerate(row) if not 0 <= weight <= 1)
    keys = ("key 1", "key 2", "key 3")
    return Matrix(way, values, rows, keys, "scores", "weights", shaded=True, marks=wrong)
