"""Description of one query's attention in sentences."""

import dataclasses

import pytest

from peasy.errors import InvalidInput, NotFound
from peasy.worked import load_example, read_example, solve
from peasy.worked.story import describe_query


def sentences_of(name, query, **changes):
    return describe_query(solve(dataclasses.replace(load_example(name), **changes)), query).sentences


def test_i_love_ai_lecture_notes():
    weights, largest, reason = sentences_of("i-love-ai", "I")
    assert weights == '"I" gives 19.8 % of its attention to itself, 40.1 % to "love" and 40.1 % to "AI".'
    assert largest == (
        'Most of its context comes from "AI": 0.4011 · [1, 3] = [0.4011, 1.2033]; the whole context is [0.5989, 2].'
    )
    assert reason == "Other keys have the same weight; this one contributes more because its value vector is larger."


def test_a_large_value_can_outweigh_a_small_weight():
    assert sentences_of("pizza", "Pizza")[-1] == (
        "Other keys have a larger weight, but this one has the larger value vector."
    )


def test_masked_words_are_named():
    assert sentences_of("i-love-ai-causal", "love")[1] == 'It cannot attend to "AI" (masked).'
    assert "attends to nothing" in sentences_of("i-love-ai", "I", mask=((False,) * 3, (True,) * 3, (True,) * 3))[0]


def test_unnormalised_weights_are_not_percentages():
    assert sentences_of("apple-orange", "Orange", normalise="none")[0].startswith(
        '"Orange" becomes 1 times itself, 0.7071'
    )


def test_percentages_add_up():
    story = describe_query(solve(load_example("journey")), "journey")
    assert sum(share.weight for share in story.shares) == pytest.approx(1)
    for column, total in enumerate(story.context):
        assert sum(share.contribution[column] for share in story.shares) == pytest.approx(total)


def test_a_long_row_names_the_largest_weights_and_sums_the_rest():
    sentence = sentences_of("pizza-masked", "it")[0]
    assert sentence.startswith('"it" gives 34.7 % of its attention to "pizza"')
    assert sentence.endswith("to the other 3.")


def test_repeated_word():
    example = read_example({"title": "t", "tokens": ["a", "b", "a"], "x": [[1], [2], [1]]})
    with pytest.raises(InvalidInput, match='"a" is at 2 positions') as error:
        describe_query(solve(example), "a")
    assert error.value.hint == "Which one? Give its position: 0 or 2."
    assert describe_query(solve(example), 2).position == describe_query(solve(example), "2").position == 2


def test_unknown_word_and_missing_weights():
    with pytest.raises(NotFound, match="no word 'hate'"):
        sentences_of("i-love-ai", "hate")
    with pytest.raises(InvalidInput, match="no attention weights"):
        sentences_of("pizza-projection", "Pizza")
