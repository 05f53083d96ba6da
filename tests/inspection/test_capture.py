"""Recorder: captures equal the activations of the tap, in the chosen dtype, and change no bit."""

import numpy as np
import pytest
import torch
from tests.models.tiny_models import ALL_MODELS, DECODERS, make, some_ids

from peasy.errors import InvalidInput, ResourceUnavailable
from peasy.inspection import capture as recording
from peasy.inspection.capture import CaptureSpec, Recorder, _choose_storage
from peasy.inspection.forward import ModelInput, attentions_of, forward_logits
from peasy.nn.tap import KNOWN_STEPS, Tap


def input_of(model, length: int = 11) -> ModelInput:
    ids = tuple(some_ids(1, length)[0].tolist())
    return ModelInput(ids, (3, 4, 5, 6)) if model.is_encoder_decoder else ModelInput(ids)


def capture(model, model_input, storage="float32", **spec):
    recorder = Recorder(CaptureSpec(**spec), model_input.lengths(model), storage)
    return forward_logits(model, model_input, recorder.tap()), tuple(recorder.captured.values())


@pytest.mark.parametrize("name", ALL_MODELS)
def test_capture_works_for_every_family_and_changes_nothing(name):
    model = make(ALL_MODELS[name])
    model_input = input_of(model)
    steps = tuple(step for step in KNOWN_STEPS if step != "logits")
    logits, captures = capture(model, model_input, steps=steps)
    assert torch.equal(logits, forward_logits(model, model_input))
    activations = []
    forward_logits(model, model_input, Tap(activations.append, steps=steps))
    direct = {(a.path, a.step): a.array[0].numpy() for a in activations}
    assert len(captures) == len(direct)
    for captured in captures:
        np.testing.assert_allclose(captured.array, direct[captured.path, captured.step], atol=1e-6)
        assert captured.rows is not None or captured.step in ("key", "value")


@pytest.mark.parametrize("name", ["learned", "grouped", "seq2seq", "recurrent-translator"])
def test_the_estimate_equals_the_captured_size(name):
    model = make(ALL_MODELS[name])
    model_input = input_of(model)
    for spec in ({"steps": ("weights", "query", "value")}, {"rows": (1, 2)}, {"layers": (0,), "heads": (0,)}):
        _, captures = capture(model, model_input, **spec)
        estimate = CaptureSpec(**spec)._count_values(model, model_input.lengths(model))
        assert estimate == sum(captured.array.size for captured in captures)


def test_blocks_of_rows_are_concatenated(monkeypatch):
    model = make(DECODERS["rotary"])
    model_input = input_of(model, 17)
    _, whole = capture(model, model_input)
    monkeypatch.setattr(recording, "ROW_BLOCK", 5)
    _, pieces = capture(model, model_input)
    for expected, actual in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(actual.array, expected.array, atol=1e-6)
        assert expected.rows == actual.rows == tuple(range(17))


def test_float16_storage_is_close():
    model = make(DECODERS["learned"])
    _, full = capture(model, input_of(model))
    _, half = capture(model, input_of(model), "float16")
    for expected, actual in zip(full, half, strict=True):
        assert actual.array.dtype == np.float16
        np.testing.assert_allclose(expected.array, actual.array, atol=5e-4)


def test_only_weights_have_a_measure():
    model = make(DECODERS["learned"])
    _, (captured,) = capture(model, input_of(model), steps=("scores",), layers=(0,))
    assert captured.caption.name == "scores"
    with pytest.raises(InvalidInput, match="Only weights are measured, not scores"):
        captured.measured("value")


def test_value_norms_are_correct():
    model = make(DECODERS["grouped"])
    _, captures = capture(model, input_of(model), steps=("weights", "value"))
    captured = {(c.path.layer, c.step): c for c in captures}
    for layer in range(3):
        expected = np.linalg.norm(captured[layer, "value"].array, axis=-1)
        np.testing.assert_allclose(captured[layer, "weights"].value_norms, expected, rtol=1e-5)
        np.testing.assert_allclose(
            captured[layer, "weights"].measured("value"),
            captured[layer, "weights"].array * expected[:, None],
            rtol=1e-4,
            atol=1e-6,
        )


def test_a_capture_over_budget_is_rejected():
    assert _choose_storage(100, 400) == "float32"
    with pytest.raises(ResourceUnavailable, match=r"195\.3 KiB in float16.*1000 bytes"):
        _choose_storage(100_000, 1000)
    with pytest.raises(ResourceUnavailable, match="float32"):
        _choose_storage(100, 399, "float32")


def test_missing_layers_heads_and_steps_are_rejected():
    model = make(DECODERS["learned"])
    for spec, message in (
        ({"layers": (9,)}, "no layer 9"),
        ({"layers": (-9,)}, "no layer -9"),
        ({"heads": (4,)}, "no head 4"),
        ({"steps": ("wieghts",)}, "wieghts"),
        ({"steps": ()}, "No step"),
    ):
        with pytest.raises(InvalidInput, match=message):
            CaptureSpec(**spec).resolved(model, "it")
    lstm = make(ALL_MODELS["lstm"])
    with pytest.raises(InvalidInput, match="no attention"):
        CaptureSpec().resolved(lstm, "it")
    last = CaptureSpec(layers=(0, -1), heads=(-1,)).resolved(model)
    assert (last.layers, last.heads) == ((0, model.config.stack.num_layers - 1), (3,))
    assert CaptureSpec(("residual",), layers=(model.config.stack.num_layers,)).resolved(model)  # after the last layer


def test_attention_info():
    grouped, window, seq2seq = (
        attentions_of(make(ALL_MODELS[name])) for name in ("grouped", "windowed-layers", "seq2seq")
    )
    assert grouped[0].kv_head == (0, 0, 1, 1)
    assert grouped[0].is_grouped
    assert [info.window for info in window] == [None, 3, None]
    assert [info.cross for info in seq2seq] == [False] * 3 + [False, True] * 3
    assert not seq2seq[0].causal
    assert seq2seq[3].causal
