"""Token shift: by hand, with a KV cache, and never across the sequences of a packed batch."""

import pytest
import torch
from tests.models.tiny_models import DECODERS, make, some_ids

from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn.embedding import previous_token, token_shift
from peasy.nn.forward_context import ForwardContext
from peasy.nn.kv_cache import TokenShiftState
from peasy.nn.mask import MaskSpec
from peasy.nn.module_path import ModulePath

PATH = ModulePath("decoder", 0, "attention")


def make_context(padding_mask=None, time: int = 4) -> ForwardContext:
    positions = torch.arange(time)[None]
    mask = None if padding_mask is None else torch.tensor(padding_mask)
    return ForwardContext(MaskSpec(positions, positions, True, mask))


def test_first_half_comes_from_the_previous_token():
    x = torch.tensor([[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]]])
    expected = [[[0.0, 10.0], [1.0, 20.0], [2.0, 30.0], [3.0, 40.0]]]
    assert token_shift(x, make_context(), PATH).tolist() == expected
    assert token_shift(x.requires_grad_(), make_context(), PATH).tolist() == expected


@pytest.mark.parametrize(
    ("padding_mask", "expected"),
    [
        ([[True] * 4], [0, 1, 2, 3]),
        ([[False, False, True, True]], [0, 0, 0, 3]),
        ([[True, True, False, True]], [0, 1, 2, 2]),
    ],
    ids=["none", "before", "between"],
)
def test_padding_is_skipped(padding_mask, expected):
    x = torch.tensor([[[1], [2], [3], [4]]])
    assert previous_token(x, make_context(padding_mask), 0, "x")[0, :, 0].tolist() == expected


@pytest.mark.parametrize("name", ["shift", "ngrams"])
@torch.inference_mode()
def test_packed_sequences_do_not_mix(name):
    model, sequences = make(DECODERS[name], double=True), [[5, 6, 7], [9], [8, 7, 6, 5]]
    actual = model.forward_varlen(sequences, [model.new_state() for _ in sequences], all_positions=True)
    for ids, logits in zip(sequences, actual, strict=True):
        torch.testing.assert_close(logits, model(torch.tensor([ids]))[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["crop", "fork"])
@torch.inference_mode()
def test_state_that_is_not_updated_is_detected(method, monkeypatch):
    """Without any one of crop and fork of the state, the results differ."""
    model, ids = make(DECODERS["shift"], double=True), some_ids(2, 9)

    def decode() -> torch.Tensor:
        cache = model.new_state()
        model(ids[:, :6], cache=cache)
        cache.crop(5)
        other = cache.fork()
        model(ids[:, :3], cache=other)
        return model(ids[:, 5:], cache=cache)

    expected = model(ids)[:, 5:]
    torch.testing.assert_close(decode(), expected, rtol=0, atol=1e-9)
    monkeypatch.setattr(
        TokenShiftState, method, (lambda self: self) if method == "fork" else (lambda self, argument: None)
    )
    with pytest.raises((AssertionError, RuntimeError, IndexError)):
        torch.testing.assert_close(decode(), expected, rtol=0, atol=1e-9)


@torch.inference_mode()
def test_ngram_embeddings_by_hand():
    model = build(preset("gpt-tiny", vocab_size=10, d_model=8, embedding={"max_ngram": 3, "ngram_buckets": 7}), seed=1)
    embedding, ids = model.embedding, [4, 9, 2]
    pairs, triples = (table.weight for table in embedding.ngram)
    actual = embedding(torch.tensor([ids]), make_context(time=3))[0]
    shifted_ids = [id + 1 for id in ids]
    for position, shifted_id in enumerate(shifted_ids):
        previous = shifted_ids[position - 1] if position > 0 else 0
        before_previous = shifted_ids[position - 2] if position > 1 else 0
        pair = shifted_id * 11 + previous
        expected = embedding.token.weight[ids[position]] + pairs[pair % 7] + triples[(pair * 11 + before_previous) % 7]
        torch.testing.assert_close(actual[position], expected)
