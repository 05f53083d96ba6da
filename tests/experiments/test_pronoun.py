"""The built-in model resolves "it" by a few heads; an untrained model changes the verdict."""

import pytest

from peasy.commands.load import load
from peasy.experiments import pronoun
from peasy.experiments.models import untrained


@pytest.fixture(scope="module")
def stories():
    return load("stories")


def ablation(ablated=0.5, control=1.0, none=1.0):
    accuracy = {"none": none, "ablated": ablated, "control": control}
    return pronoun.HeadAblation(((1, 0),), accuracy, dict.fromkeys(accuracy, 1.2), (), 9)


def concluded(stories, heads, checkpoints=()):
    weights = {(0, 0): (0.1, 0.1), (1, 0): (0.9, 0.1)}
    return pronoun.conclude(pronoun.pronoun_attention(stories), weights, heads, checkpoints, 8, 0)


def test_ablation_finds_responsible_heads(stories):
    result = pronoun.run(model=stories, probes=24, search_probes=16, steps=0)
    assert result.holds, result.verdict
    accuracy = result.numbers["ablation"]["accuracy"]
    assert accuracy["none"] > 0.9 > 0.7 > accuracy["ablated"]
    assert accuracy["control"] > 0.85


def test_untrained_model_changes_verdict(stories):
    result = pronoun.run(model=untrained(stories, 3), probes=6, search_probes=4, steps=0)
    assert not result.holds
    assert "no small set of heads is responsible alone" in result.verdict


def test_verdict_follows_the_numbers(stories):
    assert concluded(stories, ablation()).holds
    assert not concluded(stories, ablation(ablated=0.95)).holds
    assert not concluded(stories, ablation(control=0.55)).holds


def test_training_without_improvement_changes_verdict(stories):
    first, last = pronoun.CheckpointResult(100, 0.5, 0.1, 0.1), pronoun.CheckpointResult(900, 0.95, 0.8, 0.1)
    assert "is learned from examples" in concluded(stories, ablation(), [first, last]).verdict
    assert not concluded(stories, ablation(), [last, first]).holds


def test_search_stops_at_chance_or_half_of_the_heads():
    heads = [(0, head) for head in range(6)]
    needs = {(0, 1), (0, 4)}
    chosen, _ = pronoun.search_heads(heads, lambda off: 0.5 if needs <= set(off) else 0.9 - 0.1 * len(needs & set(off)))
    assert set(chosen) == needs
    never, _ = pronoun.search_heads(heads, lambda off: 1.0)
    assert len(never) == 3


def test_checkpoints_of_a_short_training(tmp_path):
    checkpoints = pronoun.train_from_scratch(0, 8, pronoun.pronoun_stories(4, 0), pronoun.ignore_status)
    assert [checkpoint.stories for checkpoint in checkpoints] == sorted(
        checkpoint.stories for checkpoint in checkpoints
    )
    assert checkpoints
