"""One head of a model as a worked example: its weights are those that `look` captures."""

import numpy as np
import pytest

import peasy
from peasy.errors import InvalidInput, NotFound, UsageError

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
    worked = peasy.explain("Sunday, November 15, 2026", model="locales-fr", head=0)
    np.testing.assert_allclose(worked.weights.sum(axis=1), 1)
    assert worked.masked[0, 1] == -np.inf


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"source": TEXT, "layer": 99}, NotFound, "no layer 99"),
        ({"source": TEXT, "stack": "encoder"}, NotFound, "no encoder"),
        ({"source": TEXT, "max_columns": 0}, UsageError, "max_columns"),
        ({"source": TEXT, "head": 99}, NotFound, "no head 99"),
        ({"source": ""}, InvalidInput, "empty"),
        ({"source": "pizza " * 300}, InvalidInput, "tokens"),
    ],
)
def test_what_cannot_be_explained(arguments, error, message):
    with pytest.raises(error, match=message) as raised:
        peasy.explain(model="stories", **arguments)
    assert raised.value.hint


def test_a_whole_layer_opens_in_every_cell(tmp_path):
    worked = peasy.explain("The pizza came", model="stories", layer=1)
    text = " ".join(worked.text().split())
    assert "layer1.attention.head-3.weights" in text
    assert "6 of 96 rows and 6 of 384 columns are shown" in text
    wide = worked.cell("residual2", "·came", 95)
    assert wide.value == pytest.approx(worked.worked.values["layer1.residual2"][3, 95])
    mean = worked.cell("norm1.mean_square", 0, 0)
    assert "(the other 80)) / 96" in mean.texts[0]
    data = worked.data()
    assert data["example"]["given"] == {}
    assert data["example"]["steps"]["layer1.norm1"] == "rms_norm(x, eps=1e-06)"
    shown = worked.save(tmp_path / "layer.md").read_text()
    assert "layer1.feed_forward.activated" in shown


def test_cross_attention_is_labelled_with_the_source():
    worked = peasy.explain("Sunday, November 15, 2026", model="locales-fr", layer=1)
    weights = worked.worked.step("cross_attention.head-1.weights")
    assert weights.rows == worked.tokens
    assert weights.columns == peasy.explain("Sunday, November 15, 2026", model="locales-fr", stack="encoder").tokens


def test_a_workbook_of_a_wide_layer_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("peasy.commands.explain._MAX_WORKBOOK_CELLS", 1000)
    with pytest.raises(InvalidInput, match="at most 1,000 numbers"):
        peasy.explain("The pizza came", model="stories").save(tmp_path / "layer.xlsx")
