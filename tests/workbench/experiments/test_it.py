"""The built-in model resolves "it" by a few heads; one that has learned nothing turns the verdict."""

import pytest

from peasy.workbench.experiments import it
from peasy.workbench.experiments.subject import untrained
from peasy.workbench.load import load


@pytest.fixture(scope="module")
def stories():
    return load("stories")


def carried(left=0.5, control=1.0, whole=1.0):
    shares = {"whole": whole, "left": left, "control": control}
    return it.Carried(((1, 0),), shares, dict.fromkeys(shares, 1.2), (), 9)


def concluded(stories, heads, learned=()):
    weights = {(0, 0): (0.1, 0.1), (1, 0): (0.9, 0.1)}
    return it.conclude(it.look_once(stories), weights, heads, learned, 8, 0)


def test_heads_that_carry_it_are_found_and_others_are_not(stories):
    found = it.run(model=stories, probes=24, search=16, steps=0)
    assert found.holds, found.verdict
    right = found.numbers["carried"]["right"]
    assert right["whole"] > 0.9 > 0.7 > right["left"]
    assert right["control"] > 0.85


def test_a_model_that_has_learned_nothing_turns_the_verdict(stories):
    found = it.run(model=untrained(stories, 3), probes=6, search=4, steps=0)
    assert not found.holds
    assert "no small set of heads carries it alone" in found.verdict


def test_verdict_follows_the_numbers(stories):
    assert concluded(stories, carried()).holds
    assert not concluded(stories, carried(left=0.95)).holds
    assert not concluded(stories, carried(control=0.55)).holds


def test_learning_that_does_not_raise_the_weight_turns_the_verdict(stories):
    first, last = it.Moment(100, 0.5, 0.1, 0.1), it.Moment(900, 0.95, 0.8, 0.1)
    assert "examples teach it" in concluded(stories, carried(), [first, last]).verdict
    assert not concluded(stories, carried(), [last, first]).holds


def test_search_grows_until_chance_and_leaves_others_to_compare_with():
    heads = [(0, head) for head in range(6)]
    needs = {(0, 1), (0, 4)}
    chosen, _ = it.grow(heads, lambda off: 0.5 if needs <= set(off) else 0.9 - 0.1 * len(needs & set(off)))
    assert set(chosen) == needs
    never, _ = it.grow(heads, lambda off: 1.0)
    assert len(never) == 3


def test_a_short_training_is_followed(tmp_path):
    moments = it.learn_it(0, 8, it.stories_about_it(4, 0), it.unheard)
    assert [moment.stories for moment in moments] == sorted(moment.stories for moment in moments)
    assert moments
