"""Direct logit attribution: the addends sum to the model's own logit, on every family, and mean what they say."""

from dataclasses import replace

import pytest
import torch
from tests.models.tiny_models import BASELINES, DECODERS, RECURRENT_TRANSLATORS, TRANSFORMERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.inspection import attribution
from peasy.inspection.apply_edits import EditContext, make_intervention
from peasy.inspection.attribution import attribute_logit
from peasy.inspection.edit import scale, steer, zero
from peasy.inspection.forward import ModelInput, forward_logits

IDS = tuple(some_ids(1, 9)[0].tolist())


def input_of(model) -> ModelInput:
    return ModelInput(IDS, (3, 4, 5, 6)) if model.is_encoder_decoder else ModelInput(IDS)


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("position", [-1, 2])
def test_addends_sum_to_the_logit(name, position):
    model = make(TRANSFORMERS[name])
    logits = forward_logits(model, input_of(model), all_positions=True)
    for token in (7, 30):
        logit, components = attribute_logit(model, input_of(model), token, position)
        assert logit == pytest.approx(float(logits[position, token]), abs=1e-5)
        assert sum(component.value for component in components) == pytest.approx(logit, abs=1e-4)
        for component in components:
            if component.sources is not None:
                assert component.sources.sum() == pytest.approx(component.value, abs=1e-9)


@pytest.mark.parametrize("name", ["learned", "post-norm", "encoder", "softcap"])
def test_without_the_norm_the_sum_is_wrong(name, monkeypatch):
    monkeypatch.setattr(attribution, "_through_norm", lambda *args, **options: None)
    with pytest.raises(AssertionError):
        test_addends_sum_to_the_logit(name, -1)


def test_a_head_of_the_last_layer_contributes_what_its_ablation_removes_before_the_norm():
    """Independent way: without the final norm, ablating a head of the last layer lowers the logit by its addend."""
    model = make(DECODERS["learned"])
    model.decoder.norm = None
    model.decoder.blocks[2].feedforward.down.weight.data.zero_()  # so that nothing after the head depends on it
    logit, components = attribute_logit(model, ModelInput(IDS), 7)
    for head in range(4):
        edit = make_intervention([zero(2, head)], EditContext(model))
        ablated = float(forward_logits(model, ModelInput(IDS), None, edit)[7])
        addend = next(c.value for c in components if (c.part, c.layer, c.head) == ("attention", 2, head))
        assert logit - ablated == pytest.approx(addend, abs=1e-5)


def test_a_source_token_contributes_what_its_value_vector_adds():
    """Independent way: scaling one value vector by 0 removes the source token's part of a last-layer head."""
    model = make(DECODERS["learned"])
    model.decoder.norm = None
    model.decoder.blocks[2].feedforward.down.weight.data.zero_()
    logit, components = attribute_logit(model, ModelInput(IDS), 7)
    head = next(c for c in components if (c.part, c.layer, c.head) == ("attention", 2, 1))
    for key in range(9):
        edit = make_intervention([zero(2, 1, step="value", positions=[key])], EditContext(model))
        ablated = float(forward_logits(model, ModelInput(IDS), None, edit)[7])
        assert logit - ablated == pytest.approx(head.sources[key], abs=1e-5)


@pytest.mark.parametrize("name", ["rotary", "post-norm", "seq2seq"])
def test_edits_have_an_addend_of_their_own(name):
    model = make(TRANSFORMERS[name])
    edits = [zero(1, 2), scale(0.5, 0), steer(torch.ones(32), 2), scale(2.0, 1, step="weights")]
    intervention = make_intervention(edits, EditContext(model))
    logit, components = attribute_logit(model, input_of(model), 7, intervention=intervention)
    expected = forward_logits(model, input_of(model), None, intervention)[7]
    assert logit == pytest.approx(float(expected), abs=1e-5)
    assert sum(component.value for component in components) == pytest.approx(logit, abs=1e-4)
    assert any(component.part == "edit" for component in components)


@pytest.mark.parametrize("name", ["lstm", "convolution", "recurrent-translator"])
def test_models_without_a_residual_stream_are_refused(name):
    model = make((BASELINES | RECURRENT_TRANSLATORS)[name])
    with pytest.raises(InvalidInput, match="no residual stream"):
        attribute_logit(model, input_of(model), 7)
    encoder = make(replace(TRANSFORMERS["encoder"], lm_head=None))
    with pytest.raises(InvalidInput, match="no residual stream with an LM head"):
        attribute_logit(encoder, input_of(encoder), 7)
