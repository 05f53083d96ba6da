"""Generation trace: records with KV cache equal a full forward pass; nothing is computed twice."""

import numpy as np
import pytest
import torch
from tests.models.tiny_models import EVERYONE, make

from peasy.generation.beam_search import BeamSearchParams, beam_search
from peasy.generation.decode import generate
from peasy.generation.sampling import SamplingParams
from peasy.inspection.forward import ModelInput, forward_hidden, forward_logits
from peasy.inspection.trace import TracingModel
from peasy.nn.tap import Tap

PROMPT, SOURCE = [5, 9, 17], [8, 3, 22, 41]
NAMES = ["learned", "grouped", "window", "relative", "both", "recurrent-translator", "lstm"]


def write(traced, model, beam: bool) -> list[list[int]]:
    how = {"source": [SOURCE], "prompts": [[0]]} if model.reads_source else {"prompts": [PROMPT]}
    if beam:
        return [
            list(one.ids)
            for one in beam_search(traced, params=BeamSearchParams(num_beams=3, max_tokens=5, n=3), **how)[0].hypotheses
        ]
    return generate(traced, sampling=SamplingParams(max_tokens=5), **how)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beam", [False, True], ids=["greedy", "beams"])
def test_traced_steps_equal_a_full_forward_pass(name, beam):
    model = make(EVERYONE[name])
    traced = TracingModel(model, top_keys=None)
    texts = write(traced, model, beam)
    assert texts == write(model, model, beam), "tracing changes nothing"
    first = [0] if model.is_encoder_decoder else PROMPT
    for ids in texts:
        whole = (*first, *ids[:-1])
        reading = ModelInput(tuple(SOURCE), whole) if model.is_encoder_decoder else ModelInput(whole)
        seen = []
        forward_hidden(model, reading, Tap(seen.append, stacks=["decoder"]))
        table = {one.place: one.array[0] for one in seen}
        scores = torch.log_softmax(forward_logits(model, reading, all_positions=True).float(), -1)
        for row in range(len(first) - 1, len(whole)):
            glimpse = traced.steps[whole[: row + 1]]
            torch.testing.assert_close(glimpse.logprobs, scores[row], atol=1e-4, rtol=0)
            assert glimpse.num_computed + glimpse.num_cached == row + 1
            assert glimpse.num_computed == (len(first) if row == len(first) - 1 else 1)
            for looked in glimpse.attention:
                dense = np.zeros((len(looked.keys), table[looked.path].shape[-1]), np.float32)
                np.put_along_axis(dense, looked.keys, looked.weights, axis=1)
                np.testing.assert_allclose(dense, table[looked.path][:, row].numpy(), atol=1e-5)


def test_only_the_top_weights_of_selected_heads_are_kept():
    model = make(EVERYONE["learned"])
    traced = TracingModel(model, top_keys=2, layers=[1], heads=[0, 3], top_tokens=4)
    generate(traced, [PROMPT], SamplingParams(max_tokens=3))
    for glimpse in traced.steps.values():
        (looked,) = glimpse.attention
        assert looked.keys.shape == (2, 2)
        assert (np.diff(looked.weights, axis=1) <= 0).all()
        assert len(glimpse.top_logprobs) == 4
