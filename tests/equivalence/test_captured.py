"""A tap changes no bit of the output, and captures what was computed."""

import pytest
import torch
from tests.models.tiny_models import (
    ALL_MODELS,
    DECODERS,
    RECURRENT_TRANSLATORS,
    TRANSFORMERS,
    make,
    some_ids,
    source_of,
)

from peasy.nn import capture as capture_module
from peasy.nn.tap import KNOWN_STEPS, Tap

MODEL_ARGUMENTS = ("padding_mask", "cache", "source", "source_padding_mask")


def capture(model, ids, **options):
    model_options = {name: options.pop(name) for name in MODEL_ARGUMENTS if name in options}
    captured = []
    with torch.inference_mode():
        logits = model(ids, tap=Tap(captured.append, **options), **model_options)
    return logits, captured


@pytest.mark.parametrize("name", ALL_MODELS)
def test_tap_changes_no_bit(name):
    model = make(ALL_MODELS[name])
    ids, source = some_ids(), source_of(model)
    with torch.inference_mode():
        plain = model(ids, **source)
    tapped, captured = capture(model, ids, steps=KNOWN_STEPS, **source)
    assert torch.equal(plain, tapped)
    assert captured or name == "ngram"


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_tap_with_padding_changes_no_bit(name):
    model = make(TRANSFORMERS[name])
    ids, source = some_ids(), source_of(model)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, :4] = False
    with torch.inference_mode():
        plain = model(ids, padding_mask=mask, **source)
    assert torch.equal(plain, capture(model, ids, padding_mask=mask, steps=KNOWN_STEPS, **source)[0])


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_captured_weights_times_values_equal_the_context(name):
    """The formula's weights times the values equal the kernel's context."""
    model = make(TRANSFORMERS[name])
    ids = some_ids()
    _, captured = capture(model, ids, steps=("weights", "value", "context"), **source_of(model))
    arrays = {(activation.path, activation.step): activation.array for activation in captured}
    paths = {path for path, _ in arrays}
    assert len(paths) >= 3
    for path in paths:
        actual = arrays[path, "weights"] @ arrays[path, "value"]
        torch.testing.assert_close(actual, arrays[path, "context"], atol=2e-5, rtol=0)
        total = arrays[path, "weights"].sum(-1)
        if name == "sinks":  # the sink gets the rest
            assert ((total > 0) & (total < 1)).all()
        else:
            torch.testing.assert_close(total, torch.ones_like(total))


def test_wrong_captured_weights_are_detected(monkeypatch):
    """Inverse: with another scale in the formula they differ."""
    original = capture_module.attention_steps
    monkeypatch.setattr(
        capture_module, "attention_steps", lambda *args, **kwargs: original(*args[:6], 0.9, *args[7:], **kwargs)
    )
    with pytest.raises(AssertionError):
        test_captured_weights_times_values_equal_the_context("rotary")


@pytest.mark.parametrize("name", ["learned", "grouped", "window", "relative", "alibi", "softcap"])
@pytest.mark.parametrize("rows", [[0], [-1], [3, 9, 16], None])
@pytest.mark.parametrize("heads", [[2], [3, 0], None])
def test_selected_rows_and_heads_equal_those_of_all(name, rows, heads):
    model, ids = make(DECODERS[name], double=True), some_ids()
    steps = ("query", "key", "value", "scores", "scaled", "masked", "weights", "context")
    _, full = capture(model, ids, steps=steps, layers=[1])
    _, some = capture(model, ids, steps=steps, layers=[1], rows=rows, heads=heads)
    assert [activation.step for activation in full] == [activation.step for activation in some]
    for full_activation, activation in zip(full, some, strict=True):
        expected = full_activation.array if heads is None else full_activation.array[:, heads]
        if activation.step not in ("key", "value"):
            expected = expected if rows is None else expected[:, :, rows]
        torch.testing.assert_close(activation.array, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", RECURRENT_TRANSLATORS)
def test_alignments_of_the_recurrent_translator(name):
    model, ids = make(RECURRENT_TRANSLATORS[name]), some_ids(2, 6)
    source = source_of(model)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 6:] = False
    _, (weights,) = capture(model, ids, source_padding_mask=mask, **source)
    assert weights.path == ("decoder", 0, "cross_attention")
    assert weights.array.shape == (2, 1, 6, 9)
    assert not weights.array[1, 0, :, 6:].any()
    torch.testing.assert_close(weights.array.sum(-1), torch.ones(2, 1, 6))
    _, (some,) = capture(model, ids, rows=[-1], source_padding_mask=mask, **source)
    assert torch.equal(some.array, weights.array[:, :, -1:])


def test_only_requested_steps_are_computed(monkeypatch):
    """With one layer captured, the formula is called once, for the requested rows and heads."""
    calls = []
    original = capture_module.attention_steps
    monkeypatch.setattr(
        capture_module,
        "attention_steps",
        lambda xp, query, *rest, **kwargs: calls.append(query.shape) or original(xp, query, *rest, **kwargs),
    )
    capture(make(DECODERS["learned"]), some_ids(), layers=[2], heads=[1], rows=[4, 5])
    assert calls == [(2, 1, 2, 8)]
    calls.clear()
    capture(make(DECODERS["learned"]), some_ids(), steps=("query", "context", "residual"))
    assert calls == []


def test_steps_arrive_in_blocks_of_rows():
    model, ids = make(DECODERS["window"]), some_ids()
    _, (full,) = capture(model, ids, layers=[1])
    _, pieces = capture(model, ids, layers=[1], rows_per_block=5)
    assert [len(piece.rows) for piece in pieces] == [5, 5, 5, 2]
    torch.testing.assert_close(torch.cat([piece.array for piece in pieces], dim=2), full.array)


def test_residual_stream_adds_up():
    """The input of a block plus the outputs of its sublayers is the input of the next."""
    model, ids = make(DECODERS["rotary"]), some_ids()
    _, captured = capture(model, ids, steps=("residual", "output"))
    arrays = {(*activation.path, activation.step): activation.array for activation in captured}
    for layer in range(3):
        added = sum(arrays["decoder", layer, part, "output"] for part in ("attention", "feedforward"))
        torch.testing.assert_close(
            arrays["decoder", layer, "stream", "residual"] + added, arrays["decoder", layer + 1, "stream", "residual"]
        )


def test_ablating_a_head_removes_its_contribution():
    """Zeroing the context of one head removes its contribution through W_O."""
    model, ids = make(DECODERS["learned"]), some_ids()

    def ablate(address, array):
        keep = torch.ones(4)
        keep[2] = 0.0
        return array * keep[:, None, None] if (address.layer, address.step) == (1, "context") else None

    captured, ablated = [], []
    with torch.inference_mode():
        model(ids, tap=Tap(captured.append, steps=("output", "context"), layers=[1], parts=["attention"]))
        model(ids, tap=Tap(ablated.append, steps=("output",), layers=[1], parts=["attention"]), intervention=ablate)
        context, output = captured
        weight = model.decoder.blocks[1].attention.output.weight[:, 16:24]
        torch.testing.assert_close(ablated[0].array, output.array - context.array[:, 2] @ weight.T, atol=1e-5, rtol=0)
