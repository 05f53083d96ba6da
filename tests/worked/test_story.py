"""One word's story, in words and percentages."""

import dataclasses

import pytest

from peasy.errors import InvalidInput, NotFound
from peasy.worked import load_example, read_example, work
from peasy.worked.story import tell


def told(name, query, **changes):
    return tell(work(dataclasses.replace(load_example(name), **changes)), query).sentences


def test_the_story_of_document_003():
    looks, borrows, why = told("i-love-ai", "I")
    assert looks == '"I" gives 19.8 % of its attention to itself, 40.1 % to "love" and 40.1 % to "AI".'
    assert borrows == ('It borrows most from "AI": 0.4011 · [1, 3] = [0.4011, 1.2033], of a context of [0.5989, 2].')
    assert why == "Others weigh the same; it brings more because its value is bigger."


def test_a_big_value_makes_up_for_a_small_weight():
    assert told("pizza", "Pizza")[-1] == "Others weigh more, but the value decides what a weight brings."


def test_hidden_words_are_named():
    assert told("i-love-ai-causal", "love")[1] == 'It may not look at "AI".'
    assert "may look at nothing" in told("i-love-ai", "I", mask=((False,) * 3, (True,) * 3, (True,) * 3))[0]


def test_weights_that_are_no_shares_are_no_percentages():
    assert told("apple-orange", "Orange", normalise="none")[0].startswith('"Orange" becomes 1 times itself, 0.7071')


def test_percentages_add_up():
    story = tell(work(load_example("journey")), "journey")
    assert sum(share.weight for share in story.shares) == pytest.approx(1)
    for column, total in enumerate(story.context):
        assert sum(share.contribution[column] for share in story.shares) == pytest.approx(total)


def test_a_long_row_names_the_heaviest_and_sums_up_the_rest():
    looks = told("pizza-masked", "it")[0]
    assert looks.startswith('"it" gives 34.7 % of its attention to "pizza"')
    assert looks.endswith("to the other 3.")


def test_a_word_that_stands_twice():
    example = read_example({"title": "t", "tokens": ["a", "b", "a"], "x": [[1], [2], [1]]})
    assert "also stands at position 2" in tell(work(example), "a").sentences[-1]
    assert tell(work(example), 2).position == tell(work(example), "2").position == 2
    assert "stands" not in tell(work(example), "2").sentences[-1]


def test_what_cannot_be_told():
    with pytest.raises(NotFound, match="no word 'hate'"):
        told("i-love-ai", "hate")
    with pytest.raises(InvalidInput, match="no weights"):
        told("pizza-projection", "Pizza")
