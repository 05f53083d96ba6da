"""Projections of a trained head sort words by class; which space tells the next word is decided word by word."""

from dataclasses import replace

from peasy.commands.load import load
from peasy.experiments import projections
from peasy.experiments.models import untrained
from peasy.experiments.statistics import Outcome


def test_untrained_model_changes_verdict():
    stories = load("stories")
    result = projections.run(model=stories, probes=4)
    assert all(part.outcome is Outcome.SUPPORTED for part in result.comparisons[:4]), result.verdict
    fresh = projections.run(model=untrained(stories, 3), probes=2)
    assert not any(part.outcome is Outcome.SUPPORTED for part in fresh.comparisons[:3]), fresh.verdict


def spaces(hits=1.0, closeness=0.5, next_words=0.5):
    by_word = tuple(index < hits * 30 for index in range(30))
    one = projections.SpaceStatistics(8, hits, 3.0, 0.5, by_word, (closeness,) * 30, (next_words,) * 30)
    return dict.fromkeys(projections.SPACES, one)


def concluded(value=0.8, pair=0.5, close_pair=0.9, hits=1.0):
    trained = spaces(hits)
    trained["value"] = replace(trained["value"], next_words=(value,) * 30)
    trained["query-key"] = replace(trained["query-key"], closeness=(close_pair,) * 30, next_words=(pair,) * 30)
    return projections.conclude((1, 0), trained, spaces(0.2, 0.1, 0.0), (), 0)


def test_verdict_follows_the_tests():
    assert concluded().outcome is Outcome.SUPPORTED
    assert concluded(value=0.3).outcome is Outcome.CONDITIONS, "queries and keys tell the next word better"
    assert concluded(close_pair=0.2).outcome is Outcome.CONDITIONS, "values tell similar words better"
    assert concluded(value=0.0, close_pair=0.2, hits=0.2).outcome is Outcome.NOT_SUPPORTED
