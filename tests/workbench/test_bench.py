"""`bench`: every form is timed in both works; what cannot be timed is refused with the reason."""

import json
from itertools import product

import pytest

from peasy.errors import InvalidInput
from peasy.workbench.bench import bench


def test_every_form_reads_and_writes():
    found = bench("stories", prompt=4, tokens=3, batch=2, rounds=1)
    timed = {(speed.weights, speed.does, speed.batch) for speed in found.speeds}
    assert timed == set(product(("as it is", "float32", "int8"), ("reads", "writes"), (1, 2)))
    assert all(0 < s.least <= s.median <= s.most for s in found.speeds)
    assert json.dumps(found.data())
    assert "tokens/s" in str(found)


def test_rounds_give_the_spread():
    found = bench("stories", prompt=2, tokens=2, batch=1, rounds=3)
    assert any(s.least < s.most for s in found.speeds)
    assert {s.batch for s in found.speeds} == {1}


@pytest.mark.parametrize(
    ("model", "how", "said"),
    [
        ("locales-fr", {}, "models that write on"),
        ("stories", {"tokens": 0}, "at least 1"),
        ("stories", {"tokens": 10**6}, "reads at most"),
    ],
)
def test_what_cannot_be_timed(model, how, said):
    with pytest.raises(InvalidInput, match=said):
        bench(model, **how)
