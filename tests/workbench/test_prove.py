"""The verb `prove`: a model by name or object, on texts of one's own; a function by file or object."""

import json

import numpy as np
import pytest
import torch

import peasy
from peasy.errors import InvalidInput, NotFound, UsageError
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.proof import equality
from peasy.workbench.load import load
from peasy.workbench.prove import DoctorResult, ProveResult, prove


@pytest.fixture
def brief(monkeypatch):
    """Only the equalities that these tests look at."""
    for trial in ("_chunked", "_fused", "_packed", "_saved"):
        monkeypatch.setattr(equality, trial, lambda question: [])


def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2)
    return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True) @ v


def test_it_is_a_public_name():
    assert peasy.prove is prove


def test_a_model_is_proved_on_texts_of_its_own(foreign, brief):
    result = prove(str(foreign), ["The pizza", "came out of the oven"])
    assert isinstance(result, ProveResult)
    assert result.passed
    assert result.proof["exported = original"].distance < 1e-6
    told = json.loads(json.dumps(result.data()))
    assert (told["passed"], told["texts"], told["kind"]) == (True, 2, "decoder")
    assert told["verdict"].endswith("all hold.")
    assert {each["name"] for each in told["equalities"]} >= {"cached = uncached", "padded = unpadded"}


def test_without_texts_there_are_our_own_and_long_ones_are_cut(encoder, brief):
    result = prove(load(encoder))
    assert result.passed
    assert any("peasy's own" in note for note in result.proof.notes)
    assert any("cut to their first 9 tokens" in note for note in result.proof.notes)
    assert "An encoder does not write on" in result.text()


def test_a_model_without_a_tokenizer_is_proved_on_drawn_ids(brief):
    model = build(preset("translator-tiny"), seed=1)
    result = prove(model)
    assert result.passed
    assert any("drawn" in note for note in result.proof.notes)
    with pytest.raises(NotFound, match="no tokenizer"):
        prove(model, "Hello")


def test_what_fails_is_named_in_data_and_text(decoder, brief, monkeypatch):
    from peasy.models.decoder import Decoder

    right = Decoder.read
    monkeypatch.setattr(Decoder, "read", lambda self, *args, **how: [-each for each in right(self, *args, **how)])
    result = prove(load(decoder), "The pizza came out")
    assert not result.passed
    failed = next(each for each in result.data()["equalities"] if each["verdict"] == "fails")
    assert failed["name"] == "alone = in a batch"
    assert failed["where"]["position"] == 0
    assert "alone = in a batch fails" in result.verdict
    assert "position 0" in result.text()


@pytest.mark.parametrize("prompt", ["", ["fine", ""]])
def test_an_empty_text_is_refused(decoder, prompt):
    with pytest.raises(InvalidInput, match="no tokens"):
        prove(load(decoder), prompt)


def test_a_function_is_examined_where_it_stands():
    result = prove(attention)
    assert isinstance(result, DoctorResult)
    assert (result.passed, result.mistakes) == (False, ("no scale",))
    told = json.loads(json.dumps(result.data()))
    assert told["findings"][0]["formula"] == "scaled = QKᵀ / √d_k"
    assert "write instead" in result.text()
    assert prove(torch.nn.MultiheadAttention(8, 2)).passed


def test_a_call_belongs_to_a_function(decoder):
    assert prove(attention, call="attention(q, k, v)").mistakes == ("no scale",)
    with pytest.raises(UsageError, match="a model needs none"):
        prove(load(decoder), call="model(q)")


def test_a_file_without_a_function_lists_what_it_has(tmp_path):
    (tmp_path / "mine.py").write_text("def attend(q, k, v):\n    return v\n", encoding="utf-8")
    with pytest.raises(UsageError, match="Which function") as error:
        prove("mine.py")
    assert error.value.hint == "peasy prove mine.py:attend"
    with pytest.raises(NotFound, match=r"no file other\.py"):
        prove("other.py:attend")


@pytest.mark.parametrize("suffix", ["html", "md", "tex", "csv", "json"])
def test_it_can_be_saved(suffix, tmp_path):
    path = prove(attention).save(tmp_path / f"found.{suffix}")
    assert "no scale" in path.read_text(encoding="utf-8")
