"""`why-root-dk`: effect of the scale 1/√d_k on score variance, softmax entropy, gradients and training."""

from dataclasses import dataclass

import numpy as np

from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status
from peasy.extras import require_extra
from peasy.formula import attend
from peasy.views.document import Curves, DocumentPart, Table

QUESTION = "Scaled dot-product attention divides the scores by √d_k. What happens without it, and why the square root?"
WIDTHS = (4, 16, 64, 256, 1024)
NUM_KEYS, NUM_SAMPLES = 32, 400


@dataclass(frozen=True)
class ScoreStatistics:
    """Attention statistics of random queries and keys of one width: score variance, weight entropy, softmax gradient.

    `entropy` is relative to its maximum; `gradient` is the median norm of the softmax Jacobian.
    """

    variance: float
    entropy: float
    gradient: float


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 200, scale: float | None = None
) -> ExperimentResult:
    """Measure random attention, then train with and without the scale; `scale` replaces 1/√d_k (the control)."""
    rng = np.random.default_rng(seed)
    on_status("random queries and keys ...")
    unscaled = {width: score_statistics(rng, width, 1.0) for width in WIDTHS}
    scaled = {width: score_statistics(rng, width, scale or width**-0.5) for width in WIDTHS}
    curves = train_both(seed, on_status, steps) if steps else None
    return conclude(unscaled, scaled, curves, seed)


def score_statistics(
    rng: np.random.Generator, width: int, scale: float, keys: int = NUM_KEYS, samples: int = NUM_SAMPLES
) -> ScoreStatistics:
    """Attention statistics of random queries and keys of variance 1."""
    query, key = rng.standard_normal((samples, 1, width)), rng.standard_normal((samples, keys, width))
    steps = attend(query, key, np.zeros((samples, keys, 1)), scale=scale)
    weights = steps.weights[:, 0]
    entropy = -(weights * np.log(weights + 1e-300)).sum(axis=-1) / np.log(keys)
    jacobian = weights[:, :, None] * (np.eye(keys) - weights[:, None])  # d weight / d score
    gradient = np.sqrt((jacobian**2).sum(axis=(1, 2)))
    return ScoreStatistics(float(steps.scaled.var()), float(entropy.mean()), float(np.median(gradient)))


def train_both(seed: int, on_status: OnStatus, steps: int) -> dict[str, tuple[tuple[float, float], ...]]:
    """Train one wide head with and without the scale; query and key norms are off, as they would replace it."""
    require_extra("torch")
    from peasy.experiments.train_small import stories_for_steps, train_temporary

    curves, stories = {}, stories_for_steps(steps)
    for name, scale in (("with 1/√d_k", None), ("without", 1.0)):
        attention = {"num_heads": 1, "scale": scale, "qk_norm": False}
        settings = {"model": {"d_model": 128, "stack": {"attention": attention}}}
        curves[name] = train_temporary(
            "gpt", stories, name, on_status, steps=steps, seed=seed, settings=settings
        ).validation_curve
    return curves


def conclude(
    unscaled: dict[int, ScoreStatistics],
    scaled: dict[int, ScoreStatistics],
    curves: dict[str, tuple[tuple[float, float], ...]] | None,
    seed: int,
) -> ExperimentResult:
    """Holds if without the scale the variance grows like d_k and the gradient vanishes, and with it both stay."""
    growth_without, growth_with = variance_power(unscaled), variance_power(scaled)
    widest = max(WIDTHS)
    gradient_without = unscaled[widest].gradient / unscaled[min(WIDTHS)].gradient
    gradient_with = scaled[widest].gradient / scaled[min(WIDTHS)].gradient
    holds = abs(growth_without - 1) < 0.1 and abs(growth_with) < 0.1 and gradient_without < 0.1 < gradient_with
    verdict = (
        f"Without the scale the variance of q·k grows like d_k^{growth_without:.2f}, and from d_k = {min(WIDTHS)} to "
        f"{widest} the softmax gradient shrinks to {gradient_without:.1e} of its size. With the scale the variance "
        f"grows like d_k^{growth_with:.2f}, and the gradient changes to {gradient_with:.2f} of its size."
    )
    parts: list[DocumentPart] = [
        Table(
            *statistics_table(unscaled, scaled),
            f"{NUM_SAMPLES} queries and {NUM_KEYS} keys each, components of variance 1",
        )
    ]
    parts.append(
        Curves("Entropy of the attention weights", entropy_curves(unscaled, scaled), "log2 of d_k", "entropy / maximum")
    )
    if curves is not None:
        ends = {name: points[-1][1] for name, points in curves.items()}
        better = min(ends, key=lambda name: ends[name])
        verdict += f" Trained on the stories, the loss ended at {_format_ends(ends)}: {better} was better."
        title = "Training on stories, one head with d_k = 128"
        parts.append(Curves(title, tuple(curves.items()), "step", "validation loss"))
    caveat = (
        "The table uses random vectors, as at the start of training. A trained model can learn smaller queries and "
        "keys instead, so the effect on training is weaker."
    )
    numbers = {
        "growth": {"without": growth_without, "with": growth_with},
        "without": {width: vars(spread) for width, spread in unscaled.items()},
        "with": {width: vars(spread) for width, spread in scaled.items()},
        "training": curves or {},
    }
    return ExperimentResult("why-root-dk", QUESTION, tuple(parts), verdict, holds, caveat, numbers, seed)


def variance_power(statistics: dict[int, ScoreStatistics]) -> float:
    """Return the power of d_k by which the variance grows: slope of a log-log fit."""
    widths, variances = zip(*((width, spread.variance) for width, spread in statistics.items()), strict=True)
    return float(np.polyfit(np.log(widths), np.log(variances), 1)[0])


def statistics_table(
    unscaled: dict[int, ScoreStatistics], scaled: dict[int, ScoreStatistics]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return columns and rows: one row per width, without and with the scale."""
    columns = ("d_k", "variance", "entropy", "gradient", "scaled: variance", "entropy", "gradient")
    rows = tuple((str(width), *_cells(unscaled[width]), *_cells(scaled[width])) for width in unscaled)
    return columns, rows


def entropy_curves(
    unscaled: dict[int, ScoreStatistics], scaled: dict[int, ScoreStatistics]
) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    """Return the curves of entropy by width."""
    both = (("without", unscaled), ("with 1/√d_k", scaled))
    return tuple(
        (name, tuple((float(np.log2(width)), spread.entropy) for width, spread in spreads.items()))
        for name, spreads in both
    )


def _cells(statistics: ScoreStatistics) -> tuple[str, str, str]:
    return f"{statistics.variance:.2f}", f"{statistics.entropy:.3f}", f"{statistics.gradient:.2e}"


def _format_ends(ends: dict[str, float]) -> str:
    return " and ".join(f"{value:.3f} {name}" for name, value in ends.items())
