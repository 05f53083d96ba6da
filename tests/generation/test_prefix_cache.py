"""Prefix cache: pages are found by their exact prefix, LRU eviction, restored states equal the original."""

import pytest
import torch
from tests.models.tiny_models import BASELINES, DECODERS, make, some_ids

from peasy.generation.footprint import measure_footprint, tensor_bytes
from peasy.generation.prefix_cache import PrefixCache, extract, restore


def content(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int8)


def test_a_page_is_found_by_its_whole_prefix():
    cache = PrefixCache(1000)
    first = cache.insert((), (1, 2), content(1))
    other = cache.insert((), (3, 4), content(1))
    after = cache.insert(first, (5, 6), content(1))
    assert cache.find(first, (5, 6)) is after[1]
    assert cache.find(other, (5, 6)) is None
    assert cache.find((), (5, 6)) is None


def test_lru_eviction_within_the_budget():
    cache = PrefixCache(30)
    first = cache.insert((), (1,), content(10))
    longer = cache.insert(first, (2,), content(10))
    cache.insert((), (3,), content(10))
    cache.touch(longer)
    cache.insert((), (4,), content(10))
    assert {page.key[1] for page in cache.pages.values()} == {(1,), (2,), (4,)}
    cache.insert((), (5,), content(10))
    assert {page.key[1] for page in cache.pages.values()} == {
        (1,),
        (4,),
        (5,),
    }  # the end of a chain is evicted before its start
    assert cache.nbytes == 30


def test_a_chain_with_an_evicted_page_is_not_extended():
    cache = PrefixCache(20)
    chain = cache.insert((), (1,), content(10))
    cache.insert((), (2,), content(10))
    cache.insert((), (3,), content(10))
    assert cache.find((), (1,)) is None
    assert cache.insert(chain, (4,), content(1)) is None
    assert cache.insert((), (9,), content(21)) is None
    cache.clear()
    assert cache.nbytes == 0


@pytest.mark.parametrize("name", DECODERS | BASELINES)
@torch.inference_mode()
def test_a_restored_state_continues_like_the_original(name):
    model = make((DECODERS | BASELINES)[name], double=True).eval()
    ids = some_ids(1, 24)[0].tolist()
    state, pages = model.new_state(), []
    for start in (0, 8):
        model.forward_varlen([ids[start : start + 8]], [state])
        pages.append(extract(state, start, start + 8))
    restored = restore(model.new_state(), pages)
    assert restored.length == 16
    for new in ids[16:]:
        (expected,), (actual,) = model.forward_varlen([[new]], [state]), model.forward_varlen([[new]], [restored])
        assert torch.equal(actual, expected)


@torch.inference_mode()
def test_non_finite_or_evicted_pages_are_not_extracted():
    model = make(DECODERS["rotary"]).eval()
    state = model.new_state()
    model.forward_varlen([[1, 2, 3, 4]], [state])
    assert extract(state, 0, 4) is not None
    state.layers[1].values[0, 0, 2, 0] = torch.nan
    assert extract(state, 0, 4) is None
    assert extract(state, 3, 4) is not None
    state.layers[1].num_evicted = 4
    assert extract(state, 3, 4) is None
    model = make(BASELINES["lstm"]).eval()
    state = model.new_state()
    model.forward_varlen([[1, 2, 3, 4]], [state])
    assert extract(state, 0, 2) is None


@pytest.mark.parametrize("name", DECODERS | BASELINES)
@pytest.mark.parametrize("length", [1, 63])
@torch.inference_mode()
def test_states_stay_within_the_estimated_footprint(name, length):
    model = make((DECODERS | BASELINES)[name]).eval()
    estimate, state = measure_footprint(model).max_bytes(length), model.new_state(capacity=length)
    for new in some_ids(1, length)[0].tolist():
        model.forward_varlen([[new]], [state])
    assert tensor_bytes(state) <= estimate
    assert tensor_bytes(state) >= estimate / 4
