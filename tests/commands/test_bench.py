"""`bench`: prefill and decode are timed for every weight format; unsuitable models and counts are refused."""

import json
from itertools import product

import pytest

from peasy.commands.bench import bench
from peasy.errors import InvalidInput


def test_every_weight_format_is_timed_in_prefill_and_decode():
    result = bench("stories", prompt=4, tokens=3, batch=2, rounds=1)
    timed = {(speed.weight_format, speed.phase, speed.batch_size) for speed in result.throughputs}
    assert timed == set(product(("as it is", "float32", "int8"), ("reads", "writes"), (1, 2)))
    assert all(0 < s.minimum <= s.median <= s.maximum for s in result.throughputs)
    assert json.dumps(result.data())
    assert "tokens/s" in str(result)


def test_rounds_give_minimum_and_maximum():
    result = bench("stories", prompt=2, tokens=2, batch=1, rounds=3)
    assert any(s.minimum < s.maximum for s in result.throughputs)
    assert {s.batch_size for s in result.throughputs} == {1}


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("locales-fr", {}, "models that continue a text"),
        ("stories", {"tokens": 0}, "at least 1"),
        ("stories", {"tokens": 10**6}, "has a context of"),
    ],
)
def test_unsuitable_models_and_counts_are_refused(model, options, message):
    with pytest.raises(InvalidInput, match=message):
        bench(model, **options)
