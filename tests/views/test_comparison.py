"""Comparison of models: one column per metric, one line per model."""

from peasy.views.document import Curves, Table
from peasy.views.evaluation import ComparedModel, ComparisonFacts, comparison_document

ONE = ComparedModel(
    "gpt", "r-gpt", 10, 100, 61.0, (("loss", 1.0, False), ("endings", 0.98, True)), ((1.0, 2.0), (2.0, 1.0))
)
TWO = ComparedModel("ngram", "r-ngram", 5, 100, 1.0, (("loss", 2.0, False),))


def test_missing_metric_is_an_empty_cell():
    document = comparison_document(ComparisonFacts("d", "1 minutes each", 0, "loss", (ONE, TWO)))
    table = next(part for part in document.parts if isinstance(part, Table))
    assert table.columns[-2:] == ("loss", "endings")
    assert table.rows[0][-2:] == ("1.0000", "98.00%")
    assert table.rows[1][-1] == ""
    curves = next(part for part in document.parts if isinstance(part, Curves))
    assert [name for name, _ in curves.lines] == ["gpt"]


def test_curves_name_their_metric():
    for measure, drawn in (("bits per byte", "bits per byte"), ("exact match", "loss")):
        document = comparison_document(ComparisonFacts("d", "1 steps each", 0, measure, (ONE,)))
        assert next(part for part in document.parts if isinstance(part, Curves)).y_axis == drawn
