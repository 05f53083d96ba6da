"""`equal-weights`: attention against a summary of the context in which all tokens have the same weight."""

from collections.abc import Mapping

import numpy as np

from peasy.experiments.models import stories_for_steps, train_temporary
from peasy.experiments.one_big_head import NUM_VALUES, train_lookup
from peasy.experiments.result import ExperimentResult, OnStatus, Points, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison
from peasy.extras import require_extra

_SCALES = {"attention": None, "equal weights": 1e-9}
"""A scale near 0 makes all scores equal, and so all weights (0 itself times a masked score is not a number)."""
_LOOKUP_STEPS = 600


def run(seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 150, texts: int = 256) -> ExperimentResult:
    """Train the same models with attention and with equal weights: to look up a value, and on stories."""
    require_extra("torch")
    lookup, hits, stories = {}, {}, {}
    for name, scale in _SCALES.items():
        on_status(f"looking up a value with {name} ...")
        lookup[name], hits[name] = train_lookup(1, 1, seed, _LOOKUP_STEPS, texts, scale)
        settings = {"model": {"stack": {"attention": {"scale": scale, "qk_norm": False}}}, "num_validations": 4}
        corpus = stories_for_steps(steps)
        trained = train_temporary("gpt", corpus, name, on_status, steps=steps, seed=seed, settings=settings)
        stories[name] = trained.validation_curve
    return conclude(hits, lookup, stories, seed)


def conclude(
    hits: Mapping[str, list[bool]], lookup: Mapping[str, Points], stories: Mapping[str, Points], seed: int
) -> ExperimentResult:
    """Lookups with attention against equal weights, text by text; the loss on stories, over seeds."""
    means = {name: float(np.mean(by)) for name, by in hits.items()}
    losses = {name: points[-1][1] for name, points in stories.items()}
    comparisons = (
        Comparison.of_pairs(
            "weights find a value", "accuracy", hits["attention"], "equal weights", hits["equal weights"]
        ),
        Comparison(
            "weights help on stories", "loss", losses["attention"], "equal weights", losses["equal weights"], lower=True
        ),
    )  # fmt: skip
    verdict = (
        f"Asked for the value of one key, attention is right in {means['attention']:.0%} of texts and the same layer "
        f"with equal weights in {means['equal weights']:.0%} (chance: {1 / NUM_VALUES:.0%}). Trained on stories, the "
        f"loss ended at {losses['attention']:.3f} with attention and {losses['equal weights']:.3f} with equal weights."
    )
    columns = [("summary of the context", ""), ("values found", ".0%"), ("loss on stories", ".3f")]
    parts = (
        table("Same models, same data", columns, ((name, means[name], losses[name]) for name in hits)),
        curves("Learning to look up a value", lookup, "step", "loss"),
        curves("Training on stories", stories, "step", "validation loss"),
    )
    return make_result("equal-weights", parts, verdict, comparisons, {"accuracy": means, "loss": losses}, seed)
