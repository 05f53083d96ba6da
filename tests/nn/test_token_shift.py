"""Token shift: by hand, with a KV cache, and never across the sequences of a packed batch."""

import pytest
import torch
from tests.models.tiny_models import DECODERS, make, some_ids

from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn.forward_context import ForwardContext
from peasy.nn.kv_cache import TokenShiftState
from peasy.nn.mask import MaskSpec
from peasy.nn.module_path import ModulePath
from peasy.nn.token_shift import previous_token, token_shift

HERE = ModulePath("decoder", 0, "attention")


def scene(padding_mask=None, time: int = 4) -> ForwardContext:
    places = torch.arange(time)[None]
    return ForwardContext(MaskSpec(places, places, True, None if real is None else torch.tensor(real)))


def test_first_half_comes_from_the_previous_token():
    x = torch.tensor([[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]]])
    expected = [[[0.0, 10.0], [1.0, 20.0], [2.0, 30.0], [3.0, 40.0]]]
    assert token_shift(x, scene(), HERE).tolist() == expected
    assert token_shift(x.requires_grad_(), scene(), HERE).tolist() == expected


@pytest.mark.parametrize(
    ("padding_mask", "expected"),
    [
        ([[True] * 4], [0, 1, 2, 3]),
        ([[False, False, True, True]], [0, 0, 0, 3]),
        ([[True, True, False, True]], [0, 1, 2, 2]),
    ],
    ids=["none", "before", "between"],
)
def test_padding_is_skipped(real, expected):
    x = torch.tensor([[[1], [2], [3], [4]]])
    assert previous_token(x, scene(real), 0, "x")[0, :, 0].tolist() == expected


@pytest.mark.parametrize("name", ["shift", "ngrams"])
@torch.inference_mode()
def test_packed_sequences_do_not_mix(name):
    model, texts = make(DECODERS[name], double=True), [[5, 6, 7], [9], [8, 7, 6, 5]]
    found = model.forward_varlen(texts, [model.new_state() for _ in texts], all_positions=True)
    for text, scores in zip(texts, found, strict=True):
        torch.testing.assert_close(scores, model(torch.tensor([text]))[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["crop", "reorder", "fork"])
@torch.inference_mode()
def test_state_that_is_not_updated_is_detected(method, monkeypatch):
    """Without any one of crop, reorder and fork of the state, the results differ."""
    model, ids = make(DECODERS["shift"], double=True), some_ids(2, 9)
    rows = torch.tensor([1, 0])

    def go_on() -> torch.Tensor:
        memory = model.new_state(batch=2)
        model(ids[:, :6], cache=memory)
        memory.crop(5)
        memory.reorder(rows)
        other = memory.fork()
        model(ids[:, :3], cache=other)
        return model(ids[rows][:, 5:], cache=memory)

    expected = model(ids[rows])[:, 5:]
    torch.testing.assert_close(go_on(), expected, rtol=0, atol=1e-9)
    monkeypatch.setattr(
        TokenShiftState, method, (lambda self: self) if method == "fork" else (lambda self, asked: None)
    )
    with pytest.raises((AssertionError, RuntimeError, IndexError)):
        torch.testing.assert_close(go_on(), expected, rtol=0, atol=1e-9)


@torch.inference_mode()
def test_ngram_embeddings_by_hand():
    model = build(preset("gpt-tiny", vocabulary=10, d_model=8, embedding={"ngrams": 3, "buckets": 7}), seed=1)
    embedding, ids = model.embedding, [4, 9, 2]
    pairs, triples = (table.weight for table in embedding.ngram)
    found = embedding(torch.tensor([ids]), scene(time=3))[0]
    numbers = [id + 1 for id in ids]
    for place, number in enumerate(numbers):
        one = numbers[place - 1] if place > 0 else 0
        two = numbers[place - 2] if place > 1 else 0
        pair = number * 11 + one
        expected = embedding.token.weight[ids[place]] + pairs[pair % 7] + triples[(pair * 11 + two) % 7]
        torch.testing.assert_close(found[place], expected)
