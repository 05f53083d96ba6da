"""Views of peasy.inspection records: head ranking, logit lens, trace, alignment, training, similarity, effect."""

from dataclasses import replace

import numpy as np
import pytest

from peasy.views.document import CacheFigure, Curves, Links, Maps, Matrix, Paragraph, Table
from peasy.views.embedding import similarity_document
from peasy.views.inspection import (
    alignment_document,
    attention_history_document,
    effect_document,
    lens_document,
    ranking_document,
    trace_document,
)


def first(document, kind):
    return next(part for part in document.parts if isinstance(part, kind))


def test_heads_are_ranked_by_the_given_score(report):
    table = first(ranking_document(report, "previous"), Table)
    assert [row[0] for row in table.rows] == ["1.0", "0.0"]
    assert table.columns[:2] == ("head", "previous")
    patterns = next(
        part for part in ranking_document(report, "previous").parts if "pattern" in getattr(part, "columns", ())
    )
    assert patterns.rows[0][1] == "previous token"
    assert [row[0] for row in first(ranking_document(report, "induction"), Table).rows] == ["0.0"]
    lines = first(ranking_document(report), Curves).lines
    assert lines[0][1] == ((0.0, 0.2), (1.0, 0.5), (2.0, 0.3))


def test_lens_starts_at_the_last_layer_and_marks_agreement(lens):
    matrix = first(lens_document(lens), Matrix)
    legend = " ".join(part.text for part in lens_document(lens).parts if isinstance(part, Paragraph))
    assert "Marked: same as the final prediction" in legend
    assert "Colours: its probability, from dark (0) to bright (1)" in legend
    assert matrix.rows == ("layer 0", "embedding")
    assert matrix.values[0] == ("·piz", "za")
    assert matrix.shades[0] == (0.9, 0.7)
    assert matrix.explain(1, 0).lines == ("a  0.4000", "b  0.1000")
    assert not matrix.marks


def test_trace_has_candidates_attention_cache_and_beams(trace):
    document = trace_document(trace)
    candidates = first(document, Matrix)
    assert candidates.values[0] == ("·x 0.30", "·hot 0.50")
    assert candidates.marks == {(0, 1), (1, 1)}
    maps = first(document, Maps)
    assert maps.values[0, 0, 1, 0] == pytest.approx(0.7)
    assert maps.values[0, 1, 0, 1] == pytest.approx(0.6)
    assert np.isnan(maps.values[0, 0, 0, 3:]).all(), "later tokens are masked"
    cache = first(document, CacheFigure)
    assert cache.steps == ((0, 3), (3, 1))
    assert "4 tokens went through the model; without the cache, it would have been 7" in cache.description
    assert len(document.parts[-2].rows) == 2


def test_alignment_links_go_from_source_to_target(alignment):
    document = alignment_document(alignment)
    links = first(document, Links)
    assert links.ribbons
    assert links.strongest(2) == [(0, 0, 0.9), (2, 1, 0.8)]
    assert first(document, Maps).values[0, 0, 1, 2] == 0.8
    assert first(document, Table).rows[0][:3] == ("0", "1", 1.0)


def test_history_maps_are_heads_by_checkpoints(history):
    maps = first(attention_history_document(history), Maps)
    assert maps.across == ("0", "10", "20")
    assert maps.values.shape == (2, 3, 5, 5)
    assert maps.values[1, 2, 0, 0] == pytest.approx(0.2)
    assert maps.name(1, 2) == "head 1, after step 20"


def test_contributions_of_word_pairs_sum_to_the_cosine(similarity):
    document = similarity_document(similarity)
    assert sum(map(sum, first(document, Matrix).values)) == pytest.approx(similarity.cosine)
    assert first(document, Table).rows[0] == ("hot", "warm", 0.5)
    assert "0.7500" in document.parts[0].text


def test_punctuation_does_not_lead_the_contributions(similarity):
    comma = replace(similarity, first=replace(similarity.first, words=(",", "pizza")))
    rows = first(similarity_document(comma), Table).rows
    assert [row[:2] for row in rows[:2]] == [("pizza", "bread"), ("pizza", "warm")], "words first, largest first"
    assert rows[2] == (",", "warm", 0.5)


def test_effect_has_values_before_and_after(effect):
    document = effect_document(effect)
    tables = [part for part in document.parts if isinstance(part, Table)]
    assert tables[0].rows[0] == ("·good", 0.9, 0.4, pytest.approx(-0.5))
    assert tables[0].rows[1] == ("·bad", 0.05, None, None)
    assert tables[2].rows == (("loss", 2.0, 2.5, 0.5),)
    assert "head 1 off" in document.parts[0].text
    assert "0.5000 bits" in document.parts[-1].text
