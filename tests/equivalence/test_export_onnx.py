"""ONNX export: equal results in onnxruntime for any batch size, length and padding."""

import copy
import sys

import numpy as np
import pytest
import torch

from peasy.checkpoint.onnx import write_onnx
from peasy.errors import InvalidInput, MissingExtra
from peasy.models.build import build
from peasy.models.config import NGramConfig
from peasy.models.preset import preset

CLOSE = {"atol": 1e-4, "rtol": 0}
SHAPES = [(1, 1), (2, 5), (3, 12), (1, 20)]


@pytest.fixture(scope="module")
def session_of(case_of, tmp_path_factory):
    """Export each case once, as it takes seconds, and return its onnxruntime session."""
    runtime = pytest.importorskip("onnxruntime")
    sessions = {}

    def find(name):
        if name not in sessions:
            folder = write_onnx(tmp_path_factory.mktemp("onnx") / "out", case_of(name).ours)
            sessions[name] = runtime.InferenceSession(folder / "model.onnx")
        return sessions[name]

    return find


def texts(batch: int, time: int, side: str = "left"):
    ids = torch.randint(2, 58, (batch, time), generator=torch.Generator().manual_seed(time))
    mask = torch.ones(batch, time, dtype=torch.int64)
    if time > 4:
        mask[-1, slice(0, 3) if side == "left" else slice(-3, None)] = 0
    return ids, mask


def run(session, *inputs):
    names = [node.name for node in session.get_inputs()]
    assert len(names) == len(inputs)
    outputs = session.run(None, {name: array.numpy() for name, array in zip(names, inputs, strict=True)})
    return {
        node.name: torch.from_numpy(np.asarray(array))
        for node, array in zip(session.get_outputs(), outputs, strict=True)
    }


@pytest.mark.parametrize("name", ["gpt2-untied", "qwen2-windows"])
def test_decoder(case_of, session_of, name):
    session, model = session_of(name), case_of(name).ours
    for batch, time in SHAPES:
        for side in ("left", "right"):
            ids, mask = texts(batch, time, side)
            with torch.no_grad():
                expected = model(ids, padding_mask=mask)
            outputs = run(session, ids, mask)["logits"]
            torch.testing.assert_close(outputs[mask.bool()], expected[mask.bool()], **CLOSE)


@pytest.mark.parametrize("name", ["bert", "roberta-masked"])
def test_encoder(case_of, session_of, name):
    session, model = session_of(name), case_of(name).ours
    for batch, time in SHAPES:
        ids, mask = texts(batch, time, "right")
        outputs = run(session, ids, mask)
        with torch.no_grad():
            hidden = model.hidden(ids, padding_mask=mask)
            torch.testing.assert_close(outputs["sentence_embedding"], model.pool(hidden, mask), **CLOSE)
        torch.testing.assert_close(outputs["last_hidden_state"][mask.bool()], hidden[mask.bool()], **CLOSE)
        assert ("logits" in outputs) == (model.lm_head is not None)
        if model.lm_head is not None:
            with torch.no_grad():
                expected = model.logits(hidden)
            torch.testing.assert_close(outputs["logits"][mask.bool()], expected[mask.bool()], **CLOSE)


@pytest.mark.parametrize("name", ["marian-two-vocabularies", "t5-gated"])
def test_encoder_decoder(case_of, session_of, name):
    session, model = session_of(name), case_of(name).ours
    for (batch, time), target_time in zip(SHAPES, (1, 4, 9, 2), strict=True):
        (source, mask), (target, _) = texts(batch, time, "right"), texts(batch, target_time)
        with torch.no_grad():
            expected = model(target, source=source, source_padding_mask=mask)
        torch.testing.assert_close(run(session, source, mask, target)["logits"], expected, **CLOSE)


def test_another_model_is_detected(case_of, session_of):
    ids, mask = texts(2, 5)
    with torch.no_grad():
        other = build(case_of("qwen2-windows").ours.config, seed=3)(ids, padding_mask=mask)
    assert (run(session_of("qwen2-windows"), ids, mask)["logits"] - other)[mask.bool()].abs().max() > 1e-2


def test_bfloat16_is_exported_as_float32(case_of, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = copy.deepcopy(case_of("llama").ours).to(torch.bfloat16)
    write_onnx(tmp_path / "out", model)
    assert next(model.parameters()).dtype == torch.bfloat16  # the caller's model is unchanged
    ids, mask = texts(2, 5)
    with torch.no_grad():
        expected = copy.deepcopy(model).float()(ids, padding_mask=mask)
    outputs = run(runtime.InferenceSession(tmp_path / "out" / "model.onnx"), ids, mask)["logits"]
    torch.testing.assert_close(outputs[mask.bool()], expected[mask.bool()], **CLOSE)


def test_unsupported_kinds_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="ngram"):
        write_onnx(tmp_path / "out", build(NGramConfig(vocab_size=5)))


def test_missing_extra_names_the_install_command(case_of, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setattr("peasy.checkpoint.onnx.find_spec", lambda name: None)
    with pytest.raises(MissingExtra) as caught:
        write_onnx(tmp_path / "out", case_of("llama").ours)
    assert "peasy-attention[export]" in caught.value.hint


def test_token_shift_and_ngram_embeddings(tmp_path):
    """With padding on either side."""
    runtime = pytest.importorskip("onnxruntime")
    changes = {"stack": {"num_layers": 1, "token_shift": True}, "embedding": {"max_ngram": 3, "ngram_buckets": 50}}
    model = build(preset("gpt-tiny", vocab_size=60, d_model=16, **changes), seed=1)
    session = runtime.InferenceSession(write_onnx(tmp_path / "out", model) / "model.onnx")
    for side in ("left", "right"):
        ids, mask = texts(3, 9, side)
        with torch.no_grad():
            expected = model(ids, padding_mask=mask)
        torch.testing.assert_close(run(session, ids, mask)["logits"][mask.bool()], expected[mask.bool()], **CLOSE)
