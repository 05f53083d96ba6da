"""KV cache: capacity, eviction, crop and size; that it changes no result is tested in tests/equivalence."""

import pytest
import torch
from tests.models.tiny_models import DECODERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.nn import kv_cache
from peasy.nn.kv_cache import LayerKVCache

CLOSE = {"atol": 1e-9, "rtol": 0}


def test_window_limits_the_cache(monkeypatch):
    monkeypatch.setattr(kv_cache, "BLOCK_TOKENS", 4)
    model = make(DECODERS["window"], double=True)
    with torch.inference_mode():
        cache = model.new_state()
        for token in some_ids(1, 60).split(1, dim=1):
            model(token, cache=cache)
    assert cache.length == 60
    assert all(layer.keys.shape[2] <= 12 for layer in cache.layers)


def test_unused_capacity_is_never_read():
    """NaN in the unused part of a buffer changes nothing; in the used part it does."""
    model, ids = make(DECODERS["learned"], double=True), some_ids(2, 9)

    def read(poison):
        with torch.inference_mode():
            cache = model.new_state(capacity=64)
            first = model(ids[:, :5], cache=cache)
            for layer in cache.layers:
                poison(layer)
            return torch.cat([first, model(ids[:, 5:], cache=cache)], dim=1)

    with torch.inference_mode():
        expected = model(ids)
    torch.testing.assert_close(read(lambda layer: layer.keys[:, :, 9:].fill_(torch.nan)), expected, **CLOSE)
    torch.testing.assert_close(read(lambda layer: layer.values[:, :, 5:].fill_(torch.nan)), expected, **CLOSE)
    assert read(lambda layer: layer.values[:, :, 4:5].fill_(torch.nan)).isnan().any()


def test_crop_beyond_evicted_tokens_is_refused():
    layer = LayerKVCache(window=4)
    for _ in range(300):
        layer.extend(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
    with pytest.raises(InvalidInput, match="cannot be cropped to 3 tokens"):
        layer.crop(3)


def test_nbytes():
    model = make(DECODERS["learned"], double=True)
    with torch.inference_mode():
        cache = model.new_state()
        model(some_ids(2, 5), cache=cache)
    assert cache.nbytes == 3 * 2 * (2 * 4 * kv_cache.BLOCK_TOKENS * 8) * 8
