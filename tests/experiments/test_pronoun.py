"""The built-in model resolves "it" by a few heads; an untrained model changes the verdict."""

from collections import Counter

import numpy as np
import pytest

from peasy.commands.load import load
from peasy.experiments import pronoun
from peasy.experiments.models import ablate_heads, untrained
from peasy.experiments.statistics import Outcome, pool


@pytest.fixture(scope="module")
def stories():
    return load("stories")


def test_ablation_finds_responsible_heads(stories):
    result = pronoun.run(model=stories, probes=16, search_probes=16, steps=0)
    failed = [part.name for part in result.comparisons if part.outcome is not Outcome.SUPPORTED]
    assert failed == ['"told" attends to the referent'], "the word has told which noun it is"
    for accuracy in result.numbers["ablation"]["accuracy"].values():
        assert accuracy["none"] > 0.9 > 0.75 > accuracy["ablated"]
        assert accuracy["control_mean"] > 0.85


def test_untrained_model_changes_verdict(stories):
    result = pronoun.run(model=untrained(stories, 3), probes=6, search_probes=4, steps=0)
    assert result.outcome is not Outcome.SUPPORTED
    assert "no small set of heads is responsible alone" in result.verdict


def hits(accuracy, count=20):
    return np.arange(count) < accuracy * count


ABLATION = pronoun.HeadAblation(((1, 0),), hits(1.0), {}, {}, {})


def outcomes(ablated=0.5, controls=(1.0,), none=1.0, it=(0.9, 0.1), told=(0.9, 0.1), checkpoints=(), examples=None):
    kinds = ("zero", "mean")
    others = np.array([hits(accuracy) for accuracy in controls])
    ablation = pronoun.HeadAblation(
        ((1, 0),), hits(none), dict.fromkeys(kinds, hits(ablated)), dict.fromkeys(kinds, others), {}
    )
    weights = {"it": np.array([it] * 20), "told": np.array([told] * 20)}
    parts = pronoun.comparisons(weights, ablation, checkpoints, examples or {})
    return [part.outcome is Outcome.SUPPORTED for part in parts]


def test_each_part_can_fail():
    assert outcomes() == [True, True, True, True, True]
    assert outcomes(it=(0.1, 0.9)) == [False, True, True, True, True]
    assert outcomes(told=(0.1, 0.1)) == [True, False, True, True, True]
    assert outcomes(none=0.5) == [True, True, False, True, True]
    assert outcomes(ablated=0.95) == [True, True, True, False, False]
    assert outcomes(controls=(0.5,)) == [True, True, True, False, False], "other heads matter as much"
    assert outcomes(controls=(1.0, 1.0, 0.5)) == [True, True, True, False, False], "one other set matters as much"


def test_training_without_improvement_changes_verdict():
    first, last = (pronoun.CheckpointResult(100, tuple(hits(accuracy)), 0.1, 0.1) for accuracy in (0.5, 0.95))
    assert outcomes(checkpoints=[first, last])[-1]
    assert not outcomes(checkpoints=[last, first])[-1]


def test_number_of_examples_is_decided_over_seeds():
    def outcome(few, many):
        rows = zip(few, many, strict=True)
        runs = [
            pronoun.comparisons({}, ABLATION, (), {"few": examples(one), "all": examples(other)}) for one, other in rows
        ]
        return [part.outcome for part in pool(runs)[-len(pronoun._QUERIES) :]]

    def examples(weight):
        return pronoun.NounExamples(5.0, 0.5, dict.fromkeys(pronoun._QUERIES, weight))

    low, high = [0.1, 0.2, 0.15, 0.12, 0.3], [0.5, 0.6, 0.7, 0.55, 0.8]
    assert outcome(low, high) == [Outcome.SUPPORTED] * 3
    assert outcome(high, low) == [Outcome.NOT_SUPPORTED] * 3
    assert outcome(low[:2], high[:2]) == [Outcome.CANNOT_TELL] * 3


def test_words_that_fit_one_class_are_told_from_words_that_fit_several(stories):
    some = pronoun.pronoun_stories(12, 0)
    counts = {query: len(pronoun.referent_weights(stories, some, query)[0, 0]) for query in pronoun._QUERIES}
    assert counts["it"] == 12 == counts["was"] + counts["told"]
    assert min(counts.values()) > 0


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


def test_rare_nouns_are_rare_and_checkpoints_in_order(tmp_path):
    corpus = pronoun.UnevenStories(0, 2000)
    nouns = Counter(probe.referent for probe in corpus.probes("train"))
    means = [np.mean([nouns[noun] for noun, of in corpus.groups.items() if of == by]) for by in ("few", "some", "all")]
    assert 0 < 4 * means[0] < 2 * means[1] < means[2], means
    other = pronoun.UnevenStories(1, 2000).groups
    assert other != corpus.groups, "each seed makes other nouns rare"
    assert sum(of == "few" for of in other.values()) == 18

    checkpoints, examples = pronoun.train_from_scratch(0, 8, pronoun.pronoun_stories(12, 0), pronoun.ignore_status)
    assert checkpoints
    assert [one.stories for one in checkpoints] == sorted(one.stories for one in checkpoints)
    assert list(examples) == ["few", "some", "all"]
    assert all(set(by.weights) == set(pronoun._QUERIES) for by in examples.values())
