"""`softmax-or-sum`: softmax against division by the sum, on chosen scores and in training."""

from collections.abc import Callable

import numpy as np

from peasy.experiments.result import ExperimentResult, OnStatus, Points, curves, ignore_status, make_result, table
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
_Normalize = Callable[[tuple[float, ...], str], np.ndarray]


def normalize(scores: tuple[float, ...], normalization: str) -> np.ndarray:
    """Return the attention weights that the formula gives for these scores."""
    keys = [[score] for score in scores]
    return np.asarray(attend([[1.0]], keys, keys, scoring="dot", normalise=normalization).weights[0])


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 300, normalize: _Normalize = normalize
) -> ExperimentResult:
    """Compare weights of chosen scores, their derivatives, and training of a small attention layer."""
    on_status("chosen scores ...")
    weights = {name: {way: normalize(scores, way) for way in _WAYS} for name, scores in _SCORES.items()}
    derivatives = {
        name: {way: _derivative(normalize, scores, way) for way in _WAYS} for name, scores in _SCORES.items()
    }
    return _conclude(weights, derivatives, _train_both(seed, steps, on_status) if steps else {}, seed)


def _derivative(normalize: _Normalize, scores: tuple[float, ...], way: str, step: float = 1e-6) -> float:
    """Return the largest derivative of any weight with respect to any score, by finite differences."""
    moved = [tuple(row) for row in np.asarray(scores) + step * np.eye(len(scores))]
    return max(float(np.abs(normalize(row, way) - normalize(scores, way)).max() / step) for row in moved)


def _train_both(seed: int, steps: int, on_status: OnStatus) -> dict[str, Points]:
    """Train queries and keys to find a match among eight; return the loss by step for each normalization."""
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
            query = inputs[torch.arange(32), targets][:, None] @ projections[0]
            weights = attend(query, inputs @ projections[1], inputs, normalise=way).weights[:, 0]
            loss = -weights[torch.arange(32), targets].clamp(min=1e-6).log().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % max(steps // 20, 1) == 0 or step == steps - 1:
                points.append((float(step), float(loss.detach())))
        losses[way] = tuple(points)
    return losses


def _conclude(
    weights: dict[str, dict[str, np.ndarray]], derivatives: dict[str, dict[str, float]], losses: dict[str, Points],
    seed: int,
) -> ExperimentResult:  # fmt: skip
    """Holds if only softmax gives weights from 0 to 1 for all scores, with smaller derivatives and a lower loss."""
    improper = {way: [name for name, by in weights.items() if not is_valid(by[way])] for way in _WAYS}
    largest = {way: max(by[way] for by in derivatives.values()) for way in _WAYS}
    listed = f" ({', '.join(improper['sum'])})" if improper["sum"] else ""
    verdict = (
        f"Division by the sum gives invalid weights in {len(improper['sum'])} of {len(weights)} rows{listed}, softmax "
        f"in {len(improper['softmax'])}. The largest derivative of a weight is {largest['sum']:.3g} with the sum and "
        f"{largest['softmax']:.3g} with softmax."
    )
    holds = not improper["softmax"] and bool(improper["sum"]) and largest["softmax"] < largest["sum"]
    parts: list[DocumentPart] = [
        *(_weights_matrix(way, [by[way] for by in weights.values()]) for way in _WAYS),
        table(
            "Largest derivative of a weight with respect to a score",
            [("scores", ""), *((way, ".3g") for way in _WAYS)],
            ((name, *(by[way] for way in _WAYS)) for name, by in derivatives.items()),
        ),
    ]
    if losses:
        ends = {way: points[-1][1] for way, points in losses.items()}
        verdict += f" Trained to find a key among eight, the loss ended at {ends['softmax']:.3f} with softmax and "
        verdict += f"{ends['sum']:.3f} with the sum (chance: {np.log(8):.3f})."
        holds = holds and ends["softmax"] < ends["sum"]
        parts.append(curves("Learning to find a key among eight", losses, "step", "loss"))
    numbers = {
        "weights": {name: {way: row.tolist() for way, row in by.items()} for name, by in weights.items()},
        "derivatives": derivatives,
        "training": losses,
    }
    return make_result("softmax-or-sum", tuple(parts), verdict, holds, numbers, seed)


def is_valid(weights: np.ndarray) -> bool:
    """True for valid weights: between 0 and 1, with sum 1."""
    return bool((weights >= 0).all() and (weights <= 1).all() and abs(weights.sum() - 1) < 1e-9)


def _weights_matrix(way: str, weights: list[np.ndarray]) -> Matrix:
    values = tuple(tuple(float(weight) for weight in row) for row in weights)
    rows = tuple(f"{name} {' '.join(f'{score:g}' for score in scores)}" for name, scores in _SCORES.items())
    wrong = frozenset((i, j) for i, row in enumerate(values) for j, weight in enumerate(row) if not 0 <= weight <= 1)
    keys = ("key 1", "key 2", "key 3")
    return Matrix(way, values, rows, keys, "scores", "weights", shaded=True, marks=wrong)
