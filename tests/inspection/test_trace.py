"""Generation trace: records with KV cache equal a full forward pass; nothing is computed twice."""

import numpy as np
import pytest
import torch
from tests.models.tiny_models import ALL_MODELS, make

from peasy.generation.beam_search import BeamSearchParams, beam_search
from peasy.generation.decode import generate
from peasy.generation.sampling_params import SamplingParams
from peasy.inspection.forward import ModelInput, forward_hidden, forward_logits
from peasy.inspection.trace import TracingModel
from peasy.nn.tap import Tap

PROMPT, SOURCE = [5, 9, 17], [8, 3, 22, 41]
NAMES = ["learned", "grouped", "window", "relative", "seq2seq", "recurrent-translator", "lstm"]


def generate_ids(traced, model, use_beams: bool) -> list[list[int]]:
    inputs = {"source": [SOURCE], "prompts": [[0]]} if model.is_encoder_decoder else {"prompts": [PROMPT]}
    if use_beams:
        params = BeamSearchParams(num_beams=3, max_tokens=5, n=3)
        return [list(hypothesis.ids) for hypothesis in beam_search(traced, params=params, **inputs)[0].hypotheses]
    return generate(traced, sampling=SamplingParams(max_tokens=5), **inputs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("use_beams", [False, True], ids=["greedy", "beams"])
def test_traced_steps_equal_a_full_forward_pass(name, use_beams):
    model = make(ALL_MODELS[name])
    traced = TracingModel(model, top_keys=None)
    generated = generate_ids(traced, model, use_beams)
    assert generated == generate_ids(model, model, use_beams), "tracing changes nothing"
    first = [0] if model.is_encoder_decoder else PROMPT
    for ids in generated:
        whole = (*first, *ids[:-1])
        model_input = ModelInput(tuple(SOURCE), whole) if model.is_encoder_decoder else ModelInput(whole)
        activations = []
        forward_hidden(model, model_input, Tap(activations.append, stacks=["decoder"]))
        weights = {activation.path: activation.array[0] for activation in activations}
        logprobs = torch.log_softmax(forward_logits(model, model_input, all_positions=True).float(), -1)
        for row in range(len(first) - 1, len(whole)):
            step = traced.steps[whole[: row + 1]]
            torch.testing.assert_close(step.logprobs, logprobs[row], atol=1e-4, rtol=0)
            assert step.num_computed + step.num_cached == row + 1
            assert step.num_computed == (len(first) if row == len(first) - 1 else 1)
            for layer in step.attention:
                dense = np.zeros((len(layer.keys), weights[layer.path].shape[-1]), np.float32)
                np.put_along_axis(dense, layer.keys, layer.weights, axis=1)
                np.testing.assert_allclose(dense, weights[layer.path][:, row].numpy(), atol=1e-5)


def test_only_the_top_weights_of_selected_heads_are_kept():
    model = make(ALL_MODELS["learned"])
    traced = TracingModel(model, top_keys=2, layers=[1], heads=[0, 3], top_tokens=4)
    generate(traced, [PROMPT], SamplingParams(max_tokens=3))
    for step in traced.steps.values():
        (layer,) = step.attention
        assert layer.keys.shape == (2, 2)
        assert (np.diff(layer.weights, axis=1) <= 0).all()
        assert len(step.top_logprobs) == 4
