"""Captured attention as heat maps: values, masked cells, merging of sub-words."""

import dataclasses

import numpy as np
import pytest
from tests.views.conftest import LATER, PIZZA, SELF

from peasy.inspection.results import AttentionInfo
from peasy.inspection.words import merge_words, words_in_rows
from peasy.views.attention import attention_document, attention_maps, tiled_document
from peasy.views.document import Links, Maps, Paragraph, Table


def maps_of(document):
    return next(part for part in document.parts if isinstance(part, Maps))


def test_maps_contain_every_captured_weight(look):
    maps = maps_of(attention_document(look))
    assert maps.values.shape == (2, 2, 5, 5)
    for layer, path in enumerate((SELF, LATER)):
        assert np.allclose(np.nan_to_num(maps.values[layer]), look.by_path("weights")[path].array)


def test_masked_cells_are_nan_not_zero(look):
    maps = maps_of(attention_document(look))
    assert np.array_equal(np.isnan(maps.values[0, 0]), np.triu(np.ones((5, 5), bool), 1))
    assert "empty cells are masked" in maps.description
    free = dataclasses.replace(look, attentions=())
    assert not np.isnan(maps_of(attention_document(free)).values).any()


def test_attention_sinks_outside_the_window_are_kept(look):
    capture = look.by_path("weights")[SELF]
    sunk = dataclasses.replace(capture, array=np.where(np.arange(5) == 1, 0.0, capture.array))
    info = AttentionInfo(SELF, 2, (0, 1), window=2, causal=True)
    other = dataclasses.replace(look, captures=(sunk,), attentions=(info,))
    maps = maps_of(attention_document(other))
    assert not np.isnan(maps.values[0, 0, 4, 0]), "a sink is visible from any distance"
    assert np.isnan(maps.values[0, 0, 4, 1]), "outside the window and masked"
    assert "sinks" in maps.description


def test_grouped_query_attention_is_noted(look):
    assert "0, 1 use 0" in maps_of(attention_document(look)).description


def test_merge_words_sums_keys_and_averages_queries(look):
    values = np.arange(25, dtype=float).reshape(1, 1, 5, 5)
    merged = merge_words(values, PIZZA, PIZZA, range(5))
    assert words_in_rows(PIZZA, range(5)) == ("The", "pizza", "was", "hot")
    assert merged[0, 0, 1, 1] == pytest.approx(np.mean([6 + 7, 11 + 12]))
    masked = merge_words(np.where(np.tril(np.ones((5, 5))), values, np.nan), PIZZA, PIZZA, range(5))
    assert masked[0, 0, 1, 1] == pytest.approx(np.mean([6, 11 + 12])), "a masked token of a word counts as 0"
    assert np.isnan(masked[0, 0, 0, 1:]).all(), "a word with masked tokens only is masked"
    document = attention_document(look, merge_subwords=True)
    assert maps_of(document).columns == ("The", "pizza", "was", "hot")
    rows = np.nansum(maps_of(document).values, axis=-1)
    assert np.allclose(rows, 1, atol=1e-6), "merged rows still sum to 1"
    assert any("summed over the tokens" in part.text for part in document.parts if isinstance(part, Paragraph))


def test_scaled_weights_are_weights_times_value_norms(look):
    plain, scaled = (maps_of(attention_document(look, measure=measure)).values for measure in ("weight", "value"))
    assert np.allclose(scaled, 2 * plain, equal_nan=True)


def test_sharpest_head_is_drawn_as_links(look):
    document = attention_document(look)
    maps, links = maps_of(document), next(part for part in document.parts if isinstance(part, Links))
    sharpness = np.nan_to_num(maps.values[..., 1:]).max(axis=-1).mean(axis=-1)
    assert sharpness[maps.selected] == sharpness.max() > sharpness.min()
    assert np.array_equal(links.weights, maps.values[maps.selected], equal_nan=True)


def test_only_captured_rows_are_shown(look):
    capture = look.by_path("weights")[SELF]
    some = dataclasses.replace(capture, array=capture.array[:, [1, 4]], rows=(1, 4))
    maps = attention_maps(dataclasses.replace(look, captures=(some,)), [some], False, "weight")
    assert maps.rows == ("·piz", "·hot")
    assert np.array_equal(np.isnan(maps.values[0, 0, 0]), [False, False, True, True, True])


def test_interventions_are_listed(look):
    edited = dataclasses.replace(look, interventions=("layer 0, head 1 is off",))
    (listed,) = (p for p in attention_document(edited).parts if isinstance(p, Paragraph) and "head 1 is off" in p.text)
    assert listed.tone == "note", "a choice, not an error"


def test_other_steps_are_listed_in_a_table(look):
    query = dataclasses.replace(look.by_path("weights")[SELF], step="query")
    document = attention_document(dataclasses.replace(look, captures=(query,)))
    assert not any(isinstance(part, Maps) for part in document.parts)
    assert any(isinstance(part, Table) and part.rows[0][3] == "query" for part in document.parts)


def test_tiled_maps_keep_tiles_and_exact_rows(long_look):
    maps = maps_of(tiled_document(long_look))
    assert maps.tile_size == 8
    assert maps.values.shape == (1, 2, 8, 8)
    assert np.allclose(maps.values[0, 0, 3, :4], long_look.overviews[0].tiles[0, 3, :4])
    assert maps.exact_rows.positions == (9, 63)
    assert np.allclose(np.nan_to_num(maps.exact_rows.values[0, 1, 0]), long_look.exact_rows[0].array[1, 0])
    assert np.isnan(maps.exact_rows.values[0, 1, 0, 10])
