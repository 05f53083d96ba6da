"""Observed decoding steps: with a KV cache equal to a full forward pass; nothing is computed twice or changed."""

import numpy as np
import pytest
import torch
from tests.models.tiny_models import ALL_MODELS, make

from peasy.generation.decode import run_requests
from peasy.generation.engine import Engine
from peasy.generation.limits import UNLIMITED
from peasy.generation.request import AttentionQuery, Ended, Request, Token
from peasy.generation.sampling_params import BeamSearchParams, SamplingParams
from peasy.nn.tap import Tap

PROMPT, SOURCE = (5, 9, 17), (8, 3, 22, 41)
NAMES = ["learned", "grouped", "window", "relative", "seq2seq", "recurrent-translator", "lstm"]


def run(model, **options) -> list[tuple[int, ...]]:
    """Return the generated ids, or those of all hypotheses."""
    prompt, source = ((0,), SOURCE) if model.is_encoder_decoder else (PROMPT, None)
    request = Request(prompt, SamplingParams(max_tokens=5), source, **options)
    events = list(run_requests(Engine(model, limits=UNLIMITED, isolate_errors=False), [request]))
    (ended,) = (event for event in events if isinstance(event, Ended))
    ids = tuple(event.sampled.id for event in events if isinstance(event, Token))
    return [hypothesis.ids for hypothesis in ended.hypotheses] or [ids]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options", [{}, {"beam_search": BeamSearchParams(num_beams=3, max_tokens=5, n=3)}], ids=["greedy", "beams"]
)
def test_observed_steps_equal_a_full_forward_pass(name, options):
    model, steps = make(ALL_MODELS[name]), {}
    observed = {"observer": lambda step: steps.setdefault(step.ids, step)}
    generated = run(model, attention_query=AttentionQuery(top_k=None), **observed, **options)
    assert generated == run(model, **options), "observing changes nothing"
    first = (0,) if model.is_encoder_decoder else PROMPT
    source = {"source": torch.tensor([SOURCE])} if model.is_encoder_decoder else {}
    for ids in generated:
        whole, activations = (*first, *ids[:-1]), []
        with torch.inference_mode():
            logits = model(torch.tensor([whole]), tap=Tap(activations.append, stacks=["decoder"]), **source)[0]
        weights = {activation.path: activation.array[0] for activation in activations}
        for row in range(len(first) - 1, len(whole)):
            step = steps[whole[: row + 1]]
            logprobs, expected = (torch.log_softmax(values.float(), -1) for values in (step.logits, logits[row]))
            torch.testing.assert_close(logprobs, expected, atol=1e-4, rtol=0)
            assert step.num_computed + step.num_cached == row + 1
            assert step.num_computed == (len(first) if row == len(first) - 1 else 1)
            for layer in step.attention:
                dense = np.zeros((len(layer.keys), weights[layer.path].shape[-1]), np.float32)
                np.put_along_axis(dense, layer.keys, layer.weights, axis=1)
                np.testing.assert_allclose(dense, weights[layer.path][:, row].numpy(), atol=1e-5)


def test_only_the_top_weights_of_selected_heads_are_kept():
    steps = []
    run(make(ALL_MODELS["learned"]), attention_query=AttentionQuery((1,), (0, 3), 2), observer=steps.append)
    for step in steps:
        (layer,) = step.attention
        assert (layer.keys.shape, layer.heads) == ((2, 2), (0, 3))
        assert (np.diff(layer.weights, axis=1) <= 0).all()


def test_a_run_without_the_cache_gives_the_same_steps():
    model = make(ALL_MODELS["learned"], double=True)
    cached, uncached = [], []
    query = AttentionQuery(top_k=3)
    run(model, attention_query=query, observer=cached.append)
    run(model, attention_query=query, observer=uncached.append, use_cache=False)
    assert [step.num_cached for step in uncached] == [0] * 5
    for one, other in zip(cached, uncached, strict=True):
        assert one.ids == other.ids
        torch.testing.assert_close(one.logits, other.logits)
        for layer, same in zip(one.attention, other.attention, strict=True):
            np.testing.assert_allclose(layer.weights, same.weights)
