"""The other views of looking: what a record holds is what the document shows."""

import numpy as np
import pytest

from peasy.views import Cache, Curves, Links, Maps, Matrix, Table
from peasy.views.alignment import alignment_document
from peasy.views.effect import effect_document
from peasy.views.film import film_document
from peasy.views.generated import trace_document
from peasy.views.lens import lens_document
from peasy.views.ranking import ranking_document
from peasy.views.similarity import similarity_document


def first(document, kind):
    return next(part for part in document.parts if isinstance(part, kind))


def test_heads_are_ranked_by_what_is_asked(report):
    table = first(ranking_document(report, "previous"), Table)
    assert [row[0] for row in table.rows] == ["1.0", "0.0"]
    assert table.rows[0][1] == "looks at the previous token"
    assert [row[0] for row in first(ranking_document(report, "induction"), Table).rows] == ["0.0"]
    lines = first(ranking_document(report), Curves).lines
    assert lines[0][1] == ((0.0, 0.2), (1.0, 0.5), (2.0, 0.3))


def test_the_lens_reads_from_the_last_layer_down_and_marks_what_stays(lens):
    matrix = first(lens_document(lens), Matrix)
    assert matrix.rows == ("1", "0")
    assert matrix.values[0] == ("·piz", "za")
    assert matrix.shades[0] == (0.9, 0.7)
    assert matrix.explain(1, 0).lines == ("a  0.4000", "b  0.1000")
    assert not matrix.marks


def test_a_trace_shows_candidates_looks_cache_and_beams(trace):
    document = trace_document(trace)
    candidates = first(document, Matrix)
    assert candidates.values[0] == ("·x 0.30", "·hot 0.50")
    assert candidates.marks == {(0, 1), (1, 1)}
    maps = first(document, Maps)
    assert maps.values[0, 0, 1, 0] == pytest.approx(0.7)
    assert maps.values[0, 1, 0, 1] == pytest.approx(0.6)
    assert np.isnan(maps.values[0, 0, 0, 3:]).all(), "what came later could not be looked at"
    cache = first(document, Cache)
    assert cache.steps == ((0, 3), (3, 1))
    assert "4 tokens went through the model; without the cache it would have been 7" in cache.says
    assert len(document.parts[-2].rows) == 2


def test_ribbons_go_from_source_to_answer(alignment):
    document = alignment_document(alignment)
    links = first(document, Links)
    assert links.ribbons
    assert links.strongest(2) == [(0, 0, 0.9), (2, 1, 0.8)]
    assert first(document, Maps).values[0, 0, 1, 2] == 0.8
    assert first(document, Table).rows[0][:3] == ("0", "1", 1.0)


def test_a_film_has_heads_down_and_checkpoints_across(film):
    maps = first(film_document(film), Maps)
    assert maps.across == ("0", "10", "20")
    assert maps.values.shape == (2, 3, 5, 5)
    assert maps.values[1, 2, 0, 0] == pytest.approx(0.2)
    assert maps.name(1, 2) == "head 1, after step 20"


def test_the_pairs_of_two_sentences_add_up(similarity):
    document = similarity_document(similarity)
    assert sum(map(sum, first(document, Matrix).values)) == pytest.approx(similarity.cosine)
    assert first(document, Table).rows[0] == ("hot", "warm", 0.5)
    assert "0.7500" in document.parts[0].text


def test_an_effect_shows_before_and_after(effect):
    document = effect_document(effect)
    tables = [part for part in document.parts if isinstance(part, Table)]
    assert tables[0].rows[0] == ("·good", 0.9, 0.4, pytest.approx(-0.5))
    assert tables[0].rows[1] == ("·bad", 0.05, None, None)
    assert tables[2].rows == (("loss", 2.0, 2.5, 0.5),)
    assert "head 1 off" in document.parts[0].text
    assert "0.5000 bits" in document.parts[-1].text
