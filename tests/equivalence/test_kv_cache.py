"""KV cache: decoding in random chunks equals the full pass, also after growth, eviction, crop and reorder."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.tiny_models import DECODERS, GENERATIVE_MODELS, SEQ2SEQ_MODELS, make, some_ids, source_of

from peasy.nn import kv_cache

CLOSE = {"atol": 1e-9, "rtol": 0}


def in_chunks(model, ids, sizes, **source):
    with torch.inference_mode():
        cache = model.new_state(**source)
        return torch.cat([model(chunk, cache=cache) for chunk in ids.split(sizes, dim=1)], dim=1)


def full_pass(model, ids, **source):
    with torch.inference_mode():
        return model(ids, **source)


@st.composite
def cuts(draw, total=23):
    boundaries = sorted(draw(st.sets(st.integers(1, total - 1), max_size=6)))
    return [after - before for before, after in zip([0, *boundaries], [*boundaries, total], strict=True)]


MODELS: dict = {}


def model_of(name):
    if name not in MODELS:
        MODELS[name] = make(GENERATIVE_MODELS[name], double=True)
    return MODELS[name]


@pytest.mark.parametrize("name", GENERATIVE_MODELS)
@settings(max_examples=8, deadline=None)
@given(sizes=cuts())
def test_random_chunks(name, sizes):
    model, ids = model_of(name), some_ids(2, 23)
    source = source_of(model)
    torch.testing.assert_close(in_chunks(model, ids, sizes, **source), full_pass(model, ids, **source), **CLOSE)


@pytest.mark.parametrize("name", ["learned", "window", "relative", "windowed-layers"])
def test_growing_buffers_and_sliding_windows(name, monkeypatch):
    """Blocks of 4 tokens instead of 256."""
    monkeypatch.setattr(kv_cache, "BLOCK_TOKENS", 4)
    model, ids = model_of(name), some_ids(2, 40)
    sizes = [1] * 7 + [3, 9] + [1] * 21
    torch.testing.assert_close(in_chunks(model, ids, sizes), full_pass(model, ids), **CLOSE)


@pytest.mark.parametrize("name", DECODERS)
def test_crop(name):
    model, ids = model_of(name), some_ids(2, 12)
    other = some_ids(2, 12, seed=9)
    with torch.inference_mode():
        cache = model.new_state()
        model(torch.cat([ids[:, :8], other[:, 8:]], dim=1), cache=cache)
        cache.crop(8)
        after = model(ids[:, 8:], cache=cache)
    assert cache.length == 12
    torch.testing.assert_close(after, full_pass(model, ids)[:, 8:], **CLOSE)


@pytest.mark.parametrize("name", SEQ2SEQ_MODELS)
def test_source_is_encoded_once(name, monkeypatch):
    model, ids = model_of(name), some_ids(2, 6)
    source = source_of(model)
    calls = []
    monkeypatch.setattr(type(model.encoder), "forward", _count_calls(type(model.encoder).forward, model.encoder, calls))
    in_chunks(model, ids, [2, 1, 1, 2], **source)
    assert len(calls) == 1


def _count_calls(original, module, calls):
    def forward(self, *args, **kwargs):
        calls.extend([1] if self is module else [])
        return original(self, *args, **kwargs)

    return forward


def test_top_left_alignment_is_detected(monkeypatch):
    """Inverse: torch's is_causal is aligned top-left, so every chunk but the first is wrong."""
    from peasy.nn.mask import MaskSpec

    monkeypatch.setattr(
        MaskSpec,
        "distances",
        lambda self, n_key: (
            self.query_positions[:, :, None] - self.query_positions[:, :1, None] - self.key_positions[:, None, -n_key:]
        ),
    )
    model, ids = model_of("learned"), some_ids(2, 9)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(in_chunks(model, ids, [4, 5]), full_pass(model, ids), **CLOSE)
