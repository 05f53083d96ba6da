"""Prefix cache: pages are found by their exact prefix, LRU eviction, restored states equal the original."""

import pytest
import torch
from tests.models.zoo import BASELINES, DECODERS, make, some_ids

from peasy.generation.footprint import held_bytes, measure
from peasy.generation.prefix import Prefixes, cut, paste


def content(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int8)


def test_a_page_is_found_by_its_whole_prefix():
    prefixes = Prefixes(1000)
    one = prefixes.keep((), (1, 2), content(1))
    other = prefixes.keep((), (3, 4), content(1))
    after = prefixes.keep(one, (5, 6), content(1))
    assert prefixes.find(one, (5, 6)) is after[1]
    assert prefixes.find(other, (5, 6)) is None
    assert prefixes.find((), (5, 6)) is None


def test_lru_eviction_within_the_budget():
    prefixes = Prefixes(30)
    first = prefixes.keep((), (1,), content(10))
    longer = prefixes.keep(first, (2,), content(10))
    prefixes.keep((), (3,), content(10))
    prefixes.use(longer)
    prefixes.keep((), (4,), content(10))
    assert {page.key[1] for page in prefixes.pages.values()} == {(1,), (2,), (4,)}
    prefixes.keep((), (5,), content(10))
    assert {page.key[1] for page in prefixes.pages.values()} == {
        (1,),
        (4,),
        (5,),
    }  # the end of a chain is evicted before its start
    assert prefixes.bytes == 30


def test_a_chain_with_an_evicted_page_is_not_extended():
    prefixes = Prefixes(20)
    chain = prefixes.keep((), (1,), content(10))
    prefixes.keep((), (2,), content(10))
    prefixes.keep((), (3,), content(10))
    assert prefixes.find((), (1,)) is None
    assert prefixes.keep(chain, (4,), content(1)) is None
    assert prefixes.keep((), (9,), content(21)) is None
    prefixes.clear()
    assert prefixes.bytes == 0


@pytest.mark.parametrize("name", DECODERS | BASELINES)
@torch.inference_mode()
def test_a_restored_state_continues_like_the_original(name):
    model = make((DECODERS | BASELINES)[name], double=True).eval()
    ids = some_ids(1, 24)[0].tolist()
    read, pages = model.start(), []
    for start in (0, 8):
        model.read([ids[start : start + 8]], [read])
        pages.append(cut(read, start, start + 8))
    pasted = paste(model.start(), pages)
    assert pasted.length == 16
    for new in ids[16:]:
        (expected,), (found,) = model.read([[new]], [read]), model.read([[new]], [pasted])
        assert torch.equal(found, expected)


@torch.inference_mode()
def test_non_finite_or_evicted_pages_are_not_extracted():
    model = make(DECODERS["rotary"]).eval()
    memory = model.start()
    model.read([[1, 2, 3, 4]], [memory])
    assert cut(memory, 0, 4) is not None
    memory.layers[1].values[0, 0, 2, 0] = torch.nan
    assert cut(memory, 0, 4) is None
    assert cut(memory, 3, 4) is not None
    memory.layers[1].dropped = 4
    assert cut(memory, 3, 4) is None
    state = make(BASELINES["lstm"]).eval()
    memory = state.start()
    state.read([[1, 2, 3, 4]], [memory])
    assert cut(memory, 0, 2) is None


@pytest.mark.parametrize("name", DECODERS | BASELINES)
@pytest.mark.parametrize("length", [1, 63])
@torch.inference_mode()
def test_states_stay_within_the_estimated_footprint(name, length):
    model = make((DECODERS | BASELINES)[name]).eval()
    foretold, memory = measure(model).bytes(length), model.start(room=length)
    for new in some_ids(1, length)[0].tolist():
        model.read([[new]], [memory])
    assert held_bytes(memory) <= foretold
    assert held_bytes(memory) >= foretold / 4
