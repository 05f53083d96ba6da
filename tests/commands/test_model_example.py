"""One head of a model as a worked example: its weights are those that `look` captures."""

import numpy as np
import pytest

import peasy
from peasy.errors import InvalidInput, NotFound

TEXT = "The pizza came out"


@pytest.mark.parametrize("name", ["stories", "sentences"])
def test_weights_are_those_of_the_model(name):
    worked = peasy.explain(TEXT, model=name, layer=1, head=2)
    looked = peasy.load(name).look(TEXT, layers=[1], heads=[2])
    np.testing.assert_allclose(worked.weights, np.asarray(looked.weights[1, 2]), rtol=0, atol=1e-5)
    assert worked.tokens == tuple(looked.tokens.pieces)
    last = worked.cell("context", len(worked.tokens) - 1, 0)
    assert last.value == pytest.approx(float(worked.weights[-1] @ worked.value[:, 0]))
    assert worked.data()["note"].startswith("The numbers of the model itself")


def test_the_decoder_of_a_translator():
    worked = peasy.explain("Sunday, November 15, 2026", model="locales-fr")
    np.testing.assert_allclose(worked.weights.sum(axis=1), 1)
    assert worked.masked[0, 1] == -np.inf


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"source": TEXT, "layer": 99}, NotFound, "no self-attention in layer 99"),
        ({"source": TEXT, "head": 99}, NotFound, "no head 99"),
        ({"source": ""}, InvalidInput, "empty"),
        ({"source": "pizza " * 300}, InvalidInput, "tokens"),
    ],
)
def test_what_cannot_be_explained(arguments, error, message):
    with pytest.raises(error, match=message) as raised:
        peasy.explain(model="stories", **arguments)
    assert raised.value.hint
