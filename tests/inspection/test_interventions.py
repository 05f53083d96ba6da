"""Interventions change exactly what they describe; without the hook in nn they would change nothing."""

import pytest
import torch
from tests.models.tiny_models import ALL_MODELS, DECODERS, TRANSFORMERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.inspection.apply_interventions import IntervenedModel, make_intervention
from peasy.inspection.forward import ModelInput, forward_hidden, forward_logits
from peasy.inspection.interventions import cut, even, off, parse_ablations, patch
from peasy.nn import attention_backends
from peasy.nn.tap import Tap

INPUT = ModelInput(tuple(some_ids(1, 9)[0].tolist()))
OTHER_INPUT = ModelInput(tuple(some_ids(1, 9, seed=4)[0].tolist()))


def input_of(model) -> ModelInput:
    return ModelInput(INPUT.ids, (3, 4, 5, 6)) if model.is_encoder_decoder else INPUT


def activations_of(model, model_input, intervention, **tap_options):
    activations = []
    forward_hidden(model, model_input, Tap(activations.append, **tap_options), intervention)
    return {activation.path: activation.array[0] for activation in activations}


@pytest.mark.parametrize("name", ["learned", "grouped", "alibi", "window", "encoder", "seq2seq-relative"])
def test_a_cut_edge_has_no_weight_and_the_rest_is_renormalised(name):
    model = make(TRANSFORMERS[name])
    model_input = input_of(model)
    stack = "encoder" if name == "encoder" else "decoder"
    intervention = make_intervention([cut(3, 2, layer=0, head=1)], model)
    before, after = activations_of(model, model_input, None), activations_of(model, model_input, intervention)
    first, second = (weights[stack, 0, "attention"] for weights in (before, after))
    assert second[1, 3, 2] == 0
    rest = first[1, 3].clone()
    rest[2] = 0
    torch.testing.assert_close(second[1, 3], rest / rest.sum(), atol=1e-6, rtol=0)
    untouched = [head for head in range(4) if head != 1]
    torch.testing.assert_close(first[untouched], second[untouched], atol=1e-6, rtol=0)
    assert not torch.allclose(
        forward_logits(model, model_input), forward_logits(model, model_input, None, intervention)
    )


@pytest.mark.parametrize("name", ["learned", "alibi", "relative", "softcap", "window"])
def test_a_uniform_head_gives_equal_activations_of(name):
    model = make(DECODERS[name])
    weights = activations_of(model, INPUT, make_intervention([even(1, 2)], model), layers=[1])
    (after,) = weights.values()
    visible = (after[2] > 0).float()
    torch.testing.assert_close(after[2], visible / visible.sum(-1, keepdim=True), atol=1e-6, rtol=0)


def test_without_the_hook_in_attention_the_tests_fail(monkeypatch):
    monkeypatch.setattr(attention_backends, "intervene_attention", lambda intervention, path, inputs, mask_spec: inputs)
    with pytest.raises(AssertionError):
        test_a_cut_edge_has_no_weight_and_the_rest_is_renormalised("learned")
    with pytest.raises(AssertionError):
        test_a_uniform_head_gives_equal_activations_of("learned")


@pytest.mark.parametrize("name", ["learned", "post-norm", "seq2seq"])
def test_an_ablated_sublayer_adds_nothing(name):
    model = make(TRANSFORMERS[name])
    model_input = input_of(model)
    intervention = make_intervention([off(1, part="feedforward")], model)
    outputs = activations_of(
        model, model_input, intervention, steps=["output"], layers=[1], parts=["feedforward"], stacks=["decoder"]
    )
    assert all(not array.any() for array in outputs.values())
    whole = activations_of(
        model, model_input, make_intervention([off(1)], model), steps=["output"], layers=[1], stacks=["decoder"]
    )
    assert len(whole) >= 2
    assert all(not array.any() for array in whole.values())


def test_ablating_a_head_removes_only_its_output():
    model = make(DECODERS["learned"])
    intervention = make_intervention([off(0, 1)], model)
    before = []
    forward_hidden(model, INPUT, Tap(before.append, steps=["context", "output"], layers=[0], parts=["attention"]))
    context, output = before[0].array, before[1].array
    after = []
    forward_hidden(model, INPUT, Tap(after.append, steps=["output"], layers=[0], parts=["attention"]), intervention)
    lost = context[:, 1] @ model.decoder.blocks[0].attention.output.weight.detach()[:, 8:16].T
    torch.testing.assert_close(after[0].array, output - lost, atol=1e-5, rtol=0)


def test_patching_from_the_same_and_from_another_text():
    model = make(DECODERS["rotary"])
    texts = {"same": INPUT, "other": OTHER_INPUT}
    for step in ("context", "residual", "output"):
        intervention = make_intervention([patch("same", 1, step=step)], model, None, texts.__getitem__)
        assert torch.equal(forward_logits(model, INPUT, None, intervention), forward_logits(model, INPUT))
    everything = make_intervention([patch("other", 0, step="residual")], model, None, texts.__getitem__)
    torch.testing.assert_close(forward_logits(model, INPUT, None, everything), forward_logits(model, OTHER_INPUT))
    one_row = make_intervention([patch("other", 2, step="residual", rows=[4])], model, None, texts.__getitem__)
    patched = activations_of(model, INPUT, one_row, steps=["residual"], layers=[2])
    plain, other = (activations_of(model, r, None, steps=["residual"], layers=[2]) for r in (INPUT, OTHER_INPUT))
    (path,) = patched
    assert torch.equal(patched[path][4], other[path][4])
    assert torch.equal(patched[path][3], plain[path][3])


def test_interventions_with_kv_cache_equal_full_pass():
    model = make(DECODERS["learned"])
    intervention = make_intervention([off(1, 2), cut(6, 3, layer=0), even(2, 0)], model)
    whole = forward_logits(model, INPUT, None, intervention, all_positions=True)
    intervened = IntervenedModel(model, intervention)
    state = intervened.new_state()
    with torch.inference_mode():
        first = intervened.forward_varlen([INPUT.ids[:5]], [state], all_positions=True)[0]
        rest = [intervened.forward_varlen([[id]], [state])[0] for id in INPUT.ids[5:]]
    torch.testing.assert_close(torch.cat([first, torch.stack(rest)]), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["recurrent-translator", "recurrent-translator-lstm"])
def test_interventions_on_recurrent_translators(name):
    model = make(ALL_MODELS[name])
    model_input = input_of(model)
    intervention = make_intervention([cut(2, 5, layer=0, part="cross_attention")], model)
    (after,) = activations_of(model, model_input, intervention).values()
    assert after[0, 2, 5] == 0
    torch.testing.assert_close(after.sum(-1), torch.ones(1, 4))
    (uniform,) = activations_of(
        model, model_input, make_intervention([even(0, part="cross_attention")], model)
    ).values()
    torch.testing.assert_close(uniform, torch.full_like(uniform, 1 / 9))
    ablation = make_intervention([off(0, 0, part="cross_attention")], model)
    assert not torch.allclose(forward_logits(model, model_input), forward_logits(model, model_input, None, ablation))


def test_a_fully_masked_query_gives_no_nan():
    model = make(DECODERS["learned"])
    intervention = make_intervention([cut(0, 0)], model)
    assert torch.isfinite(forward_logits(model, INPUT, None, intervention, all_positions=True)).all()


def test_invalid_interventions_are_rejected():
    model = make(DECODERS["learned"])
    texts = {"short": ModelInput((5, 6))}
    for specs, message in (
        ([off(7)], "no layer 7"),
        ([off(0, 9)], "no head 9"),
        ([off(0, part="norm")], "no part"),
        ([off(0, stack="encoder")], "no stack"),
        ([cut("it", 2)], "only positions"),
        ([patch("short", 0, step="weights")], "cannot be patched"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make_intervention(specs, model, None, texts.__getitem__)
    short = make_intervention([patch("short", 0)], model, None, texts.__getitem__)
    with pytest.raises(InvalidInput, match="2 tokens"):
        forward_logits(model, INPUT, None, short)
    with pytest.raises(InvalidInput, match="is not a head"):
        parse_ablations(["2."])
    assert make_intervention([], model) is None
