"""Top attention reported by the engine equals the weights of a full forward pass."""

import pytest
import torch
from tests.generation.tiny_models import alone, model_of, rotary_decoder, run, token_ids
from tests.models.tiny_models import make

from peasy.errors import InvalidInput
from peasy.generation.attention_topk import AttentionQuery
from peasy.generation.engine import Engine
from peasy.generation.limits import EngineLimits
from peasy.generation.prefix_cache import PAGE_SIZE
from peasy.generation.request import Request, Token
from peasy.generation.sampling import SamplingParams
from peasy.nn.tap import Tap

PROMPT = tuple(i % 9 + 1 for i in range(PAGE_SIZE + 8))


@torch.inference_mode()
def weights_alone(model, ids, source=None) -> dict[tuple[str, int, int], list[float]]:
    """Return the last token's weights of every head from one full pass."""
    seen = []
    given = {} if source is None else {"source": torch.tensor([source])}
    model(torch.tensor([ids]), tap=Tap(seen.append, rows=[-1], stacks=["decoder"]), **given)
    return {
        (one.place.part, one.place.layer, head): row[-1].tolist()
        for one in seen
        for head, row in zip(one.heads, one.array[0], strict=True)
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
    written = token_ids(events)
    assert written == alone(kind, prompt, source, 5)
    for event in events:
        expected = weights_alone(model, [*prompt, *written[: event.index]], source)
        assert {(one.part, one.layer, one.head) for one in event.attention} == expected.keys()
        for one in event.attention:
            weights = expected[one.part, one.layer, one.head]
            best = sorted(weights, reverse=True)[:4]
            assert [weight for _, weight in one.keys] == pytest.approx([w for w in best if w > 0], abs=1e-9)
            assert all(weights[place] == pytest.approx(weight, abs=1e-9) for place, weight in one.keys)


def test_positions_are_absolute_after_window_eviction():
    model = make(rotary_decoder(window=5), double=True).eval()
    engine = Engine(model)
    response = engine.submit(Request(PROMPT * 7, SamplingParams(3), attention_query=AttentionQuery((1,), (0,), 5)))
    run(engine)
    for event in response.pop_all():
        if isinstance(event, Token):
            (one,) = event.attention
            last = 7 * len(PROMPT) + event.index - 1
            assert {place for place, _ in one.keys} <= set(range(last - 4, last + 1))


def test_only_requested_layers_and_heads_are_reported():
    engine = Engine(model_of("decoder"))
    watching = engine.submit(Request((1, 2), SamplingParams(3), n=2, attention_query=AttentionQuery((1,), (0,), 1)))
    other = engine.submit(Request((1, 2), SamplingParams(3)))
    run(engine)
    for event in watching.pop_all():
        if isinstance(event, Token):
            assert [(one.part, one.layer, one.head, len(one.keys)) for one in event.attention] == [
                ("attention", 1, 0, 1)
            ]
    assert not [event for event in other.pop_all() if isinstance(event, Token) and event.attention]


@pytest.mark.parametrize(
    ("kind", "watch", "message"),
    [
        ("decoder", AttentionQuery(layers=(2,)), "no layer 2"),
        ("decoder", AttentionQuery(heads=(-1,)), "no head -1"),
        ("lstm", AttentionQuery(layers=(0,)), "no layer 0"),
    ],
)
def test_missing_layers_and_heads_are_rejected(kind, watch, message):
    with pytest.raises(InvalidInput, match=message):
        Engine(model_of(kind)).submit(Request((1,), attention_query=watch))
