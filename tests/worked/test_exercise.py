"""Worksheets: deterministic for a seed, and small enough to solve by hand."""

import numpy as np
import pytest

from peasy.errors import UsageError
from peasy.worked.exercise import TOPICS, make_exercise, read_size


def numbers(exercise):
    return [(step.name, step.values.tolist()) for step in exercise.given]


@pytest.mark.parametrize("topic", TOPICS)
def test_worksheets_are_deterministic(topic):
    assert numbers(make_exercise("4x2", 7, topic)) == numbers(make_exercise("4x2", 7, topic))
    assert numbers(make_exercise("4x2", 7, topic)) != numbers(make_exercise("4x2", 8, topic))


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("seed", range(20))
def test_every_worksheet_has_small_numbers(topic, seed):
    exercise = make_exercise("3x2", seed, topic)
    assert exercise.solution
    assert all(np.abs(step.values).max() <= 3 for step in exercise.given)
    assert exercise.worked.example.tokens == tuple(dict.fromkeys(exercise.worked.example.tokens))


def test_steps_of_each_topic():
    solution = {topic: [step.name for step in make_exercise(topic=topic).solution] for topic in TOPICS}
    assert solution["plain"] == ["query", "key", "value", "scores", "scaled", "weights", "context"]
    assert "masked" in solution["masked"]
    assert solution["cosine"] == ["scores", "weights", "context"]
    assert "head-2.weights" in solution["two-heads"]
    assert solution["contexts"] == ["context"]
    assert make_exercise(topic="masked").settings == ("causal: true",)
    assert make_exercise(topic="cosine").settings == ("scoring: cosine",)
    assert make_exercise(topic="two-heads").settings == ("heads: 2",)


@pytest.mark.parametrize("size", ["", "3", "x", "0x2", "1x2", "3x0", "9x2", "3x2x1", "-3x2", "999999x2"])
def test_invalid_sizes(size):
    with pytest.raises(UsageError, match="not a valid"):
        read_size(size)


def test_misspelt_topic_and_odd_width():
    with pytest.raises(UsageError, match="no topic") as caught:
        make_exercise(topic="maksed")
    assert caught.value.hint == "Did you mean masked?"
    with pytest.raises(UsageError, match="cannot be split"):
        make_exercise("3x3", topic="two-heads")
