"""Watched = unwatched, to the last bit; and what is seen is what happened."""

import pytest
import torch
from tests.models.zoo import DECODERS, EVERYONE, RECURRENT_TRANSLATORS, TRANSFORMERS, make, some_ids, source_of

from peasy.nn import watch as watching
from peasy.nn.tap import KNOWN_STEPS, Tap


def watch(model, ids, **asked):
    more = {name: asked.pop(name) for name in ("real", "cache", "source", "source_real") if name in asked}
    seen = []
    with torch.inference_mode():
        scores = model(ids, tap=Tap(seen.append, **asked), **more)
    return scores, seen


@pytest.mark.parametrize("name", EVERYONE)
def test_looking_changes_no_bit(name):
    model = make(EVERYONE[name])
    ids, source = some_ids(), source_of(model)
    with torch.inference_mode():
        alone = model(ids, **source)
    watched, seen = watch(model, ids, steps=KNOWN_STEPS, **source)
    assert torch.equal(alone, watched)
    assert seen or name == "ngram"


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_looking_at_padded_texts_changes_no_bit(name):
    model = make(TRANSFORMERS[name])
    ids, source = some_ids(), source_of(model)
    real = torch.ones_like(ids, dtype=torch.bool)
    real[0, :4] = False
    with torch.inference_mode():
        alone = model(ids, real=real, **source)
    assert torch.equal(alone, watch(model, ids, real=real, steps=KNOWN_STEPS, **source)[0])


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_the_weights_that_are_seen_make_the_context_that_is_used(name):
    """The formula's weights times the values that were used are the kernel's context: two roads."""
    model = make(TRANSFORMERS[name])
    ids = some_ids()
    _, seen = watch(model, ids, steps=("weights", "value", "context"), **source_of(model))
    at = {(one.place, one.step): one.array for one in seen}
    places = {place for place, _ in at}
    assert len(places) >= 3
    for place in places:
        found = at[place, "weights"] @ at[place, "value"]
        torch.testing.assert_close(found, at[place, "context"], atol=2e-5, rtol=0)
        torch.testing.assert_close(at[place, "weights"].sum(-1), torch.ones_like(at[place, "weights"][..., 0]))


def test_a_seen_weight_that_is_wrong_is_noticed(monkeypatch):
    """The inverse: with another scale in the formula, the two roads part."""
    real = watching.attend
    monkeypatch.setattr(watching, "attend", lambda *given, **how: real(*given, **how | {"scale": 0.9}))
    with pytest.raises(AssertionError):
        test_the_weights_that_are_seen_make_the_context_that_is_used("rotary")


@pytest.mark.parametrize("name", ["learned", "grouped", "window", "relative", "alibi", "softcap"])
@pytest.mark.parametrize("rows", [[0], [-1], [3, 9, 16], None])
@pytest.mark.parametrize("heads", [[2], [3, 0], None])
def test_some_rows_and_heads_are_those_of_all(name, rows, heads):
    model, ids = make(DECODERS[name], double=True), some_ids()
    steps = ("query", "key", "value", "scores", "scaled", "masked", "weights", "context")
    _, whole = watch(model, ids, steps=steps, layers=[1])
    _, some = watch(model, ids, steps=steps, layers=[1], rows=rows, heads=heads)
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
    _, (weights,) = watch(model, ids, source_real=real, **source)
    assert weights.place == ("decoder", 0, "cross_attention")
    assert weights.array.shape == (2, 1, 6, 9)
    assert not weights.array[1, 0, :, 6:].any()
    torch.testing.assert_close(weights.array.sum(-1), torch.ones(2, 1, 6))
    _, (some,) = watch(model, ids, rows=[-1], source_real=real, **source)
    assert torch.equal(some.array, weights.array[:, :, -1:])


def test_only_what_is_asked_for_is_computed(monkeypatch):
    """One layer watched: the formula is called once, for the asked rows and heads alone."""
    calls = []
    real = watching.attend
    monkeypatch.setattr(
        watching, "attend", lambda query, *rest, **how: calls.append(query.shape) or real(query, *rest, **how)
    )
    watch(make(DECODERS["learned"]), some_ids(), layers=[2], heads=[1], rows=[4, 5])
    assert calls == [(2, 1, 2, 8)]
    calls.clear()
    watch(make(DECODERS["learned"]), some_ids(), steps=("query", "context", "residual"))
    assert calls == []


def test_tall_steps_come_in_pieces():
    model, ids = make(DECODERS["window"]), some_ids()
    _, (whole,) = watch(model, ids, layers=[1])
    _, pieces = watch(model, ids, layers=[1], block=5)
    assert [len(piece.rows) for piece in pieces] == [5, 5, 5, 2]
    torch.testing.assert_close(torch.cat([piece.array for piece in pieces], dim=2), whole.array)


def test_the_stream_adds_up():
    """Before the norm: what enters a block plus what its sublayers add is what enters the next."""
    model, ids = make(DECODERS["rotary"]), some_ids()
    _, seen = watch(model, ids, steps=("residual", "output"))
    at = {(*one.place, one.step): one.array for one in seen}
    for layer in range(3):
        added = sum(at["decoder", layer, part, "output"] for part in ("attention", "feedforward"))
        torch.testing.assert_close(
            at["decoder", layer, "stream", "residual"] + added, at["decoder", layer + 1, "stream", "residual"]
        )


def test_switching_a_head_off_is_its_share_less():
    """An edit that puts zeros for one head's context takes away what that head brings through W_O."""
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
