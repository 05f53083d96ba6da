"""Encoder: pooling of text vectors, and batches of many texts."""

from dataclasses import replace

import pytest
import torch
from tests.models.tiny_models import ENCODERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.generation.packed import pack
from peasy.models.build import build


def encoder(**changes):
    return make(replace(ENCODERS["encoder-post-norm"], **changes))


@pytest.mark.parametrize("pooling", ["mean", "first", "max", "pooler"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_vectors(pooling, side):
    model, ids = encoder(pooling=pooling), some_ids(3, 8)
    padding = torch.full((3, 3), 9)
    padded = torch.cat([padding, ids] if side == "left" else [ids, padding], dim=1)
    mask = torch.ones_like(padded, dtype=torch.bool)
    mask[:, :3] = mask[:, :3] & (side == "right")
    mask[:, 8:] = mask[:, 8:] & (side == "left")
    with torch.inference_mode():
        torch.testing.assert_close(model.embed(padded, padding_mask=mask), model.embed(ids), atol=1e-5, rtol=0)


def test_pooling_by_definition():
    ids = some_ids(2, 6)
    model = encoder(normalise=False)
    with torch.inference_mode():
        hidden = model.hidden(ids)
        first = hidden[:, 0]
        expected = {
            "mean": hidden.mean(1),
            "first": first,
            "max": hidden.amax(1),
            "pooler": torch.tanh(model.pooler(first)),
        }
        for pooling, vectors in expected.items():
            torch.testing.assert_close(encoder(normalise=False, pooling=pooling).embed(ids), vectors)


def test_vectors_are_normalised():
    with torch.inference_mode():
        torch.testing.assert_close(encoder().embed(some_ids()).norm(dim=-1), torch.ones(2))


def test_segments_change_the_output():
    model, ids = encoder(), some_ids()
    with torch.inference_mode():
        plain = model.hidden(ids)
        assert torch.equal(plain, model.hidden(ids, segments=torch.zeros_like(ids)))
        assert not torch.equal(plain, model.hidden(ids, segments=torch.ones_like(ids)))


def test_unsupported_operations_are_refused():
    model = build(replace(ENCODERS["encoder"], lm_head=None))
    with pytest.raises(InvalidInput, match="no head for masked tokens"):
        model(some_ids())
    with pytest.raises(InvalidInput, match="cannot generate text"):
        model.new_state()


def test_batched_texts_equal_single_texts():
    model = encoder()
    texts = [some_ids(1, length, seed=length)[0].tolist() for length in (5, 17, 5, 1, 40, 16, 17)]
    together = model.embed_batch(texts, max_batch_tokens=64)
    with torch.inference_mode():
        alone = torch.cat([model.embed(torch.tensor([text])) for text in texts])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    assert model.embed_batch([]).shape == (0, 32)


def test_packed_models_and_half_precision_have_a_layer_after_pooling():
    model, texts = make(ENCODERS["encoder-relative"]), some_ids(3, 9).tolist()
    vectors = model.embed_batch(texts)
    torch.testing.assert_close(pack(model, "float32").embed_batch(texts), vectors, atol=1e-5, rtol=0)
    half = model.to(torch.bfloat16)
    torch.testing.assert_close(half.embed_batch(texts).float(), vectors, atol=0.05, rtol=0)
