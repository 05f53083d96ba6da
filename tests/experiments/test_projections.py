"""Projections of a trained head group words by class, and similar words are not the likely next words."""

from peasy.commands.load import load
from peasy.experiments import projections
from peasy.experiments.models import untrained
from peasy.experiments.statistics import Outcome


def test_untrained_model_changes_verdict():
    stories = load("stories")
    result = projections.run(model=stories, probes=6)
    assert result.outcome in (Outcome.SUPPORTED, Outcome.CONDITIONS), result.verdict
    assert "NOT learned" in projections.run(model=untrained(stories, 3), probes=2).verdict


def spaces(same_class):
    hits = tuple(index < same_class * 30 for index in range(30))
    return {name: projections.SpaceStatistics(8, same_class, 3.0, 0.5, hits) for name in projections.SPACES}


def concluded(same_class=1.0, overlap=0.0, permuted=(0.1,) * 30):
    sides = projections.WordNeighbours({"the": ("a",)}, {"the": ("pizza",)}, overlap, permuted)
    return projections.conclude((1, 0), spaces(same_class), spaces(0.2), sides, (), 0.14, 0)


def test_verdict_follows_the_tests():
    assert concluded().outcome is Outcome.SUPPORTED
    assert concluded(same_class=0.2).outcome is Outcome.CONDITIONS
    assert "NOT learned" in concluded(same_class=0.2).verdict
    assert concluded(overlap=0.8).outcome is Outcome.CONDITIONS
    assert "NOT two spaces" in concluded(overlap=0.8).verdict
    assert concluded(same_class=0.2, overlap=0.8).outcome is Outcome.NOT_SUPPORTED
    assert concluded(permuted=()).outcome is Outcome.CONDITIONS, "too few words to tell"
