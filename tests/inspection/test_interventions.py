"""Interventions change exactly what they describe; without the hook in nn they would change nothing."""

import pytest
import torch
from tests.models.tiny_models import DECODERS, EVERYONE, TRANSFORMERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.inspection.apply_interventions import IntervenedModel, make_intervention
from peasy.inspection.forward import ModelInput, forward_hidden, forward_logits
from peasy.inspection.interventions import cut, even, off, parse_ablations, patch
from peasy.nn import attention
from peasy.nn.tap import Tap

READING = ModelInput(tuple(some_ids(1, 9)[0].tolist()))
OTHER = ModelInput(tuple(some_ids(1, 9, seed=4)[0].tolist()))


def reading_of(model) -> ModelInput:
    return ModelInput(READING.ids, (3, 4, 5, 6)) if model.reads_source else READING


def weights(model, reading, change, **asked):
    seen = []
    forward_hidden(model, reading, Tap(seen.append, **asked), change)
    return {one.place: one.array[0] for one in seen}


@pytest.mark.parametrize("name", ["learned", "grouped", "alibi", "window", "encoder", "both-relative"])
def test_a_cut_edge_has_no_weight_and_the_rest_is_renormalised(name):
    model = make(TRANSFORMERS[name])
    reading = reading_of(model)
    stack = "encoder" if name == "encoder" else "decoder"
    change = make_intervention([cut(3, 2, layer=0, head=1)], model)
    before, after = weights(model, reading, None), weights(model, reading, change)
    first, second = (next(w for p, w in found.items() if p == (stack, 0, "attention")) for found in (before, after))
    assert second[1, 3, 2] == 0
    rest = first[1, 3].clone()
    rest[2] = 0
    torch.testing.assert_close(second[1, 3], rest / rest.sum(), atol=1e-6, rtol=0)
    untouched = [head for head in range(4) if head != 1]
    torch.testing.assert_close(first[untouched], second[untouched], atol=1e-6, rtol=0)
    assert not torch.allclose(forward_logits(model, reading), forward_logits(model, reading, None, change))


@pytest.mark.parametrize("name", ["learned", "alibi", "relative", "softcap", "window"])
def test_a_uniform_head_gives_equal_weights(name):
    model = make(DECODERS[name])
    found = weights(model, READING, make_intervention([even(1, 2)], model), layers=[1])
    (after,) = found.values()
    shared = (after[2] > 0).float()
    torch.testing.assert_close(after[2], shared / shared.sum(-1, keepdim=True), atol=1e-6, rtol=0)


def test_without_the_hook_in_attention_the_tests_fail(monkeypatch):
    monkeypatch.setattr(attention, "intervene_attention", lambda edit, place, look, sight: look)
    with pytest.raises(AssertionError):
        test_a_cut_edge_has_no_weight_and_the_rest_is_renormalised("learned")
    with pytest.raises(AssertionError):
        test_a_uniform_head_gives_equal_weights("learned")


@pytest.mark.parametrize("name", ["learned", "after", "both"])
def test_an_ablated_sublayer_adds_nothing(name):
    model = make(TRANSFORMERS[name])
    reading = reading_of(model)
    change = make_intervention([off(1, part="feedforward")], model)
    found = weights(model, reading, change, steps=["output"], layers=[1], parts=["feedforward"], stacks=["decoder"])
    assert all(not array.any() for array in found.values())
    whole = weights(
        model, reading, make_intervention([off(1)], model), steps=["output"], layers=[1], stacks=["decoder"]
    )
    assert len(whole) >= 2
    assert all(not array.any() for array in whole.values())


def test_ablating_a_head_removes_only_its_output():
    model = make(DECODERS["learned"])
    change = make_intervention([off(0, 1)], model)
    seen = []
    forward_hidden(model, READING, Tap(seen.append, steps=["context", "output"], layers=[0], parts=["attention"]))
    context, output = seen[0].array, seen[1].array
    after = []
    forward_hidden(model, READING, Tap(after.append, steps=["output"], layers=[0], parts=["attention"]), change)
    lost = context[:, 1] @ model.decoder.blocks[0].attention.output.weight.detach()[:, 8:16].T
    torch.testing.assert_close(after[0].array, output - lost, atol=1e-5, rtol=0)


def test_patching_from_the_same_and_from_another_text():
    model = make(DECODERS["rotary"])
    texts = {"same": READING, "other": OTHER}
    for step in ("context", "residual", "output"):
        change = make_intervention([patch("same", 1, step=step)], model, None, texts.__getitem__)
        assert torch.equal(forward_logits(model, READING, None, change), forward_logits(model, READING))
    all_of_it = make_intervention([patch("other", 0, step="residual")], model, None, texts.__getitem__)
    torch.testing.assert_close(forward_logits(model, READING, None, all_of_it), forward_logits(model, OTHER))
    one_row = make_intervention([patch("other", 2, step="residual", rows=[4])], model, None, texts.__getitem__)
    streams = weights(model, READING, one_row, steps=["residual"], layers=[2])
    plain, theirs = (weights(model, r, None, steps=["residual"], layers=[2]) for r in (READING, OTHER))
    (place,) = streams
    assert torch.equal(streams[place][4], theirs[place][4])
    assert torch.equal(streams[place][3], plain[place][3])


def test_interventions_with_kv_cache_equal_full_pass():
    model = make(DECODERS["learned"])
    change = make_intervention([off(1, 2), cut(6, 3, layer=0), even(2, 0)], model)
    whole = forward_logits(model, READING, None, change, all_positions=True)
    edited = IntervenedModel(model, change)
    memory = edited.new_state()
    with torch.inference_mode():
        first = edited.forward_varlen([READING.ids[:5]], [memory], all_positions=True)[0]
        rest = [edited.forward_varlen([[id]], [memory])[0] for id in READING.ids[5:]]
    torch.testing.assert_close(torch.cat([first, torch.stack(rest)]), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["recurrent-translator", "recurrent-translator-lstm"])
def test_interventions_on_recurrent_translators(name):
    model = make(EVERYONE[name])
    reading = reading_of(model)
    change = make_intervention([cut(2, 5, layer=0, part="cross_attention")], model)
    (after,) = weights(model, reading, change).values()
    assert after[0, 2, 5] == 0
    torch.testing.assert_close(after.sum(-1), torch.ones(1, 4))
    (flat,) = weights(model, reading, make_intervention([even(0, part="cross_attention")], model)).values()
    torch.testing.assert_close(flat, torch.full_like(flat, 1 / 9))
    gone = make_intervention([off(0, 0, part="cross_attention")], model)
    assert not torch.allclose(forward_logits(model, reading), forward_logits(model, reading, None, gone))


def test_a_fully_masked_query_gives_no_nan():
    model = make(DECODERS["learned"])
    change = make_intervention([cut(0, 0)], model)
    assert torch.isfinite(forward_logits(model, READING, None, change, all_positions=True)).all()


def test_invalid_interventions_are_rejected():
    model = make(DECODERS["learned"])
    texts = {"short": ModelInput((5, 6))}
    for edits, message in (
        ([off(7)], "no layer 7"),
        ([off(0, 9)], "no head 9"),
        ([off(0, part="norm")], "no part"),
        ([off(0, stack="encoder")], "no stack"),
        ([cut("it", 2)], "only positions"),
        ([patch("short", 0, step="weights")], "cannot be patched"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make_intervention(edits, model, None, texts.__getitem__)
    short = make_intervention([patch("short", 0)], model, None, texts.__getitem__)
    with pytest.raises(InvalidInput, match="2 tokens"):
        forward_logits(model, READING, None, short)
    with pytest.raises(InvalidInput, match="is not a head"):
        parse_ablations(["2."])
    assert make_intervention([], model) is None
