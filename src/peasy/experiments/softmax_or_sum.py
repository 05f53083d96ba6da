"""`softmax-or-sum`: softmax against division by the sum, on chosen scores and in training."""

from collections.abc import Callable

import numpy as np

from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status
from peasy.extras import require_extra
from peasy.formula import attend
from peasy.views.document import Curves, DocumentPart, Matrix, Table

QUESTION = "Attention weights could be scores divided by their sum. What is better about softmax?"
SCORES = {
    "all alike": (1.0, 1.0, 1.0),
    "positive": (1.0, 2.0, 3.0),
    "one negative": (-1.0, 2.0, 3.0),
    "sum near zero": (-2.0, 1.0, 1.01),
    "one extreme": (1.0, 2.0, 400.0),
    "all shifted by 10": (11.0, 12.0, 13.0),
}
NORMALIZATIONS = ("softmax", "sum")
Normalize = Callable[[tuple[float, ...], str], np.ndarray]


def normalize(scores: tuple[float, ...], normalization: str) -> np.ndarray:
    """Return the attention weights that the formula gives for these scores."""
    n = len(scores)
    return attend([[1.0]], [[s] for s in scores], [[0.0]] * n, scoring="dot", normalise=normalization).weights[0]


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 300, normalize: Normalize = normalize
) -> ExperimentResult:
    """Compare weights of chosen scores, their derivatives, and training of a small attention layer."""
    on_status("chosen scores ...")
    weights = {name: {way: normalize(scores, way) for way in NORMALIZATIONS} for name, scores in SCORES.items()}
    curves = train_both(seed, steps, on_status) if steps else {}
    return conclude(weights, largest_derivatives(normalize), curves, seed)


def largest_derivatives(normalize: Normalize) -> dict[str, dict[str, float]]:
    """Return the largest derivative of any weight with respect to any score, by finite differences."""
    largest: dict[str, dict[str, float]] = {}
    for name, scores in SCORES.items():
        largest[name] = {
            way: max(_derivative(normalize, scores, way, key) for key in range(len(scores))) for way in NORMALIZATIONS
        }
    return largest


def _derivative(
    normalize: Normalize, scores: tuple[float, ...], normalization: str, key: int, step: float = 1e-6
) -> float:
    moved = tuple(score + step * (index == key) for index, score in enumerate(scores))
    return float(np.abs(normalize(moved, normalization) - normalize(scores, normalization)).max() / step)


def train_both(seed: int, steps: int, on_status: OnStatus) -> dict[str, tuple[tuple[float, float], ...]]:
    """Train queries and keys to find a match among eight; return the loss by step for each normalization."""
    require_extra("torch")
    import torch

    curves = {}
    for way in NORMALIZATIONS:
        on_status(f"training with {way} ...")
        rng = torch.Generator().manual_seed(seed)
        projections = [torch.nn.Parameter(torch.randn(16, 16, generator=rng) / 4) for _ in range(2)]
        optimizer, points = torch.optim.Adam(projections, lr=0.02), []
        for step in range(steps):
            inputs = torch.randn(32, 8, 16, generator=rng)
            targets = torch.randint(8, (32,), generator=rng)
            query = inputs[torch.arange(32), targets][:, None] @ projections[0]
            weights = attend(query, inputs @ projections[1], inputs, normalise=way).weights[:, 0]
            loss = -weights[torch.arange(32), targets].clamp(min=1e-6).log().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % max(steps // 20, 1) == 0 or step == steps - 1:
                points.append((float(step), float(loss.detach())))
        curves[way] = tuple(points)
    return curves


def conclude(
    weights_by_row: dict[str, dict[str, np.ndarray]],
    derivatives: dict[str, dict[str, float]],
    curves: dict[str, tuple[tuple[float, float], ...]],
    seed: int,
) -> ExperimentResult:
    """Holds if only softmax gives weights from 0 to 1 for all scores, with smaller derivatives and a lower loss."""
    improper = {
        way: [name for name in weights_by_row if not is_valid(weights_by_row[name][way])] for way in NORMALIZATIONS
    }
    largest = {way: max(derivatives[name][way] for name in derivatives) for way in NORMALIZATIONS}
    parts: list[DocumentPart] = [_matrix(way, weights_by_row) for way in NORMALIZATIONS]
    parts.append(Table(*_derivatives_table(derivatives), "Largest derivative of a weight with respect to a score"))
    verdict = (
        f"Division by the sum gives invalid weights in {len(improper['sum'])} of {len(weights_by_row)} rows"
        f"{_in_brackets(improper['sum'])}, softmax in {len(improper['softmax'])}. The largest derivative of a weight "
        f"is {largest['sum']:.3g} with the sum and {largest['softmax']:.3g} with softmax."
    )
    holds = not improper["softmax"] and bool(improper["sum"]) and largest["softmax"] < largest["sum"]
    if curves:
        ends = {way: points[-1][1] for way, points in curves.items()}
        verdict += f" Trained to find a key among eight, the loss ended at {ends['softmax']:.3f} with softmax and "
        verdict += f"{ends['sum']:.3f} with the sum (chance: {np.log(8):.3f})."
        holds = holds and ends["softmax"] < ends["sum"]
        parts.append(Curves("Learning to find a key among eight", tuple(curves.items()), "step", "loss"))
    caveat = (
        'Softmax has disadvantages, too: one extreme score takes all the weight (see "one extreme"), and adding the '
        "same number to all scores changes nothing, so it cannot express that no key matches."
    )
    numbers = {
        "weights": {
            name: {way: weights[way].tolist() for way in NORMALIZATIONS} for name, weights in weights_by_row.items()
        },
        "derivatives": derivatives,
        "training": curves,
    }
    return ExperimentResult("softmax-or-sum", QUESTION, tuple(parts), verdict, holds, caveat, numbers, seed)


def is_valid(weights: np.ndarray) -> bool:
    """True for valid weights: between 0 and 1, with sum 1."""
    return bool((weights >= 0).all() and (weights <= 1).all() and abs(weights.sum() - 1) < 1e-9)


def _matrix(normalization: str, weights_by_row: dict[str, dict[str, np.ndarray]]) -> Matrix:
    values = tuple(tuple(float(weight) for weight in weights[normalization]) for weights in weights_by_row.values())
    rows = tuple(f"{name} {' '.join(f'{score:g}' for score in SCORES[name])}" for name in weights_by_row)
    wrong = frozenset(
        (row, column) for row, line in enumerate(values) for column, weight in enumerate(line) if not 0 <= weight <= 1
    )
    return Matrix(
        normalization, values, rows, ("key 1", "key 2", "key 3"), "scores", "weights", shaded=True, marks=wrong
    )


def _derivatives_table(derivatives: dict[str, dict[str, float]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return ("scores", *NORMALIZATIONS), tuple(
        (name, *(f"{slope[way]:.3g}" for way in NORMALIZATIONS)) for name, slope in derivatives.items()
    )


def _in_brackets(rows: list[str]) -> str:
    return f" ({', '.join(rows)})" if rows else ""
