"""Top attention reported by the engine equals the weights of a full forward pass."""

import pytest
import torch
from tests.generation.company import alone, model_of, rotary_decoder, run, token_ids
from tests.models.zoo import make

from peasy.errors import InvalidInput
from peasy.generation.engine import Engine
from peasy.generation.glance import Watch
from peasy.generation.limit import Limits
from peasy.generation.prefix import PAGE
from peasy.generation.request import Request, Token
from peasy.generation.sampling import Sampling
from peasy.nn.tap import Tap

PROMPT = tuple(i % 9 + 1 for i in range(PAGE + 8))


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
    model, source = model_of(kind), (4, 8, 15) if model_of(kind).reads_source else None
    prompt = (0,) if source else PROMPT
    engine = Engine(model, limits=Limits(chunk=PAGE))
    for _ in range(3):  # other requests in the batch
        engine.submit(Request(prompt, Sampling(9, 1.0), source))
    response = engine.submit(Request(prompt, Sampling(5), source, watch=Watch(keys=4)))
    run(engine)
    events = [event for event in response.take() if isinstance(event, Token)]
    written = token_ids(events)
    assert written == alone(kind, prompt, source, 5)
    for event in events:
        expected = weights_alone(model, [*prompt, *written[: event.place]], source)
        assert {(one.part, one.layer, one.head) for one in event.looked} == expected.keys()
        for one in event.looked:
            weights = expected[one.part, one.layer, one.head]
            best = sorted(weights, reverse=True)[:4]
            assert [weight for _, weight in one.keys] == pytest.approx([w for w in best if w > 0], abs=1e-9)
            assert all(weights[place] == pytest.approx(weight, abs=1e-9) for place, weight in one.keys)


def test_positions_are_absolute_after_window_eviction():
    model = make(rotary_decoder(window=5), double=True).eval()
    engine = Engine(model)
    response = engine.submit(Request(PROMPT * 7, Sampling(3), watch=Watch((1,), (0,), 5)))
    run(engine)
    for event in response.take():
        if isinstance(event, Token):
            (one,) = event.looked
            last = 7 * len(PROMPT) + event.place - 1
            assert {place for place, _ in one.keys} <= set(range(last - 4, last + 1))


def test_only_requested_layers_and_heads_are_reported():
    engine = Engine(model_of("decoder"))
    watching = engine.submit(Request((1, 2), Sampling(3), n=2, watch=Watch((1,), (0,), 1)))
    other = engine.submit(Request((1, 2), Sampling(3)))
    run(engine)
    for event in watching.take():
        if isinstance(event, Token):
            assert [(one.part, one.layer, one.head, len(one.keys)) for one in event.looked] == [("attention", 1, 0, 1)]
    assert not [event for event in other.take() if isinstance(event, Token) and event.looked]


@pytest.mark.parametrize(
    ("kind", "watch", "message"),
    [
        ("decoder", Watch(layers=(2,)), "no layer 2"),
        ("decoder", Watch(heads=(-1,)), "no head -1"),
        ("lstm", Watch(layers=(0,)), "no layer 0"),
    ],
)
def test_missing_layers_and_heads_are_rejected(kind, watch, message):
    with pytest.raises(InvalidInput, match=message):
        Engine(model_of(kind)).submit(Request((1,), watch=watch))
