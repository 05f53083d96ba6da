"""Texts of any lengths read side by side, each into a memory of its own; a forked memory goes its own way."""

import pytest
import torch

from peasy.models.build import build
from peasy.models.preset import preset
from peasy.models.protocol import Model

WRITERS = ["gpt-tiny", "rnn-tiny", "cnn-tiny", "ngram-tiny"]
TEXTS = [[1, 2, 3, 4, 5], [7], [3, 1, 4]]


@pytest.fixture(params=WRITERS)
def model(request: pytest.FixtureRequest) -> Model:
    return build(preset(request.param), seed=1).eval()


@torch.inference_mode()
def test_reading_side_by_side_is_reading_alone(model: Model) -> None:
    memories = [model.start() for _ in TEXTS]
    first = model.read([text[:1] for text in TEXTS], memories)
    rest = [index for index, text in enumerate(TEXTS) if len(text) > 1]
    later = model.read([TEXTS[index][1:] for index in rest], [memories[index] for index in rest], every=True)
    for index, scores in zip(rest, later, strict=True):
        whole = model(torch.tensor([TEXTS[index]]))[0]
        torch.testing.assert_close(torch.cat([first[index][None], scores]), whole, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_a_forked_memory_goes_its_own_way(model: Model) -> None:
    memory = model.start()
    model.read([[1, 2]], [memory])
    other = memory.fork()
    model.read([[9]], [other])
    torch.testing.assert_close(
        model.read([[3]], [memory])[0], model(torch.tensor([[1, 2, 3]]))[0, -1], rtol=1e-5, atol=1e-5
    )
    assert (memory.length, other.length) == (3, 3)
