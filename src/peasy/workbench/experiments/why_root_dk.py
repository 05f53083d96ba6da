"""`why-root-dk`: effect of the scale 1/√d_k on score variance, softmax entropy, gradients and training."""

from dataclasses import dataclass

import numpy as np

from peasy.formula import attend
from peasy.parts import need
from peasy.views.document import Curves, Part, Table
from peasy.workbench.experiments.finding import Finding, Hear, unheard

QUESTION = "Scaled dot-product attention divides the scores by √d_k. What happens without it, and why the square root?"
WIDTHS = (4, 16, 64, 256, 1024)
KEYS, DRAWS = 32, 400


@dataclass(frozen=True)
class Spread:
    """Attention statistics of random queries and keys of one width: score variance, weight entropy, softmax gradient.

    `entropy` is relative to its maximum; `gradient` is the median norm of the softmax Jacobian.
    """

    variance: float
    entropy: float
    gradient: float


def run(seed: int = 0, hear: Hear = unheard, steps: int = 200, scale: float | None = None) -> Finding:
    """Measure random attention, then train with and without the scale; `scale` replaces 1/√d_k (the control)."""
    rng = np.random.default_rng(seed)
    hear("random queries and keys ...")
    unscaled = {width: spread(rng, width, 1.0) for width in WIDTHS}
    scaled = {width: spread(rng, width, scale or width**-0.5) for width in WIDTHS}
    curves = train_both(seed, hear, steps) if steps else None
    return conclude(unscaled, scaled, curves, seed)


def spread(random: np.random.Generator, width: int, scale: float, keys: int = KEYS, draws: int = DRAWS) -> Spread:
    """Attention statistics of random queries and keys of variance 1."""
    query, key = random.standard_normal((draws, 1, width)), random.standard_normal((draws, keys, width))
    steps = attend(query, key, np.zeros((draws, keys, 1)), scale=scale)
    weights = steps.weights[:, 0]
    entropy = -(weights * np.log(weights + 1e-300)).sum(axis=-1) / np.log(keys)
    jacobian = weights[:, :, None] * (np.eye(keys) - weights[:, None])  # d weight / d score
    gradient = np.sqrt((jacobian**2).sum(axis=(1, 2)))
    return Spread(float(steps.scaled.var()), float(entropy.mean()), float(np.median(gradient)))


def train_both(seed: int, hear: Hear, steps: int) -> dict[str, tuple[tuple[float, float], ...]]:
    """Train one wide head with and without the scale; query and key norms are off, as they would replace it."""
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
    """Holds if without the scale the variance grows like d_k and the gradient vanishes, and with it both stay."""
    growth_without, growth_with = slope(plain), slope(scaled)
    widest = max(WIDTHS)
    gradient_without = plain[widest].gradient / plain[min(WIDTHS)].gradient
    gradient_with = scaled[widest].gradient / scaled[min(WIDTHS)].gradient
    holds = abs(growth_without - 1) < 0.1 and abs(growth_with) < 0.1 and gradient_without < 0.1 < gradient_with
    verdict = (
        f"Without the scale the variance of q·k grows like d_k^{growth_without:.2f}, and from d_k = {min(WIDTHS)} to "
        f"{widest} the softmax gradient shrinks to {gradient_without:.1e} of its size. With the scale the variance "
        f"grows like d_k^{growth_with:.2f}, and the gradient changes to {gradient_with:.2f} of its size."
    )
    parts: list[Part] = [
        Table(*table(plain, scaled), f"{DRAWS} queries and {KEYS} keys each, components of variance 1")
    ]
    parts.append(Curves("Entropy of the attention weights", lines(plain, scaled), "log2 of d_k", "entropy / maximum"))
    if curves is not None:
        ends = {name: points[-1][1] for name, points in curves.items()}
        better = min(ends, key=lambda name: ends[name])
        verdict += f" Trained on the stories, the loss ended at {_ends(ends)}: {better} was better."
        title = "Training on stories, one head with d_k = 128"
        parts.append(Curves(title, tuple(curves.items()), "step", "validation loss"))
    caveat = (
        "The table uses random vectors, as at the start of training. A trained model can learn smaller queries and "
        "keys instead, so the effect on training is weaker."
    )
    numbers = {
        "growth": {"without": growth_without, "with": growth_with},
        "without": {width: vars(spread) for width, spread in plain.items()},
        "with": {width: vars(spread) for width, spread in scaled.items()},
        "training": curves or {},
    }
    return Finding("why-root-dk", QUESTION, tuple(parts), verdict, holds, caveat, numbers, seed)


def slope(found: dict[int, Spread]) -> float:
    """Return the power of d_k by which the variance grows: slope of a log-log fit."""
    widths, variances = zip(*((width, spread.variance) for width, spread in found.items()), strict=True)
    return float(np.polyfit(np.log(widths), np.log(variances), 1)[0])


def table(plain: dict[int, Spread], scaled: dict[int, Spread]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return columns and rows: one row per width, without and with the scale."""
    columns = ("d_k", "variance", "entropy", "gradient", "scaled: variance", "entropy", "gradient")
    rows = tuple((str(width), *_cells(plain[width]), *_cells(scaled[width])) for width in plain)
    return columns, rows


def lines(
    plain: dict[int, Spread], scaled: dict[int, Spread]
) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    """Return the curves of entropy by width."""
    both = (("without", plain), ("with 1/√d_k", scaled))
    return tuple(
        (name, tuple((float(np.log2(width)), spread.entropy) for width, spread in spreads.items()))
        for name, spreads in both
    )


def _cells(each: Spread) -> tuple[str, str, str]:
    return f"{each.variance:.2f}", f"{each.entropy:.3f}", f"{each.gradient:.2e}"


def _ends(ends: dict[str, float]) -> str:
    return " and ".join(f"{value:.3f} {name}" for name, value in ends.items())
