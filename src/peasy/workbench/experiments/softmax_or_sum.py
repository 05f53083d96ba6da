"""`softmax-or-sum`: two ways to make shares of scores, on the same numbers and in training."""

from collections.abc import Callable

import numpy as np

from peasy.formula import attend
from peasy.parts import need
from peasy.views.document import Curves, Matrix, Part, Table
from peasy.workbench.experiments.finding import Finding, Hear, unheard

QUESTION = "Weights could be scores divided by their sum. What does the softmax do better?"
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
    """The weights that the formula gives to these scores."""
    n = len(scores)
    return attend([[1.0]], [[s] for s in scores], [[0.0]] * n, scoring="dot", normalise=way).weights[0]


def run(seed: int = 0, hear: Hear = unheard, steps: int = 300, weigh: Weigh = weigh) -> Finding:
    """Shares of chosen scores, derivatives, then a small attention that learns to find a key, both ways."""
    hear("chosen scores ...")
    shares = {name: {way: weigh(scores, way) for way in WAYS} for name, scores in ROWS.items()}
    curves = train_both(seed, steps, hear) if steps else {}
    return conclude(shares, slopes(weigh), curves, seed)


def slopes(weigh: Weigh) -> dict[str, dict[str, float]]:
    """The largest answer of any weight to a small change of any score, by differences."""
    found: dict[str, dict[str, float]] = {}
    for name, scores in ROWS.items():
        found[name] = {way: max(_answer(weigh, scores, way, at) for at in range(len(scores))) for way in WAYS}
    return found


def _answer(weigh: Weigh, scores: tuple[float, ...], way: str, at: int, step: float = 1e-6) -> float:
    moved = tuple(score + step * (index == at) for index, score in enumerate(scores))
    return float(np.abs(weigh(moved, way) - weigh(scores, way)).max() / step)


def train_both(seed: int, steps: int, hear: Hear) -> dict[str, tuple[tuple[float, float], ...]]:
    """Queries and keys that must find each other among eight: the loss by step, with either normalisation."""
    need("torch")
    import torch

    curves = {}
    for way in WAYS:
        hear(f"training with {way} ...")
        draw = torch.Generator().manual_seed(seed)
        maps = [torch.nn.Parameter(torch.randn(16, 16, generator=draw) / 4) for _ in range(2)]
        optimizer, points = torch.optim.Adam(maps, lr=0.02), []
        for step in range(steps):
            names = torch.randn(32, 8, 16, generator=draw)
            asked = torch.randint(8, (32,), generator=draw)
            query = names[torch.arange(32), asked][:, None] @ maps[0]
            weights = attend(query, names @ maps[1], names, normalise=way).weights[:, 0]
            loss = -weights[torch.arange(32), asked].clamp(min=1e-6).log().mean()
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
    """Shares must lie between 0 and 1 and answer mildly; whoever does not is named with its rows."""
    broken = {way: [name for name in shares if not proper(shares[name][way])] for way in WAYS}
    worst = {way: max(steepest[name][way] for name in steepest) for way in WAYS}
    parts: list[Part] = [_matrix(way, shares) for way in WAYS]
    parts.append(Table(*_table(steepest), "The largest answer of a weight to a change of a score"))
    verdict = (
        f"Division by the sum gives no shares in {len(broken['sum'])} of {len(shares)} rows"
        f"{_named(broken['sum'])}; softmax in {len(broken['softmax'])}. The steepest answer of a weight to its scores "
        f"is {worst['sum']:.3g} against {worst['softmax']:.3g}."
    )
    holds = not broken["softmax"] and bool(broken["sum"]) and worst["softmax"] < worst["sum"]
    if curves:
        ends = {way: points[-1][1] for way, points in curves.items()}
        verdict += f" Trained to find a key among eight, the loss ended at {ends['softmax']:.3f} with softmax and "
        verdict += f"{ends['sum']:.3f} with the sum (guessing: {np.log(8):.3f})."
        holds = holds and ends["softmax"] < ends["sum"]
        parts.append(Curves("Learning to find a key among eight", tuple(curves.items()), "step", "loss"))
    caveat = (
        'Softmax has its price: an extreme score takes everything (see "one extreme"), and adding the same number to '
        "all scores changes nothing, so that it cannot say that nothing fits."
    )
    numbers = {
        "weights": {name: {way: each[way].tolist() for way in WAYS} for name, each in shares.items()},
        "steepest": steepest,
        "training": curves,
    }
    return Finding("softmax-or-sum", QUESTION, tuple(parts), verdict, holds, caveat, numbers, seed)


def proper(weights: np.ndarray) -> bool:
    """Shares: none below 0, none above 1, together 1."""
    return bool((weights >= 0).all() and (weights <= 1).all() and abs(weights.sum() - 1) < 1e-9)


def _matrix(way: str, shares: dict[str, dict[str, np.ndarray]]) -> Matrix:
    values = tuple(tuple(float(weight) for weight in each[way]) for each in shares.values())
    rows = tuple(f"{name} {' '.join(f'{score:g}' for score in ROWS[name])}" for name in shares)
    wrong = frozenset(
        (row, column) for row, each in enumerate(values) for column, weight in enumerate(each) if not 0 <= weight <= 1
    )
    return Matrix(way, values, rows, ("key 1", "key 2", "key 3"), "scores", "weights", shaded=True, marks=wrong)


def _table(steepest: dict[str, dict[str, float]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return ("scores", *WAYS), tuple((name, *(f"{each[way]:.3g}" for way in WAYS)) for name, each in steepest.items())


def _named(rows: list[str]) -> str:
    return f" ({', '.join(rows)})" if rows else ""
