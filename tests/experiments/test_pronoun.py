"""The built-in model resolves "it" by a few heads; an untrained model changes the verdict."""

import numpy as np
import pytest

from peasy.commands.load import load
from peasy.experiments import pronoun
from peasy.experiments.models import ablate_heads, untrained
from peasy.experiments.statistics import Outcome


@pytest.fixture(scope="module")
def stories():
    return load("stories")


def test_ablation_finds_responsible_heads(stories):
    result = pronoun.run(model=stories, probes=16, search_probes=16, steps=0)
    assert result.outcome is Outcome.SUPPORTED, result.verdict
    for accuracy in result.numbers["ablation"]["accuracy"].values():
        assert accuracy["none"] > 0.9 > 0.75 > accuracy["ablated"]
        assert accuracy["control_mean"] > 0.85


def test_untrained_model_changes_verdict(stories):
    result = pronoun.run(model=untrained(stories, 3), probes=6, search_probes=4, steps=0)
    assert result.outcome is not Outcome.SUPPORTED
    assert "no small set of heads is responsible alone" in result.verdict


def hits(accuracy, count=20):
    return np.arange(count) < accuracy * count


def outcomes(ablated=0.5, control=1.0, none=1.0, weights=(0.9, 0.1), checkpoints=()):
    kinds = ("zero", "mean")
    ablation = pronoun.HeadAblation(
        ((1, 0),), hits(none), dict.fromkeys(kinds, hits(ablated)), dict.fromkeys(kinds, hits(control)[None]), {}
    )
    parts = pronoun.comparisons(np.array([weights] * 20), ablation, checkpoints)
    return [part.outcome is Outcome.SUPPORTED for part in parts]


def test_each_part_can_fail():
    assert outcomes() == [True, True, True, True]
    assert outcomes(weights=(0.1, 0.9)) == [False, True, True, True]
    assert outcomes(none=0.5) == [True, False, True, True]
    assert outcomes(ablated=0.95) == [True, True, False, False]
    assert outcomes(control=0.5) == [True, True, False, False], "other heads matter as much"


def test_training_without_improvement_changes_verdict():
    first, last = (pronoun.CheckpointResult(100, tuple(hits(accuracy)), 0.1, 0.1) for accuracy in (0.5, 0.95))
    assert outcomes(checkpoints=[first, last])[-1]
    assert not outcomes(checkpoints=[last, first])[-1]


def test_mean_ablation_is_another_than_zero_ablation(stories):
    import torch

    ids = torch.tensor([stories.encode_prompt(pronoun.SENTENCE)])
    plain, zero, mean = (
        ablate_heads(stories, heads, texts).model(ids)
        for heads, texts in (([], ()), ([(1, 0)], ()), ([(1, 0)], [pronoun.SENTENCE]))
    )
    assert not torch.allclose(plain, zero, atol=1e-2)
    assert not torch.allclose(plain, mean, atol=1e-2)
    assert not torch.allclose(zero, mean, atol=1e-2)


def test_search_stops_at_chance_or_half_of_the_heads():
    heads = [(0, head) for head in range(6)]
    needs = {(0, 1), (0, 4)}
    chosen, _ = pronoun.search_heads(heads, lambda off: 0.5 if needs <= set(off) else 0.9 - 0.1 * len(needs & set(off)))
    assert set(chosen) == needs
    never, _ = pronoun.search_heads(heads, lambda off: 1.0)
    assert len(never) == 3


def test_checkpoints_of_a_short_training(tmp_path):
    checkpoints = pronoun.train_from_scratch(0, 8, pronoun.pronoun_stories(4, 0), pronoun.ignore_status)
    assert checkpoints
    assert [one.stories for one in checkpoints] == sorted(one.stories for one in checkpoints)
