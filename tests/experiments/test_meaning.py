"""Trained vectors confirm all claims; untrained vectors change the verdict."""

import numpy as np
import pytest

from peasy.commands.load import load
from peasy.experiments import meaning
from peasy.experiments.models import untrained
from peasy.experiments.statistics import Outcome


@pytest.fixture(scope="module")
def models():
    return {"words": load("words"), "sentences": load("sentences")}


def test_trained_models_confirm_all_claims(models):
    result = meaning.run(**models, texts=48)
    assert result.outcome in (Outcome.SUPPORTED, Outcome.CONDITIONS), result.verdict
    words = result.numbers["words"]
    assert words["after"]["awesome great"] > words["before"]["awesome great"] + 0.2


def test_untrained_models_change_verdict(models):
    fresh = {name: untrained(model, 5) for name, model in models.items()}
    result = meaning.run(**fresh, texts=32)
    assert result.outcome is Outcome.NOT_SUPPORTED, result.verdict


@pytest.mark.parametrize("claim", ["words", "contexts", "clusters"])
def test_each_claim_can_fail(claim):
    pairs = meaning.WORD_PAIRS
    after = dict(zip(pairs, (0.9, 0.9, 0.8, 0.1, 0.1), strict=True))
    names = tuple(name for group in meaning.WORD_GROUPS.values() for name in group)
    vectors = dict.fromkeys(("before", "after"), np.random.default_rng(0).standard_normal((len(names), 4)))
    words = meaning.WordCosines(dict.fromkeys(pairs, 0.0), after, names, vectors)
    contexts = {
        "trained": meaning.ContextCosines(0.2, 0.9, 0.3, 1.0, (True,) * 20),
        "untrained": meaning.ContextCosines(0.9, 0.9, 0.9, 0.5, (True, False) * 10),
        "word overlap": meaning.ContextCosines(0.9, 0.9, 0.9, 0.5, (False, True) * 10),
    }
    permuted = (0.3,) * 40
    good, poor = meaning.ClusterQuality(0.95, 0.8, permuted), meaning.ClusterQuality(0.3, 0.1, permuted)
    clusters = {name: {"trained": good, "untrained": poor} for name in ("sentences", "documents")}
    assert meaning.conclude(words, contexts, clusters, (), 0).outcome is Outcome.SUPPORTED
    if claim == "words":
        words = meaning.WordCosines(after, after, names, vectors)
    elif claim == "contexts":
        contexts["trained"] = contexts["untrained"]
    else:
        clusters["documents"] = {"trained": poor, "untrained": poor}
    assert meaning.conclude(words, contexts, clusters, (), 0).outcome is Outcome.CONDITIONS


def test_purity():
    assert meaning.purity([0, 0, 1], ["a", "a", "b"]) == 1
    assert meaning.purity([0, 0, 0, 0], ["a", "b", "c", "d"]) == 0.25
