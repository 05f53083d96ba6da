"""`why-root-dk`: what wide vectors do to the softmax with and without the scale, and to learning."""

from dataclasses import dataclass

import numpy as np

from peasy.formula import attend
from peasy.parts import need
from peasy.views.document import Curves, Part, Table
from peasy.workbench.experiments.finding import Finding, Hear, unheard

QUESTION = "Scores are divided by the root of d_k. What happens without, and is it the root that is needed?"
WIDTHS = (4, 16, 64, 256, 1024)
KEYS, DRAWS = 32, 400


@dataclass(frozen=True)
class Spread:
    """Of random queries and keys of one width: how far scores spread, how even weights are, what can be learned.

    `entropy` is a share of the largest possible; `gradient` is the size of the softmax's derivative.
    """

    variance: float
    entropy: float
    gradient: float


def run(seed: int = 0, hear: Hear = unheard, steps: int = 200, scale: float | None = None) -> Finding:
    """Measure by the formula, then train with and without; `scale` puts another scale in the place of 1/√d_k."""
    random = np.random.default_rng(seed)
    hear("random queries and keys ...")
    plain = {width: spread(random, width, 1.0) for width in WIDTHS}
    scaled = {width: spread(random, width, scale or width**-0.5) for width in WIDTHS}
    curves = train_both(seed, hear, steps) if steps else None
    return conclude(plain, scaled, curves, seed)


def spread(random: np.random.Generator, width: int, scale: float, keys: int = KEYS, draws: int = DRAWS) -> Spread:
    """Some hundred queries against some keys, numbers of variance 1."""
    query, key = random.standard_normal((draws, 1, width)), random.standard_normal((draws, keys, width))
    steps = attend(query, key, np.zeros((draws, keys, 1)), scale=scale)
    weights = steps.weights[:, 0]
    entropy = -(weights * np.log(weights + 1e-300)).sum(axis=-1) / np.log(keys)
    slopes = weights[:, :, None] * (np.eye(keys) - weights[:, None])  # how each weight answers to each score
    gradient = np.sqrt((slopes**2).sum(axis=(1, 2)))
    return Spread(float(steps.scaled.var()), float(entropy.mean()), float(np.median(gradient)))


def train_both(seed: int, hear: Hear, steps: int) -> dict[str, tuple[tuple[float, float], ...]]:
    """One wide head on the stories, with the scale and without; no norm of queries and keys stands in for it."""
    need("torch")
    from peasy.workbench.experiments.learning import learn, some_stories

    curves, stories = {}, some_stories(steps)
    for name, scale in (("with 1/√d_k", None), ("without", 1.0)):
        attention = {"heads": 1, "scale": scale, "norm_heads": False}
        settings = {"model": {"d_model": 128, "stack": {"attention": attention}}}
        curves[name] = learn("gpt", stories, name, hear, steps=steps, seed=seed, settings=settings).valid
    return curves


def conclude(
    plain: dict[int, Spread],
    scaled: dict[int, Spread],
    curves: dict[str, tuple[tuple[float, float], ...]] | None,
    seed: int,
) -> Finding:
    """Without the scale the variance must grow like d_k and the gradient die; with it both must stay."""
    growth, kept = slope(plain), slope(scaled)
    widest = max(WIDTHS)
    lost = plain[widest].gradient / plain[min(WIDTHS)].gradient
    left = scaled[widest].gradient / scaled[min(WIDTHS)].gradient
    holds = abs(growth - 1) < 0.1 and abs(kept) < 0.1 and lost < 0.1 < left
    verdict = (
        f"Without a scale the variance of q·k grows like d_k^{growth:.2f}, and from width {min(WIDTHS)} to {widest} "
        f"the softmax's gradient shrinks to {lost:.1e} of what it was; with the scale they change like d_k^{kept:.2f} "
        f"and to {left:.2f}."
    )
    parts: list[Part] = [Table(*table(plain, scaled), f"{DRAWS} queries against {KEYS} keys, numbers of variance 1")]
    parts.append(
        Curves("How even the weights are", lines(plain, scaled), "log2 of d_k", "share of the largest entropy")
    )
    if curves is not None:
        ends = {name: points[-1][1] for name, points in curves.items()}
        better = min(ends, key=lambda name: ends[name])
        verdict += f" Trained on the stories, the loss ended at {_ends(ends)}: {better} was ahead."
        parts.append(Curves("Learning the stories, one head of 128", tuple(curves.items()), "step", "held-out loss"))
    caveat = (
        "The numbers of the table are random, as at the start of training; a model can also learn to make its "
        "queries and keys smaller, so that training is the milder test of the two."
    )
    numbers = {
        "growth": {"without": growth, "with": kept},
        "without": {width: vars(each) for width, each in plain.items()},
        "with": {width: vars(each) for width, each in scaled.items()},
        "training": curves or {},
    }
    return Finding("why-root-dk", QUESTION, tuple(parts), verdict, holds, caveat, numbers, seed)


def slope(found: dict[int, Spread]) -> float:
    """The power of d_k by which the variance grows: a straight line through the logarithms."""
    widths, variances = zip(*((width, each.variance) for width, each in found.items()), strict=True)
    return float(np.polyfit(np.log(widths), np.log(variances), 1)[0])


def table(plain: dict[int, Spread], scaled: dict[int, Spread]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """One row for each width, without and with."""
    columns = ("d_k", "variance", "entropy", "gradient", "scaled: variance", "entropy", "gradient")
    rows = tuple((str(width), *_cells(plain[width]), *_cells(scaled[width])) for width in plain)
    return columns, rows


def lines(
    plain: dict[int, Spread], scaled: dict[int, Spread]
) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    """Entropy against width."""
    both = (("without", plain), ("with 1/√d_k", scaled))
    return tuple(
        (name, tuple((float(np.log2(width)), each.entropy) for width, each in found.items())) for name, found in both
    )


def _cells(each: Spread) -> tuple[str, str, str]:
    return f"{each.variance:.2f}", f"{each.entropy:.3f}", f"{each.gradient:.2e}"


def _ends(ends: dict[str, float]) -> str:
    return " and ".join(f"{value:.3f} {name}" for name, value in ends.items())
