"""Interventions change exactly what they describe; without the hook in nn they would change nothing."""

import pytest
import torch
from tests.models.tiny_models import ALL_MODELS, DECODERS, TRANSFORMERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.inspection.apply_edits import EditContext, IntervenedModel
from peasy.inspection.apply_edits import make_intervention as combine
from peasy.inspection.edit import cut, mean, parse_heads, patch, resample, scale, steer, uniform, zero
from peasy.inspection.forward import ModelInput, forward_hidden, forward_logits
from peasy.nn import attention_backends
from peasy.nn.module_path import Address
from peasy.nn.tap import Tap

INPUT = ModelInput(tuple(some_ids(1, 9)[0].tolist()))
OTHER_INPUT = ModelInput(tuple(some_ids(1, 9, seed=4)[0].tolist()))


def make_intervention(edits, model, axes=None, tokenize=None, texts=None):
    return combine(edits, EditContext(model, axes, tokenize, texts))


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
    weights = activations_of(model, INPUT, make_intervention([uniform(1, 2)], model), layers=[1])
    (after,) = weights.values()
    visible = (after[2] > 0).float()
    torch.testing.assert_close(after[2], visible / visible.sum(-1, keepdim=True), atol=1e-6, rtol=0)


def test_without_the_hook_in_attention_the_tests_fail(monkeypatch):
    monkeypatch.setattr(
        attention_backends, "edit_attention", lambda intervention, path, inputs, mask_spec: (inputs, None)
    )
    with pytest.raises(AssertionError):
        test_a_cut_edge_has_no_weight_and_the_rest_is_renormalised("learned")
    with pytest.raises(AssertionError):
        test_a_uniform_head_gives_equal_activations_of("learned")


@pytest.mark.parametrize("name", ["learned", "post-norm", "seq2seq"])
def test_an_ablated_sublayer_adds_nothing(name):
    model = make(TRANSFORMERS[name])
    model_input = input_of(model)
    intervention = make_intervention([zero(1, part="feedforward")], model)
    outputs = activations_of(
        model, model_input, intervention, steps=["output"], layers=[1], parts=["feedforward"], stacks=["decoder"]
    )
    assert all(not array.any() for array in outputs.values())
    whole = activations_of(
        model, model_input, make_intervention([zero(1)], model), steps=["output"], layers=[1], stacks=["decoder"]
    )
    assert len(whole) >= 2
    assert all(not array.any() for array in whole.values())


def test_ablating_a_head_removes_only_its_output():
    model = make(DECODERS["learned"])
    intervention = make_intervention([zero(0, 1)], model)
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
    one_row = make_intervention([patch("other", 2, step="residual", positions=[4])], model, None, texts.__getitem__)
    patched = activations_of(model, INPUT, one_row, steps=["residual"], layers=[2])
    plain, other = (activations_of(model, r, None, steps=["residual"], layers=[2]) for r in (INPUT, OTHER_INPUT))
    (path,) = patched
    assert torch.equal(patched[path][4], other[path][4])
    assert torch.equal(patched[path][3], plain[path][3])


def test_interventions_with_kv_cache_equal_full_pass():
    model = make(DECODERS["learned"])
    intervention = make_intervention([zero(1, 2), cut(6, 3, layer=0), uniform(2, 0)], model)
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
    (even,) = activations_of(
        model, model_input, make_intervention([uniform(0, part="cross_attention")], model)
    ).values()
    torch.testing.assert_close(even, torch.full_like(even, 1 / 9))
    ablation = make_intervention([zero(0, 0, part="cross_attention")], model)
    assert not torch.allclose(forward_logits(model, model_input), forward_logits(model, model_input, None, ablation))


def test_a_fully_masked_query_gives_no_nan():
    model = make(DECODERS["learned"])
    intervention = make_intervention([cut(0, 0)], model)
    assert torch.isfinite(forward_logits(model, INPUT, None, intervention, all_positions=True)).all()


def test_invalid_interventions_are_rejected():
    model = make(DECODERS["learned"])
    texts = {"short": ModelInput((5, 6))}
    for specs, message in (
        ([zero(7)], "no layer 7"),
        ([zero(0, 9)], "no head 9"),
        ([zero(0, part="norm")], "no part"),
        ([zero(0, stack="encoder")], "no stack"),
        ([cut("it", 2)], "only positions"),
        ([patch("short", 0, step="scores")], "cannot be edited"),
        ([zero(0, 1, step="output")], "has no heads"),
        ([steer([1.0, 2.0], -9)], "no layer -9"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make_intervention(specs, model, None, texts.__getitem__)
    short = make_intervention([patch("short", 0)], model, None, texts.__getitem__)
    wrong = make_intervention([steer([1.0, 2.0], 0)], model)
    with pytest.raises(InvalidInput, match="steering vector"):
        forward_logits(model, INPUT, None, wrong)
    with pytest.raises(InvalidInput, match="2 tokens"):
        forward_logits(model, INPUT, None, short)
    with pytest.raises(InvalidInput, match="is not a head"):
        parse_heads(["2."])
    assert make_intervention([], model) is None


STEPS = ("query", "key", "value", "weights", "context", "activation", "output", "residual")
STEP_MODELS = ["learned", "grouped", "post-norm", "shift", "encoder", "seq2seq"]


def change(step, layer=1):
    """A function that changes one step of one layer by position, head and dimension, in every stack."""

    def edit(address, array):
        if (address.step, address.layer) != (step, layer):
            return None
        return array * torch.linspace(0.5, 1.5, array.shape[-1]) + torch.linspace(0, 1, array.shape[-2])[:, None]

    return edit


@pytest.mark.parametrize("name", STEP_MODELS)
@pytest.mark.parametrize("step", STEPS)
def test_a_function_edits_every_step_and_taps_capture_the_changed_values(name, step):
    model = make(TRANSFORMERS[name])
    model_input, part = input_of(model), {"residual": "stream", "activation": "feedforward"}.get(step, "attention")
    options = {"steps": [step], "layers": [1], "parts": [part]}
    plain, changed = (activations_of(model, model_input, one, **options) for one in (None, change(step)))
    for path, array in plain.items():
        if path.stack == "decoder" and len(plain) > 1:
            continue  # its input was changed in the encoder already
        expected = change(step)(Address(*path, step), array)
        torch.testing.assert_close(changed[path], expected, atol=1e-5, rtol=0)
    edited = forward_logits(model, model_input, None, change(step))
    assert not torch.allclose(edited, forward_logits(model, model_input))


def test_a_function_that_changes_nothing_changes_no_bit():
    model = make(DECODERS["rotary"])
    for function in (lambda address, array: None, lambda address, array: array):
        assert torch.equal(forward_logits(model, INPUT, None, function), forward_logits(model, INPUT))


@pytest.mark.parametrize("name", ["learned", "grouped", "window", "shift"])
@pytest.mark.parametrize("step", STEPS)
def test_edited_steps_with_a_kv_cache_equal_the_full_pass(name, step):
    """Keys and values are edited before they are cached; positions are those of the whole text."""
    model = make(DECODERS[name])
    intervention = make_intervention([scale(0.5, 1, step=step, positions=[2, 6]), zero(0, 1)], model)
    whole = forward_logits(model, INPUT, None, intervention, all_positions=True)
    intervened = IntervenedModel(model, intervention)
    state = intervened.new_state()
    with torch.inference_mode():
        first = intervened.forward_varlen([INPUT.ids[:5]], [state], all_positions=True)[0]
        rest = [intervened.forward_varlen([[id]], [state])[0] for id in INPUT.ids[5:]]
    torch.testing.assert_close(torch.cat([first, torch.stack(rest)]), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("step", STEPS)
def test_patching_a_step_from_the_same_text_changes_no_logit_and_only_the_named_positions(step):
    model = make(DECODERS["grouped"])
    texts = {"same": INPUT, "other": OTHER_INPUT}
    same = make_intervention([patch("same", 1, step=step)], model, None, texts.__getitem__)
    torch.testing.assert_close(forward_logits(model, INPUT, None, same), forward_logits(model, INPUT))
    some = make_intervention([patch("other", 1, step=step, positions=[3, 5])], model, None, texts.__getitem__)
    part = {"residual": "stream", "activation": "feedforward"}.get(step, "attention")
    options = {"steps": [step], "layers": [1], "parts": [part]}
    plain, other, patched = (
        next(iter(activations_of(model, text, one, **options).values()))
        for text, one in ((INPUT, None), (OTHER_INPUT, None), (INPUT, some))
    )
    changed, kept = [3, 5], [0, 1, 2, 4, 6, 7, 8]
    if step != "output":
        torch.testing.assert_close(patched[..., changed, :], other[..., changed, :], atol=1e-6, rtol=0)
    torch.testing.assert_close(patched[..., kept, :], plain[..., kept, :], atol=1e-6, rtol=0)


def test_heads_that_share_keys_and_values_are_edited_together():
    """The second KV head serves query heads 2 and 3."""
    model = make(DECODERS["grouped"])
    intervention = make_intervention([zero(0, 3, step="value")], model)
    options = {"steps": ["context"], "layers": [0], "parts": ["attention"]}
    (context,) = activations_of(model, INPUT, intervention, **options).values()
    assert [bool(head.any()) for head in context] == [True, True, False, False]


def test_mean_and_resample_take_a_data_set():
    model = make(DECODERS["learned"])
    data = [INPUT, OTHER_INPUT, ModelInput(OTHER_INPUT.ids[:4])]
    options = {"steps": ["context"], "layers": [1], "parts": ["attention"]}
    arrays = [next(iter(activations_of(model, text, None, **options).values())) for text in data]
    texts = lambda names: [data[int(name)] for name in names]  # noqa: E731
    edit = make_intervention([mean("012", 1, 2)], model, None, None, texts)
    (context,) = activations_of(model, INPUT, edit, **options).values()
    expected = torch.cat([array[2] for array in arrays]).mean(0)
    torch.testing.assert_close(context[2], expected.expand_as(context[2]), atol=1e-6, rtol=0)
    torch.testing.assert_close(context[1], arrays[0][1])
    edit = make_intervention([mean("01", 1, 2, by_position=True)], model, None, None, texts)
    (context,) = activations_of(model, INPUT, edit, **options).values()
    torch.testing.assert_close(context[2], (arrays[0][2] + arrays[1][2]) / 2, atol=1e-6, rtol=0)
    edit = make_intervention([resample("12", 1, 2)], model, None, None, texts)
    (context,) = activations_of(model, INPUT, edit, **options).values()
    torch.testing.assert_close(context[2], arrays[1][2], atol=1e-6, rtol=0)
    with pytest.raises(InvalidInput, match="at least 9 tokens"):
        forward_logits(model, INPUT, None, make_intervention([resample("2", 1, 2)], model, None, None, texts))
    with pytest.raises(InvalidInput, match="equally many tokens"):
        make_intervention([mean("12", 1, step="weights")], model, None, None, texts)


def test_steering_adds_a_vector_and_several_edits_act_in_their_order():
    model = make(DECODERS["learned"])
    vector = torch.arange(32.0)
    edits = [steer(vector, 1, factor=2, positions=[-1 % 9]), scale(3, 1, step="residual", positions=[8])]
    options = {"steps": ["residual"], "layers": [1]}
    plain, steered = (
        next(iter(activations_of(model, INPUT, one, **options).values()))
        for one in (None, make_intervention(edits, model))
    )
    torch.testing.assert_close(steered[8], (plain[8] + 2 * vector) * 3)
    assert torch.equal(steered[:8], plain[:8])


def test_models_without_the_step_refuse_the_edit():
    with pytest.raises(InvalidInput, match="no output to intervene on"):
        make_intervention([zero(0)], make(ALL_MODELS["lstm"]))
    with pytest.raises(InvalidInput, match="no weights to intervene on"):
        make_intervention([zero(0, step="weights")], make(ALL_MODELS["recurrent-translator"]))
