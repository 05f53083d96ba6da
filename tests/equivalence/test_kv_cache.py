"""KV cache: decoding in random chunks equals the full pass; growth, eviction, crop and reorder."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.tiny_models import DECODERS, SOURCED, WRITERS, make, some_ids, source_of

from peasy.nn import kv_cache as caches
from peasy.nn.kv_cache import LayerKVCache

CLOSE = {"atol": 1e-9, "rtol": 0}


def in_pieces(model, ids, sizes, **source):
    with torch.inference_mode():
        memory = model.new_state(batch=len(ids), **source)
        return torch.cat([model(piece, cache=memory) for piece in ids.split(sizes, dim=1)], dim=1)


def whole(model, ids, **source):
    with torch.inference_mode():
        return model(ids, **source)


@st.composite
def cuts(draw, total=23):
    marks = sorted(draw(st.sets(st.integers(1, total - 1), max_size=6)))
    return [after - before for before, after in zip([0, *marks], [*marks, total], strict=True)]


MADE: dict = {}


def made(name):
    if name not in MADE:
        MADE[name] = make(WRITERS[name], double=True)
    return MADE[name]


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=8, deadline=None)
@given(sizes=cuts())
def test_in_random_pieces(name, sizes):
    model, ids = made(name), some_ids(2, 23)
    source = source_of(model)
    torch.testing.assert_close(in_pieces(model, ids, sizes, **source), whole(model, ids, **source), **CLOSE)


@pytest.mark.parametrize("name", ["learned", "window", "relative", "windowed-layers"])
def test_growing_buffers_and_sliding_windows(name, monkeypatch):
    """Blocks of 4 tokens instead of 256."""
    monkeypatch.setattr(caches, "BLOCK_TOKENS", 4)
    model, ids = made(name), some_ids(2, 40)
    sizes = [1] * 7 + [3, 9] + [1] * 21
    torch.testing.assert_close(in_pieces(model, ids, sizes), whole(model, ids), **CLOSE)


def test_window_limits_the_cache(monkeypatch):
    monkeypatch.setattr(caches, "BLOCK_TOKENS", 4)
    model = made("window")
    with torch.inference_mode():
        memory = model.new_state()
        for token in some_ids(1, 60).split(1, dim=1):
            model(token, cache=memory)
    assert memory.length == 60
    assert all(layer.keys.shape[2] <= 12 for layer in memory.layers)


def test_unused_capacity_is_never_read(monkeypatch):
    """NaN in the unused part of a buffer changes nothing; in the used part it does."""
    model, ids = made("learned"), some_ids(2, 9)

    def read(poison):
        with torch.inference_mode():
            memory = model.new_state(capacity=64)
            first = model(ids[:, :5], cache=memory)
            for layer in memory.layers:
                poison(layer)
            return torch.cat([first, model(ids[:, 5:], cache=memory)], dim=1)

    expected = whole(model, ids)
    torch.testing.assert_close(read(lambda layer: layer.keys[:, :, 9:].fill_(torch.nan)), expected, **CLOSE)
    torch.testing.assert_close(read(lambda layer: layer.values[:, :, 5:].fill_(torch.nan)), expected, **CLOSE)
    assert read(lambda layer: layer.values[:, :, 4:5].fill_(torch.nan)).isnan().any()


@pytest.mark.parametrize("name", DECODERS)
def test_crop(name):
    model, ids = made(name), some_ids(2, 12)
    other = some_ids(2, 12, seed=9)
    with torch.inference_mode():
        memory = model.new_state()
        model(torch.cat([ids[:, :8], other[:, 8:]], dim=1), cache=memory)
        memory.crop(8)
        after = model(ids[:, 8:], cache=memory)
    assert memory.length == 12
    torch.testing.assert_close(after, whole(model, ids)[:, 8:], **CLOSE)


@pytest.mark.parametrize("name", WRITERS)
def test_reorder(name):
    model, ids = made(name), some_ids(3, 10)
    source = source_of(model, rows=3)
    rows = torch.tensor([2, 0, 0])
    with torch.inference_mode():
        memory = model.new_state(batch=3, **source)
        model(ids[:, :6], cache=memory)
        memory.reorder(rows)
        after = model(ids[rows][:, 6:], cache=memory)
    expected = whole(model, ids[rows], **{key: value[rows] for key, value in source.items()})
    torch.testing.assert_close(after, expected[:, 6:], **CLOSE)


@pytest.mark.parametrize("name", SOURCED)
def test_source_is_encoded_once(name, monkeypatch):
    model, ids = made(name), some_ids(2, 6)
    source = source_of(model)
    calls = []
    monkeypatch.setattr(type(model.encoder), "forward", _count_calls(type(model.encoder).forward, model.encoder, calls))
    in_pieces(model, ids, [2, 1, 1, 2], **source)
    assert len(calls) == 1


def _count_calls(real, module, calls):
    def forward(self, *given, **how):
        calls.extend([1] if self is module else [])
        return real(self, *given, **how)

    return forward


def test_top_left_alignment_is_detected(monkeypatch):
    """Inverse: torch's is_causal is aligned top-left, so every chunk but the first is wrong."""
    from peasy.nn.mask import MaskSpec

    monkeypatch.setattr(
        MaskSpec,
        "position_distances",
        lambda self, n_key: self.query[:, :, None] - self.query[:, :1, None] - self.key[:, None, -n_key:],
    )
    model, ids = made("learned"), some_ids(2, 9)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(in_pieces(model, ids, [4, 5]), whole(model, ids), **CLOSE)


def test_crop_beyond_evicted_tokens_is_refused():
    layer = LayerKVCache(window=4)
    for _ in range(300):
        layer.extend(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
    with pytest.raises(Exception, match="cannot be cropped to 3 tokens"):
        layer.crop(3)


def test_nbytes():
    model = made("learned")
    with torch.inference_mode():
        memory = model.new_state()
        model(some_ids(2, 5), cache=memory)
    assert memory.nbytes == 3 * 2 * (2 * 4 * caches.BLOCK_TOKENS * 8) * 8
