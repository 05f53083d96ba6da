"""A tap changes no bit of the output, and captures what was computed."""

import pytest
import torch
from tests.models.tiny_models import DECODERS, EVERYONE, RECURRENT_TRANSLATORS, TRANSFORMERS, make, some_ids, source_of

from peasy.nn import capture as watching
from peasy.nn.tap import KNOWN_STEPS, Tap


def capture(model, ids, **asked):
    more = {name: asked.pop(name) for name in ("padding_mask", "cache", "source", "source_padding_mask") if name in asked}
    seen = []
    with torch.inference_mode():
        scores = model(ids, tap=Tap(seen.append, **asked), **more)
    return scores, seen


@pytest.mark.parametrize("name", EVERYONE)
def test_tap_changes_no_bit(name):
    model = make(EVERYONE[name])
    ids, source = some_ids(), source_of(model)
    with torch.inference_mode():
        alone = model(ids, **source)
    watched, seen = capture(model, ids, steps=KNOWN_STEPS, **source)
    assert torch.equal(alone, watched)
    assert seen or name == "ngram"


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_tap_with_padding_changes_no_bit(name):
    model = make(TRANSFORMERS[name])
    ids, source = some_ids(), source_of(model)
    real = torch.ones_like(ids, dtype=torch.bool)
    real[0, :4] = False
    with torch.inference_mode():
        alone = model(ids, padding_mask=real, **source)
    assert torch.equal(alone, capture(model, ids, padding_mask=real, steps=KNOWN_STEPS, **source)[0])


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_captured_weights_times_values_equal_the_context(name):
    """The formula's weights times the values equal the kernel's context."""
    model = make(TRANSFORMERS[name])
    ids = some_ids()
    _, seen = capture(model, ids, steps=("weights", "value", "context"), **source_of(model))
    at = {(one.place, one.step): one.array for one in seen}
    places = {place for place, _ in at}
    assert len(places) >= 3
    for place in places:
        found = at[place, "weights"] @ at[place, "value"]
        torch.testing.assert_close(found, at[place, "context"], atol=2e-5, rtol=0)
        torch.testing.assert_close(at[place, "weights"].sum(-1), torch.ones_like(at[place, "weights"][..., 0]))


def test_wrong_captured_weights_are_detected(monkeypatch):
    """Inverse: with another scale in the formula they differ."""
    real = watching.attend
    monkeypatch.setattr(watching, "attend", lambda *given, **how: real(*given, **how | {"scale": 0.9}))
    with pytest.raises(AssertionError):
        test_captured_weights_times_values_equal_the_context("rotary")


@pytest.mark.parametrize("name", ["learned", "grouped", "window", "relative", "alibi", "softcap"])
@pytest.mark.parametrize("rows", [[0], [-1], [3, 9, 16], None])
@pytest.mark.parametrize("heads", [[2], [3, 0], None])
def test_selected_rows_and_heads_equal_those_of_all(name, rows, heads):
    model, ids = make(DECODERS[name], double=True), some_ids()
    steps = ("query", "key", "value", "scores", "scaled", "masked", "weights", "context")
    _, whole = capture(model, ids, steps=steps, layers=[1])
    _, some = capture(model, ids, steps=steps, layers=[1], rows=rows, heads=heads)
    assert [one.step for one in whole] == [one.step for one in some]
    for all_of_it, one in zip(whole, some, strict=True):
        expected = all_of_it.array if heads is None else all_of_it.array[:, heads]
        if one.step not in ("key", "value"):
            expected = expected if rows is None else expected[:, :, rows]
        torch.testing.assert_close(one.array, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", RECURRENT_TRANSLATORS)
def test_alignments_of_the_recurrent_translator(name):
    model, ids = make(RECURRENT_TRANSLATORS[name]), some_ids(2, 6)
    source = source_of(model)
    real = torch.ones(2, 9, dtype=torch.bool)
    real[1, 6:] = False
    _, (weights,) = capture(model, ids, source_padding_mask=real, **source)
    assert weights.place == ("decoder", 0, "cross_attention")
    assert weights.array.shape == (2, 1, 6, 9)
    assert not weights.array[1, 0, :, 6:].any()
    torch.testing.assert_close(weights.array.sum(-1), torch.ones(2, 1, 6))
    _, (some,) = capture(model, ids, rows=[-1], source_padding_mask=real, **source)
    assert torch.equal(some.array, weights.array[:, :, -1:])


def test_only_requested_steps_are_computed(monkeypatch):
    """With one layer captured, the formula is called once, for the requested rows and heads."""
    calls = []
    real = watching.attend
    monkeypatch.setattr(
        watching, "attend", lambda query, *rest, **how: calls.append(query.shape) or real(query, *rest, **how)
    )
    capture(make(DECODERS["learned"]), some_ids(), layers=[2], heads=[1], rows=[4, 5])
    assert calls == [(2, 1, 2, 8)]
    calls.clear()
    capture(make(DECODERS["learned"]), some_ids(), steps=("query", "context", "residual"))
    assert calls == []


def test_steps_arrive_in_blocks_of_rows():
    model, ids = make(DECODERS["window"]), some_ids()
    _, (whole,) = capture(model, ids, layers=[1])
    _, pieces = capture(model, ids, layers=[1], block=5)
    assert [len(piece.rows) for piece in pieces] == [5, 5, 5, 2]
    torch.testing.assert_close(torch.cat([piece.array for piece in pieces], dim=2), whole.array)


def test_residual_stream_adds_up():
    """The input of a block plus the outputs of its sublayers is the input of the next."""
    model, ids = make(DECODERS["rotary"]), some_ids()
    _, seen = capture(model, ids, steps=("residual", "output"))
    at = {(*one.place, one.step): one.array for one in seen}
    for layer in range(3):
        added = sum(at["decoder", layer, part, "output"] for part in ("attention", "feedforward"))
        torch.testing.assert_close(
            at["decoder", layer, "stream", "residual"] + added, at["decoder", layer + 1, "stream", "residual"]
        )


def test_ablating_a_head_removes_its_contribution():
    """Zeroing the context of one head removes its contribution through W_O."""
    model, ids = make(DECODERS["learned"]), some_ids()

    def off(place, context):
        keep = torch.ones(4)
        keep[2] = 0.0
        return context * keep[:, None, None] if place.layer == 1 else context

    seen, edited = [], []
    with torch.inference_mode():
        model(ids, tap=Tap(seen.append, steps=("output", "context"), layers=[1], parts=["attention"]))
        model(ids, tap=Tap(edited.append, steps=("output",), layers=[1], parts=["attention"]), edit=off)
        context, output = seen
        weight = model.decoder.blocks[1].attention.output.weight[:, 16:24]
        torch.testing.assert_close(edited[0].array, output.array - context.array[:, 2] @ weight.T, atol=1e-5, rtol=0)
