"""Activation store: stored arrays equal single captures, within the memory budget."""

import numpy as np
import pytest
from tests.inspection.test_capture import capture
from tests.models.tiny_models import ALL_MODELS, make, some_ids

from peasy.errors import InvalidInput, NotFound, ResourceUnavailable
from peasy.inspection.activation_store import read_activations, write_activations
from peasy.inspection.capture import CaptureSpec
from peasy.inspection.forward import ModelInput


def model_inputs(model, count=7):
    ids = [tuple(some_ids(1, 5 + n, seed=n)[0].tolist()) for n in range(count)]
    return [ModelInput(row, row[:4]) if model.is_encoder_decoder else ModelInput(row) for row in ids]


@pytest.mark.parametrize("name", ["grouped", "seq2seq", "recurrent-translator"])
def test_stored_activations_equal_single_captures(name, tmp_path):
    model = make(ALL_MODELS[name])
    budget, inputs = 12_000, model_inputs(model)
    store = write_activations(
        model, iter(inputs), CaptureSpec(), tmp_path / "activations", budget=budget, storage="float32"
    )
    assert store.num_sequences == 7
    assert store.num_files > 1 or name == "recurrent-translator"
    files = sorted((tmp_path / "activations").glob("*.safetensors"))
    assert len(files) == store.num_files
    for model_input, (stored, arrays) in zip(inputs, read_activations(tmp_path / "activations"), strict=True):
        assert stored == model_input
        for expected in capture(model, model_input)[1]:
            np.testing.assert_allclose(arrays[expected.path, "weights"], expected.array, atol=1e-6)
            np.testing.assert_allclose(arrays[expected.path, "weights.value_norms"], expected.value_norms, rtol=1e-5)


def test_the_budget_is_kept(tmp_path, monkeypatch):
    from peasy.inspection import activation_store

    model, held = make(ALL_MODELS["learned"]), []
    add = activation_store._ShardWriter.add

    def add_and_measure(self, *args):
        add(self, *args)
        held.append(self.pending_bytes)

    monkeypatch.setattr(activation_store._ShardWriter, "add", add_and_measure)
    write_activations(model, model_inputs(model), CaptureSpec(), tmp_path / "activations", budget=8_000)
    assert max(held) <= 8_000
    assert len(held) == 7


def test_without_flushing_the_budget_would_be_exceeded(tmp_path, monkeypatch):
    from peasy.inspection import activation_store

    monkeypatch.setattr(activation_store._ShardWriter, "reserve", lambda self, size: None)
    with pytest.raises(AssertionError):
        test_the_budget_is_kept(tmp_path, monkeypatch)


def test_an_input_over_budget_is_rejected_and_leaves_no_files(tmp_path):
    model = make(ALL_MODELS["learned"])
    with pytest.raises(ResourceUnavailable, match="budget"):
        write_activations(model, model_inputs(model), CaptureSpec(), tmp_path / "activations", budget=500)
    with pytest.raises(InvalidInput, match="data set is empty"):
        write_activations(model, [], CaptureSpec(), tmp_path / "activations", budget=500)
    assert not list(tmp_path.iterdir())
    with pytest.raises(NotFound):
        next(read_activations(tmp_path))
