"""Projections of a trained head group words by class, and similar words are not the likely next words."""

from peasy.commands.load import load
from peasy.experiments import projections
from peasy.experiments.models import untrained


def test_untrained_model_changes_verdict():
    stories = load("stories")
    result = projections.run(model=stories, probes=6)
    assert result.holds, result.verdict
    assert not projections.run(model=untrained(stories, 3), probes=2).holds


def spaces(same_class, kept=0.5):
    return {
        name: projections.SpaceStatistics(8, same_class, 3.0, 1.0 if name == "normed" else kept)
        for name in projections.SPACES
    }


def concluded(same_class=1.0, overlap=0.0, kept=0.5):
    sides = projections.WordNeighbours({"the": ("a",)}, {"the": ("pizza",)}, overlap)
    return projections.conclude((1, 0), spaces(same_class, kept), spaces(0.2), sides, (), 0.14, 0)


def test_verdict_follows_the_numbers():
    assert concluded().holds
    assert "NOT learned" in concluded(same_class=0.2).verdict
    assert "NOT two spaces" in concluded(overlap=0.8).verdict
    assert not concluded(kept=1.0).holds
