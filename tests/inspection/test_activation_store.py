"""Activation store: stored arrays equal single captures, within the memory budget."""

import numpy as np
import pytest
from tests.inspection.test_recorder import keep
from tests.models.tiny_models import EVERYONE, make, some_ids

from peasy.errors import InvalidInput, NotFound, ResourceUnavailable
from peasy.inspection.activation_store import read_activations, write_activations
from peasy.inspection.capture_spec import CaptureSpec
from peasy.inspection.forward import ModelInput


def readings(model, count=7):
    ids = [tuple(some_ids(1, 5 + n, seed=n)[0].tolist()) for n in range(count)]
    return [ModelInput(each, each[:4]) if model.reads_source else ModelInput(each) for each in ids]


@pytest.mark.parametrize("name", ["grouped", "both", "recurrent-translator"])
def test_stored_activations_equal_single_captures(name, tmp_path):
    model = make(EVERYONE[name])
    budget, texts = 12_000, readings(model)
    kept = write_activations(model, iter(texts), CaptureSpec(), tmp_path / "looks", budget=budget, storage="float32")
    assert kept.num_sequences == 7
    assert kept.num_files > 1 or name == "recurrent-translator"
    files = sorted((tmp_path / "looks").glob("*.safetensors"))
    assert len(files) == kept.num_files
    for reading, (stored, arrays) in zip(texts, read_activations(tmp_path / "looks"), strict=True):
        assert stored == reading
        for one in keep(model, reading)[1]:
            np.testing.assert_allclose(arrays[one.path, "weights"], one.array, atol=1e-6)
            np.testing.assert_allclose(arrays[one.path, "weights.sizes"], one.value_norms, rtol=1e-5)


def test_the_budget_is_kept(tmp_path, monkeypatch):
    from peasy.inspection import activation_store

    model, held = make(EVERYONE["learned"]), []
    add = activation_store._ShardWriter.add
    monkeypatch.setattr(
        activation_store._ShardWriter, "add", lambda self, *given: (add(self, *given), held.append(self.held))[0]
    )
    write_activations(model, readings(model), CaptureSpec(), tmp_path / "looks", budget=8_000)
    assert max(held) <= 8_000
    assert len(held) == 7


def test_without_flushing_the_budget_would_be_exceeded(tmp_path, monkeypatch):
    from peasy.inspection import activation_store

    monkeypatch.setattr(activation_store._ShardWriter, "reserve", lambda self, size: None)
    with pytest.raises(AssertionError):
        test_the_budget_is_kept(tmp_path, monkeypatch)


def test_an_input_over_budget_is_rejected_and_leaves_no_files(tmp_path):
    model = make(EVERYONE["learned"])
    with pytest.raises(ResourceUnavailable, match="budget"):
        write_activations(model, readings(model), CaptureSpec(), tmp_path / "looks", budget=500)
    with pytest.raises(InvalidInput, match="data set is empty"):
        write_activations(model, [], CaptureSpec(), tmp_path / "looks", budget=500)
    assert not list(tmp_path.iterdir())
    with pytest.raises(NotFound):
        next(read_activations(tmp_path))
