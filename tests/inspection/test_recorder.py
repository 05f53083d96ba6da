"""Recorder: captures equal the activations of the tap, in the chosen dtype, and change no bit."""

import numpy as np
import pytest
import torch
from tests.models.tiny_models import DECODERS, EVERYONE, make, some_ids

from peasy.errors import InvalidInput, ResourceUnavailable
from peasy.inspection import recorder as recording
from peasy.inspection.budget import choose_storage, parse_bytes
from peasy.inspection.capture_spec import CaptureSpec
from peasy.inspection.forward import ModelInput, forward_logits
from peasy.inspection.introspect import attentions_of, dims_of
from peasy.inspection.recorder import Recorder
from peasy.nn.tap import KNOWN_STEPS, Tap


def reading_of(model, length: int = 11) -> ModelInput:
    ids = tuple(some_ids(1, length)[0].tolist())
    return ModelInput(ids, (3, 4, 5, 6)) if model.reads_source else ModelInput(ids)


def keep(model, reading, storage="float32", **asked):
    recorder = Recorder(CaptureSpec(**asked), reading.lengths(model), storage)
    return forward_logits(model, reading, recorder.tap()), recorder.captures()


@pytest.mark.parametrize("name", EVERYONE)
def test_capture_works_for_every_family_and_changes_nothing(name):
    model = make(EVERYONE[name])
    reading = reading_of(model)
    steps = tuple(step for step in KNOWN_STEPS if step != "logits")
    scores, captures = keep(model, reading, steps=steps)
    assert torch.equal(scores, forward_logits(model, reading))
    seen = []
    forward_logits(model, reading, Tap(seen.append, steps=steps))
    direct = {(one.place, one.step): one.array[0].numpy() for one in seen}
    assert len(captures) == len(direct)
    for one in captures:
        np.testing.assert_allclose(one.array, direct[one.path, one.step], atol=1e-6)
        assert one.rows is not None or one.step in ("key", "value")


@pytest.mark.parametrize("name", ["learned", "grouped", "both", "recurrent-translator"])
def test_the_estimate_equals_the_captured_size(name):
    model = make(EVERYONE[name])
    reading = reading_of(model)
    for asked in ({"steps": ("weights", "query", "value")}, {"rows": (1, 2)}, {"layers": (0,), "heads": (0,)}):
        _, captures = keep(model, reading, **asked)
        estimate = CaptureSpec(**asked).count_values(attentions_of(model), dims_of(model), reading.lengths(model))
        assert estimate == sum(one.array.size for one in captures)


def test_blocks_of_rows_are_concatenated(monkeypatch):
    model = make(DECODERS["rotary"])
    reading = reading_of(model, 17)
    _, whole = keep(model, reading)
    monkeypatch.setattr(recording, "ROW_BLOCK", 5)
    _, pieces = keep(model, reading)
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(one.array, other.array, atol=1e-6)
        assert one.rows == other.rows == tuple(range(17))


def test_float16_storage_is_close():
    model = make(DECODERS["learned"])
    _, full = keep(model, reading_of(model))
    _, half = keep(model, reading_of(model), "float16")
    for one, other in zip(full, half, strict=True):
        assert other.array.dtype == np.float16
        np.testing.assert_allclose(one.array, other.array, atol=5e-4)


def test_value_norms_are_correct():
    model = make(DECODERS["grouped"])
    _, captures = keep(model, reading_of(model), steps=("weights", "value"))
    at = {(one.path.layer, one.step): one for one in captures}
    for layer in range(3):
        expected = np.linalg.norm(at[layer, "value"].array, axis=-1)
        np.testing.assert_allclose(at[layer, "weights"].value_norms, expected, rtol=1e-5)
        np.testing.assert_allclose(
            at[layer, "weights"].value_weighted(), at[layer, "weights"].array * expected[:, None], rtol=1e-4, atol=1e-6
        )


def test_a_capture_over_budget_is_rejected():
    assert choose_storage(100, 400) == "float32"
    with pytest.raises(ResourceUnavailable, match=r"195\.3 KiB in float16.*1000 bytes"):
        choose_storage(100_000, 1000)
    with pytest.raises(ResourceUnavailable, match="float32"):
        choose_storage(100, 399, "float32")
    with pytest.raises(InvalidInput, match="not a number of bytes"):
        parse_bytes("much")


def test_missing_layers_heads_and_steps_are_rejected():
    model = make(DECODERS["learned"])
    parts, widths = attentions_of(model), dims_of(model)
    for asked, message in (
        ({"layers": (9,)}, "no layer 9"),
        ({"heads": (4,)}, "no head 4"),
        ({"steps": ("wieghts",)}, "wieghts"),
        ({"steps": ()}, "No step"),
    ):
        with pytest.raises(InvalidInput, match=message):
            CaptureSpec(**asked).check("it", parts, widths)
    lstm = make(EVERYONE["lstm"])
    with pytest.raises(InvalidInput, match="no attention"):
        CaptureSpec().check("it", attentions_of(lstm), dims_of(lstm))


def test_attention_info():
    grouped, window, both = (attentions_of(make(EVERYONE[name])) for name in ("grouped", "windowed-layers", "both"))
    assert grouped[0].kv_head == (0, 0, 1, 1)
    assert grouped[0].is_grouped
    assert [part.window for part in window] == [None, 3, None]
    assert [part.cross for part in both] == [False] * 3 + [False, True] * 3
    assert not both[0].causal
    assert both[3].causal
