"""KV cache: capacity, eviction, crop and size; that it changes no result is tested in tests/equivalence."""

import pytest
import torch
from tests.models.tiny_models import DECODERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.nn import kv_cache
from peasy.nn.kv_cache import KVBatch, LayerKVCache

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


def test_a_packed_batch_extends_the_cache_of_each_sequence():
    caches = [LayerKVCache(), LayerKVCache()]
    new = torch.arange(3.0).view(1, 1, 3, 1), torch.arange(3.0).view(1, 1, 3, 1) + 10
    first, second = KVBatch(new, caches).append([2, 1])
    assert first[0].flatten().tolist() == [0, 1]
    assert second[1].flatten().tolist() == [12]
    (keys, values, length), (_, _, other) = KVBatch(new, caches).reserve([1, 2])
    assert (length, other) == (3, 3)
    assert keys is caches[0].keys
    assert values is caches[0].values


def test_without_a_cache_the_new_keys_are_all_there_are():
    new = torch.zeros(2, 1, 3, 4), torch.zeros(2, 1, 3, 4)
    assert KVBatch(new).append([]) == [new]
    assert KVBatch(new).reserve([3]) == [(*new, 3)]
    assert KVBatch(encoder_kv=[new, new]).reserve([1, 1]) == [(*new, 3)] * 2
