"""The verdict follows from the agreement of weights and effects, in every direction."""

import numpy as np

from peasy.commands.load import load
from peasy.experiments import is_attention_explanation as experiment
from peasy.experiments.statistics import Outcome

RNG = np.random.default_rng(0)


def texts(agreement: float, count: int = 12):
    """Texts whose effects are the weights, mixed with noise; 1 = the same, 0 = only noise."""
    made = []
    for _ in range(count):
        weights = RNG.random(8)
        effects = agreement * weights + (1 - agreement) * RNG.random(8)
        made.append(experiment.WeightsAndEffects(tuple(weights), tuple(effects), 1.0))
    return made


def test_each_outcome_can_be_reached():
    noise = texts(0.0)
    assert experiment.conclude(texts(1.0), noise, 0).outcome is Outcome.SUPPORTED
    reversed_top = [
        experiment.WeightsAndEffects(t.weights, tuple(w if w < max(t.weights) else 0.5 for w in t.weights), 1.0)
        for t in texts(1.0)
    ]
    assert experiment.conclude(reversed_top, noise, 0).outcome is Outcome.CONDITIONS
    opposite = [experiment.WeightsAndEffects(t.weights, tuple(1 - w for w in t.weights), 1.0) for t in noise]
    assert experiment.conclude(opposite, noise, 0).outcome is Outcome.NOT_SUPPORTED
    assert experiment.conclude(texts(0.3, 3), noise[:3], 0).outcome is Outcome.CANNOT_TELL


def test_effects_are_those_of_cut_edges():
    result = experiment.run(model=load("stories"), probes=5)
    assert result.outcome in Outcome
    assert len(result.numbers["correlations"]) == 5
    assert "Spearman" in result.verdict
