"""`bench`: prefill and decode are timed for every weight format; unsuitable models and counts are refused."""

import json
from itertools import product

import pytest

from peasy.commands.bench import bench
from peasy.errors import InvalidInput


def test_every_weight_format_is_timed_in_prefill_and_decode():
    result = bench("stories", prompt_tokens=4, max_tokens=3, batch_size=2, repeats=1)
    timed = {(row.weight_format, row.phase, row.batch_size) for row in result.throughputs}
    assert timed == set(product(("original", "float32", "int8"), ("prefill", "decode"), (1, 2)))
    assert all(0 < s.minimum <= s.median <= s.maximum for s in result.throughputs)
    assert json.dumps(result.data())
    assert "tokens/s" in str(result)


def test_repeats_give_minimum_and_maximum():
    result = bench("stories", prompt_tokens=2, max_tokens=2, batch_size=1, repeats=3)
    assert any(s.minimum < s.maximum for s in result.throughputs)
    assert {s.batch_size for s in result.throughputs} == {1}


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("locales-fr", {}, "models that continue a text"),
        ("stories", {"max_tokens": 0}, "at least 1"),
        ("stories", {"max_tokens": 10**6}, "has a context of"),
    ],
)
def test_unsuitable_models_and_counts_are_refused(model, options, message):
    with pytest.raises(InvalidInput, match=message):
        bench(model, **options)
