"""Evaluation documents: number formats and tables."""

from peasy.views.document import Table
from peasy.views.evaluation import EvaluationFacts, EvaluationMetric, evaluation_document


def tables(facts):
    return [part for part in evaluation_document(facts).parts if isinstance(part, Table)]


def test_number_formats():
    measures = (
        EvaluationMetric("loss", 1.25, ""),
        EvaluationMetric("perplexity", 1234.5, ""),
        EvaluationMetric("exact match", 0.975, "", True),
    )
    (table,) = tables(EvaluationFacts("m", "d", "valid", "3 tokens", measures))
    assert [row[1] for row in table.rows] == ["1.2500", "1,234.50", "97.50%"]


def test_single_category_has_no_table():
    facts = EvaluationFacts("m", "d", "valid", "3 pairs", (), (("date", 1, 2),))
    assert len(tables(facts)) == 1
    assert len(tables(EvaluationFacts("m", "d", "valid", "3", (), (("date", 1, 2), ("unit", 2, 2))))) == 2


def test_a_long_answer_is_cut_and_says_so():
    facts = EvaluationFacts("m", "d", "valid", "1 pair", (), errors=(("a", "b", "u" * 500),))
    written = tables(facts)[1].rows[0][2]
    assert len(written) == 60
    assert written.endswith("…")
