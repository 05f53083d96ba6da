"""`softmax-or-sum`: softmax against division by the sum, on chosen scores and in training."""

from collections.abc import Callable

import numpy as np

from peasy.formula import attend
from peasy.parts import need
from peasy.views.document import Curves, Matrix, Part, Table
from peasy.workbench.experiments.finding import Finding, Hear, unheard

QUESTION = "Attention weights could be scores divided by their sum. What is better about softmax?"
ROWS = {
    "all alike": (1.0, 1.0, 1.0),
    "positive": (1.0, 2.0, 3.0),
    "one negative": (-1.0, 2.0, 3.0),
    "sum near zero": (-2.0, 1.0, 1.01),
    "one extreme": (1.0, 2.0, 400.0),
    "all shifted by 10": (11.0, 12.0, 13.0),
}
WAYS = ("softmax", "sum")
Weigh = Callable[[tuple[float, ...], str], np.ndarray]


def weigh(scores: tuple[float, ...], way: str) -> np.ndarray:
    """Return the attention weights that the formula gives for these scores."""
    n = len(scores)
    return attend([[1.0]], [[s] for s in scores], [[0.0]] * n, scoring="dot", normalise=way).weights[0]


def run(seed: int = 0, hear: Hear = unheard, steps: int = 300, weigh: Weigh = weigh) -> Finding:
    """Compare weights of chosen scores, their derivatives, and training of a small attention layer."""
    hear("chosen scores ...")
    shares = {name: {way: weigh(scores, way) for way in WAYS} for name, scores in ROWS.items()}
    curves = train_both(seed, steps, hear) if steps else {}
    return conclude(shares, slopes(weigh), curves, seed)


def slopes(weigh: Weigh) -> dict[str, dict[str, float]]:
    """Return the largest derivative of any weight with respect to any score, by finite differences."""
    steepest: dict[str, dict[str, float]] = {}
    for name, scores in ROWS.items():
        steepest[name] = {way: max(_answer(weigh, scores, way, key) for key in range(len(scores))) for way in WAYS}
    return steepest


def _answer(weigh: Weigh, scores: tuple[float, ...], way: str, at: int, step: float = 1e-6) -> float:
    moved = tuple(score + step * (index == at) for index, score in enumerate(scores))
    return float(np.abs(weigh(moved, way) - weigh(scores, way)).max() / step)


def train_both(seed: int, steps: int, hear: Hear) -> dict[str, tuple[tuple[float, float], ...]]:
    """Train queries and keys to find a match among eight; return the loss by step for each normalization."""
    need("torch")
    import torch

    curves = {}
    for way in WAYS:
        hear(f"training with {way} ...")
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
    shares: dict[str, dict[str, np.ndarray]],
    steepest: dict[str, dict[str, float]],
    curves: dict[str, tuple[tuple[float, float], ...]],
    seed: int,
) -> Finding:
    """Holds if only softmax gives weights from 0 to 1 for all scores, with smaller derivatives and a lower loss."""
    improper = {way: [name for name in shares if not proper(shares[name][way])] for way in WAYS}
    largest = {way: max(steepest[name][way] for name in steepest) for way in WAYS}
    parts: list[Part] = [_matrix(way, shares) for way in WAYS]
    parts.append(Table(*_table(steepest), "Largest derivative of a weight with respect to a score"))
    verdict = (
        f"Division by the sum gives invalid weights in {len(improper['sum'])} of {len(shares)} rows"
        f"{_named(improper['sum'])}, softmax in {len(improper['softmax'])}. The largest derivative of a weight is "
        f"{largest['sum']:.3g} with the sum and {largest['softmax']:.3g} with softmax."
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
        "weights": {name: {way: weights[way].tolist() for way in WAYS} for name, weights in shares.items()},
        "steepest": steepest,
        "training": curves,
    }
    return Finding("softmax-or-sum", QUESTION, tuple(parts), verdict, holds, caveat, numbers, seed)


def proper(weights: np.ndarray) -> bool:
    """True for valid weights: between 0 and 1, with sum 1."""
    return bool((weights >= 0).all() and (weights <= 1).all() and abs(weights.sum() - 1) < 1e-9)


def _matrix(way: str, shares: dict[str, dict[str, np.ndarray]]) -> Matrix:
    values = tuple(tuple(float(weight) for weight in weights[way]) for weights in shares.values())
    rows = tuple(f"{name} {' '.join(f'{score:g}' for score in ROWS[name])}" for name in shares)
    wrong = frozenset(
        (row, column) for row, line in enumerate(values) for column, weight in enumerate(line) if not 0 <= weight <= 1
    )
    return Matrix(way, values, rows, ("key 1", "key 2", "key 3"), "scores", "weights", shaded=True, marks=wrong)


def _table(steepest: dict[str, dict[str, float]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return ("scores", *WAYS), tuple((name, *(f"{slope[way]:.3g}" for way in WAYS)) for name, slope in steepest.items())


def _named(rows: list[str]) -> str:
    return f" ({', '.join(rows)})" if rows else ""
