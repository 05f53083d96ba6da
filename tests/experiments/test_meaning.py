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
    supported = [part.name for part in result.comparisons if part.outcome is Outcome.SUPPORTED]
    assert len(supported) <= 1, "by chance alone, each of five parts is supported in 5 % of cases"
    assert result.outcome is not Outcome.SUPPORTED, result.verdict


def concluded(closer=True, contexts=True, clusters=True):
    names = tuple(name for group in meaning.WORD_GROUPS.values() for name in group)
    groups = np.repeat(np.eye(len(meaning.WORD_GROUPS)), [len(g) for g in meaning.WORD_GROUPS.values()], axis=0)
    noise = np.random.default_rng(0).standard_normal(groups.shape)
    vectors = {"before": noise, "after": groups if closer else noise}
    cosines = dict.fromkeys(meaning.WORD_PAIRS, 0.0)
    right, wrong = (True,) * 20, (True, False) * 10
    uses = {name: meaning.ContextCosines(0.9, 0.9, 0.9, 0.5, wrong) for name in ("untrained", "word overlap")}
    uses["trained"] = meaning.ContextCosines(0.2, 0.9, 0.3, 1.0, right if contexts else wrong)
    good, poor = meaning.ClusterQuality(1.0, 0.8, right), meaning.ClusterQuality(0.5, 0.1, wrong)
    by_text = {name: {"trained": good if clusters else poor, "untrained": poor} for name in ("sentences", "documents")}
    return meaning.conclude(meaning.WordCosines(cosines, cosines, names, vectors), uses, by_text, (), 0).outcome


def test_each_claim_can_fail():
    assert concluded() is Outcome.SUPPORTED
    assert concluded(closer=False) is Outcome.CONDITIONS
    assert concluded(contexts=False) is Outcome.CONDITIONS
    assert concluded(clusters=False) is Outcome.CONDITIONS
    assert concluded(closer=False, contexts=False, clusters=False) is Outcome.NOT_SUPPORTED


def test_purity():
    assert np.mean(meaning.majority_hits([0, 0, 1], ["a", "a", "b"])) == 1
    assert np.mean(meaning.majority_hits([0, 0, 0, 0], ["a", "b", "c", "d"])) == 0.25
