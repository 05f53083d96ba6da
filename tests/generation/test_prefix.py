"""Pages: found by the very ids they were made from, the least used go first, and what is pasted is what was cut."""

import pytest
import torch
from tests.models.zoo import BASELINES, DECODERS, make, some_ids

from peasy.generation.footprint import held_bytes, measure
from peasy.generation.prefix import Prefixes, cut, paste


def content(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int8)


def test_a_page_is_found_by_all_that_came_before_it():
    prefixes = Prefixes(1000)
    one = prefixes.keep((), (1, 2), content(1))
    other = prefixes.keep((), (3, 4), content(1))
    after = prefixes.keep(one, (5, 6), content(1))
    assert prefixes.find(one, (5, 6)) is after[1]
    assert prefixes.find(other, (5, 6)) is None
    assert prefixes.find((), (5, 6)) is None


def test_the_budget_holds_and_the_least_used_go_first():
    prefixes = Prefixes(30)
    first = prefixes.keep((), (1,), content(10))
    longer = prefixes.keep(first, (2,), content(10))
    prefixes.keep((), (3,), content(10))
    prefixes.use(longer)
    prefixes.keep((), (4,), content(10))
    assert {page.key[1] for page in prefixes.pages.values()} == {(1,), (2,), (4,)}
    prefixes.keep((), (5,), content(10))
    assert {page.key[1] for page in prefixes.pages.values()} == {(1,), (4,), (5,)}  # the end of a text before its start
    assert prefixes.bytes == 30


def test_a_chain_that_lost_a_page_grows_no_more():
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
def test_what_is_pasted_goes_on_as_what_was_read(name):
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
def test_what_is_not_finite_or_not_there_is_not_kept():
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
def test_no_memory_is_larger_than_foretold(name, length):
    model = make((DECODERS | BASELINES)[name]).eval()
    foretold, memory = measure(model).bytes(length), model.start(room=length)
    for new in some_ids(1, length)[0].tolist():
        model.read([[new]], [memory])
    assert held_bytes(memory) <= foretold
    assert held_bytes(memory) >= foretold / 4
