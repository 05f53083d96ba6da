"""Prefix cache: pages are found by their exact prefix, LRU eviction, restored states equal the original."""

import pytest
import torch
from tests.models.tiny_models import BASELINES, DECODERS, make, some_ids

from peasy.generation.footprint import measure_footprint, tensor_bytes
from peasy.generation.prefix_cache import PrefixCache, extract, restore


def content(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int8)


def test_a_page_is_found_by_its_whole_prefix():
    prefixes = PrefixCache(1000)
    one = prefixes.insert((), (1, 2), content(1))
    other = prefixes.insert((), (3, 4), content(1))
    after = prefixes.insert(one, (5, 6), content(1))
    assert prefixes.find(one, (5, 6)) is after[1]
    assert prefixes.find(other, (5, 6)) is None
    assert prefixes.find((), (5, 6)) is None


def test_lru_eviction_within_the_budget():
    prefixes = PrefixCache(30)
    first = prefixes.insert((), (1,), content(10))
    longer = prefixes.insert(first, (2,), content(10))
    prefixes.insert((), (3,), content(10))
    prefixes.touch(longer)
    prefixes.insert((), (4,), content(10))
    assert {page.key[1] for page in prefixes.pages.values()} == {(1,), (2,), (4,)}
    prefixes.insert((), (5,), content(10))
    assert {page.key[1] for page in prefixes.pages.values()} == {
        (1,),
        (4,),
        (5,),
    }  # the end of a chain is evicted before its start
    assert prefixes.nbytes == 30


def test_a_chain_with_an_evicted_page_is_not_extended():
    prefixes = PrefixCache(20)
    chain = prefixes.insert((), (1,), content(10))
    prefixes.insert((), (2,), content(10))
    prefixes.insert((), (3,), content(10))
    assert prefixes.find((), (1,)) is None
    assert prefixes.insert(chain, (4,), content(1)) is None
    assert prefixes.insert((), (9,), content(21)) is None
    prefixes.clear()
    assert prefixes.nbytes == 0


@pytest.mark.parametrize("name", DECODERS | BASELINES)
@torch.inference_mode()
def test_a_restored_state_continues_like_the_original(name):
    model = make((DECODERS | BASELINES)[name], double=True).eval()
    ids = some_ids(1, 24)[0].tolist()
    read, pages = model.new_state(), []
    for start in (0, 8):
        model.forward_varlen([ids[start : start + 8]], [read])
        pages.append(extract(read, start, start + 8))
    pasted = restore(model.new_state(), pages)
    assert pasted.length == 16
    for new in ids[16:]:
        (expected,), (found,) = model.forward_varlen([[new]], [read]), model.forward_varlen([[new]], [pasted])
        assert torch.equal(found, expected)


@torch.inference_mode()
def test_non_finite_or_evicted_pages_are_not_extracted():
    model = make(DECODERS["rotary"]).eval()
    memory = model.new_state()
    model.forward_varlen([[1, 2, 3, 4]], [memory])
    assert extract(memory, 0, 4) is not None
    memory.layers[1].values[0, 0, 2, 0] = torch.nan
    assert extract(memory, 0, 4) is None
    assert extract(memory, 3, 4) is not None
    memory.layers[1].dropped = 4
    assert extract(memory, 3, 4) is None
    state = make(BASELINES["lstm"]).eval()
    memory = state.new_state()
    state.forward_varlen([[1, 2, 3, 4]], [memory])
    assert extract(memory, 0, 2) is None


@pytest.mark.parametrize("name", DECODERS | BASELINES)
@pytest.mark.parametrize("length", [1, 63])
@torch.inference_mode()
def test_states_stay_within_the_estimated_footprint(name, length):
    model = make((DECODERS | BASELINES)[name]).eval()
    foretold, memory = measure_footprint(model).max_bytes(length), model.new_state(capacity=length)
    for new in some_ids(1, length)[0].tolist():
        model.forward_varlen([[new]], [memory])
    assert tensor_bytes(memory) <= foretold
    assert tensor_bytes(memory) >= foretold / 4
