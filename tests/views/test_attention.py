"""Captures as maps: every number where it belongs, what may not be seen empty, words merged as stated."""

import dataclasses

import numpy as np
import pytest
from tests.views.conftest import LATER, PIZZA, SELF

from peasy.errors import NotFound
from peasy.looking.record import Part
from peasy.views import Links, Maps, Paragraph
from peasy.views.attention import attention_maps, attentions, long_document, look_document, merge_words, query_document


def maps_of(document):
    return next(part for part in document.parts if isinstance(part, Maps))


def test_every_captured_weight_is_in_the_maps(look):
    maps = maps_of(look_document(look))
    assert maps.values.shape == (2, 2, 5, 5)
    for layer, place in enumerate((SELF, LATER)):
        assert np.allclose(np.nan_to_num(maps.values[layer]), look.of("weights")[place].array)


def test_what_may_not_be_looked_at_is_empty_and_not_zero(look):
    maps = maps_of(look_document(look))
    assert np.array_equal(np.isnan(maps.values[0, 0]), np.triu(np.ones((5, 5), bool), 1))
    assert "may not be looked at" in maps.says
    free = dataclasses.replace(look, parts=())
    assert not np.isnan(maps_of(look_document(free)).values).any()


def test_sinks_outside_a_window_stay(look):
    capture = look.of("weights")[SELF]
    sunk = dataclasses.replace(capture, array=np.where(np.arange(5) == 1, 0.0, capture.array))
    part = Part(SELF, 2, (0, 1), window=2, causal=True)
    other = dataclasses.replace(look, captures=(sunk,), parts=(part,))
    maps = maps_of(look_document(other))
    assert not np.isnan(maps.values[0, 0, 4, 0]), "a sink is looked at from afar"
    assert np.isnan(maps.values[0, 0, 4, 1]), "outside the window and never looked at"
    assert "sinks" in maps.says


def test_shared_keys_are_said(look):
    assert "0, 1 use 0" in maps_of(look_document(look)).says


def test_words_sum_over_keys_and_average_over_queries(look):
    values = np.arange(25, dtype=float).reshape(1, 1, 5, 5)
    merged, words = merge_words(values, PIZZA, PIZZA, range(5))
    assert words == ("The", "pizza", "was", "hot")
    assert merged[0, 0, 1, 1] == pytest.approx(np.mean([6 + 7, 11 + 12]))
    document = look_document(look, words=True)
    assert maps_of(document).columns == ("The", "pizza", "was", "hot")
    rows = np.nansum(maps_of(document).values, axis=-1)
    assert np.allclose(rows, 1, atol=1e-6), "merged rows are still shares of one"
    assert any("summed over the tokens" in part.text for part in document.parts if isinstance(part, Paragraph))


def test_contributions_are_weights_by_the_length_of_values(look):
    plain, scaled = (maps_of(look_document(look, scaled=each)).values for each in (False, True))
    assert np.allclose(scaled, 2 * plain, equal_nan=True)


def test_the_asked_head_is_chosen_and_joined_by_lines(look):
    document = look_document(look, layer=1, head=0)
    assert maps_of(document).chosen == (1, 0)
    links = next(part for part in document.parts if isinstance(part, Links))
    assert np.allclose(np.nan_to_num(links.weights), look.of("weights")[LATER].array[0])
    with pytest.raises(NotFound, match="Layer 7"):
        look_document(look, layer=7)


def test_rows_that_were_not_asked_for_are_not_there(look):
    capture = look.of("weights")[SELF]
    some = dataclasses.replace(capture, array=capture.array[:, [1, 4]], rows=(1, 4))
    maps = attention_maps(dataclasses.replace(look, captures=(some,)), [some])
    assert maps.rows == ("·piz", "·hot")
    assert np.array_equal(np.isnan(maps.values[0, 0, 0]), [False, False, True, True, True])


def test_an_edit_says_so(look):
    edited = dataclasses.replace(look, edits=("layer 0, head 1 is off",))
    assert any("head 1 is off" in part.text for part in look_document(edited).parts if isinstance(part, Paragraph))


def test_nothing_captured_says_what_to_ask(look):
    with pytest.raises(NotFound, match="No weights"):
        attentions(dataclasses.replace(look, captures=()))


def test_one_query_in_a_table(look):
    document = query_document(look, 4, top=2)
    table = document.parts[0]
    assert len(table.rows) == 4
    best = int(np.argmax(look.of("weights")[SELF].array[0, 4]))
    assert table.rows[0][3].startswith(PIZZA.pieces[best])
    with pytest.raises(NotFound):
        query_document(look, 99)


def test_a_long_text_keeps_its_tiles_and_its_exact_rows(long_look):
    maps = maps_of(long_document(long_look))
    assert maps.tile == 8
    assert maps.values.shape == (1, 2, 8, 8)
    assert np.allclose(maps.values[0, 0, 3, :4], long_look.overviews[0].tiles[0, 3, :4])
    assert maps.exact.places == (9, 63)
    assert np.allclose(np.nan_to_num(maps.exact.values[0, 1, 0]), long_look.rows[0].array[1, 0])
    assert np.isnan(maps.exact.values[0, 1, 0, 10])
