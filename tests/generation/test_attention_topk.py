"""Top attention reported by the engine equals the weights of a full forward pass."""

import pytest
import torch
from tests.generation.tiny_models import alone, model_of, rotary_decoder, run, token_ids
from tests.models.tiny_models import make

from peasy.errors import InvalidInput
from peasy.generation.engine import Engine
from peasy.generation.limits import PAGE_SIZE, EngineLimits
from peasy.generation.request import AttentionQuery, Request, Token
from peasy.generation.sampling_params import SamplingParams
from peasy.nn.tap import Tap

PROMPT = tuple(i % 9 + 1 for i in range(PAGE_SIZE + 8))


@torch.inference_mode()
def weights_alone(model, ids, source=None) -> dict[tuple[str, int, int], list[float]]:
    """Return the last token's weights of every head from one full pass."""
    activations = []
    source_argument = {} if source is None else {"source": torch.tensor([source])}
    model(torch.tensor([ids]), tap=Tap(activations.append, rows=[-1], stacks=["decoder"]), **source_argument)
    return {
        (activation.path.part, activation.path.layer, head): row[-1].tolist()
        for activation in activations
        for head, row in zip(activation.heads, activation.array[0], strict=True)
    }


@pytest.mark.parametrize("kind", ["decoder", "window", "translator", "recurrent-translator"])
def test_every_token_event_has_its_top_attention(kind):
    model, source = model_of(kind), (4, 8, 15) if model_of(kind).is_encoder_decoder else None
    prompt = (0,) if source else PROMPT
    engine = Engine(model, limits=EngineLimits(prefill_chunk=PAGE_SIZE))
    for _ in range(3):  # other requests in the batch
        engine.submit(Request(prompt, SamplingParams(9, 1.0), source))
    response = engine.submit(Request(prompt, SamplingParams(5), source, attention_query=AttentionQuery(top_k=4)))
    run(engine)
    events = [event for event in response.pop_all() if isinstance(event, Token)]
    generated = token_ids(events)
    assert generated == alone(kind, prompt, source, 5)
    for event in events:
        expected = weights_alone(model, [*prompt, *generated[: event.index]], source)
        heads = [(layer, row, head) for layer in event.attention for row, head in enumerate(layer.heads)]
        assert {(layer.path.part, layer.path.layer, head) for layer, _, head in heads} == expected.keys()
        for layer, row, head in heads:
            weights = expected[layer.path.part, layer.path.layer, head]
            top = list(zip(layer.keys[row].tolist(), layer.weights[row].tolist(), strict=True))
            assert [weight for _, weight in top] == pytest.approx(sorted(weights, reverse=True)[:4], abs=1e-9)
            assert all(weights[position] == pytest.approx(weight, abs=1e-9) for position, weight in top if weight)


def test_positions_are_absolute_after_window_eviction():
    model = make(rotary_decoder(window=5), double=True).eval()
    engine = Engine(model)
    response = engine.submit(Request(PROMPT * 7, SamplingParams(3), attention_query=AttentionQuery((1,), (0,), 5)))
    run(engine)
    for event in response.pop_all():
        if isinstance(event, Token):
            (layer,) = event.attention
            last = 7 * len(PROMPT) + event.index - 1
            assert set(layer.keys[0].tolist()) <= set(range(last - 4, last + 1))


def test_only_requested_layers_and_heads_are_reported():
    engine = Engine(model_of("decoder"))
    queried = engine.submit(Request((1, 2), SamplingParams(3), n=2, attention_query=AttentionQuery((1,), (0,), 1)))
    other = engine.submit(Request((1, 2), SamplingParams(3)))
    run(engine)
    for event in queried.pop_all():
        if isinstance(event, Token):
            (layer,) = event.attention
            assert (layer.path.part, layer.path.layer, layer.heads, layer.keys.shape) == ("attention", 1, (0,), (1, 1))
    assert not [event for event in other.pop_all() if isinstance(event, Token) and event.attention]


@pytest.mark.parametrize(
    ("kind", "query", "message"),
    [
        ("decoder", AttentionQuery(layers=(2,)), "no layer 2"),
        ("decoder", AttentionQuery(heads=(-1,)), "no head -1"),
        ("lstm", AttentionQuery(layers=(0,)), "no layer 0"),
    ],
)
def test_missing_layers_and_heads_are_rejected(kind, query, message):
    with pytest.raises(InvalidInput, match=message):
        Engine(model_of(kind)).submit(Request((1,), attention_query=query))
