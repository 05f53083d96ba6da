"""Activation store: stored arrays equal single captures, within the memory budget."""

import numpy as np
import pytest
from tests.looking.test_recorder import keep
from tests.models.zoo import EVERYONE, make, some_ids

from peasy.errors import InvalidInput, NoRoom, NotFound
from peasy.looking.question import Question
from peasy.looking.reading import Reading
from peasy.looking.shards import read_looks, stream_looks


def readings(model, count=7):
    ids = [tuple(some_ids(1, 5 + n, seed=n)[0].tolist()) for n in range(count)]
    return [Reading(each, each[:4]) if model.reads_source else Reading(each) for each in ids]


@pytest.mark.parametrize("name", ["grouped", "both", "recurrent-translator"])
def test_stored_activations_equal_single_captures(name, tmp_path):
    model = make(EVERYONE[name])
    budget, texts = 12_000, readings(model)
    kept = stream_looks(model, iter(texts), Question(), tmp_path / "looks", budget=budget, storage="float32")
    assert kept.texts == 7
    assert kept.files > 1 or name == "recurrent-translator"
    files = sorted((tmp_path / "looks").glob("*.safetensors"))
    assert len(files) == kept.files
    for reading, (stored, arrays) in zip(texts, read_looks(tmp_path / "looks"), strict=True):
        assert stored == reading
        for one in keep(model, reading)[1]:
            np.testing.assert_allclose(arrays[one.place, "weights"], one.array, atol=1e-6)
            np.testing.assert_allclose(arrays[one.place, "weights.sizes"], one.sizes, rtol=1e-5)


def test_the_budget_is_kept(tmp_path, monkeypatch):
    from peasy.looking import shards

    model, held = make(EVERYONE["learned"]), []
    add = shards._Writer.add
    monkeypatch.setattr(shards._Writer, "add", lambda self, *given: (add(self, *given), held.append(self.held))[0])
    stream_looks(model, readings(model), Question(), tmp_path / "looks", budget=8_000)
    assert max(held) <= 8_000
    assert len(held) == 7


def test_without_flushing_the_budget_would_be_exceeded(tmp_path, monkeypatch):
    from peasy.looking import shards

    monkeypatch.setattr(shards._Writer, "make_room", lambda self, size: None)
    with pytest.raises(AssertionError):
        test_the_budget_is_kept(tmp_path, monkeypatch)


def test_an_input_over_budget_is_rejected_and_leaves_no_files(tmp_path):
    model = make(EVERYONE["learned"])
    with pytest.raises(NoRoom, match="budget"):
        stream_looks(model, readings(model), Question(), tmp_path / "looks", budget=500)
    with pytest.raises(InvalidInput, match="data set is empty"):
        stream_looks(model, [], Question(), tmp_path / "looks", budget=500)
    assert not list(tmp_path.iterdir())
    with pytest.raises(NotFound):
        next(read_looks(tmp_path))
