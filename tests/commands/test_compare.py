"""`compare`: kinds trained and evaluated alike, ranked by a shared measure."""

import pytest

from peasy.checkpoint import paths
from peasy.commands.compare import ComparedModel, CompareResult, compare
from peasy.commands.evaluate import EvaluationMetric
from peasy.errors import UsageError
from peasy.views.document import Curves, Table

SMALL = {
    "batch_size": 4,
    "seq_len": 16,
    "num_validations": 2,
    "num_samplings": 0,
    "data_options": {"num_train": 200, "num_valid": 20},
}


def test_kinds_are_trained_on_the_same_data():
    events = []
    result = compare(
        ["ngram", "rnn"], "copy:3", preset="tiny", steps=3, seed=5, name="both", settings=SMALL, max_samples=4,
        on_event=lambda kind, event: events.append(kind),
    )  # fmt: skip
    models = {model.kind: model for model in result.models}
    assert set(models) == {"ngram", "rnn"} == set(events)
    assert result.metric == "bits per byte"
    values = [next(m.value for m in c.metrics if m.name == "bits per byte") for c in result.models]
    assert values == sorted(values)
    assert set(paths.find_runs()) == {"both-ngram", "both-rnn"}
    assert models["rnn"].tokens == 3 * 4 * 16
    curve = models["rnn"].curve
    measured = {metric.name: metric.value for metric in models["rnn"].metrics}
    assert curve[-1][1] == pytest.approx(measured["bits per byte"], rel=0.02)
    assert [type(part) for part in result.document().parts].count(Curves) == 1
    assert result.data()["seed"] == 5


LOSS, ENDINGS = EvaluationMetric("loss", 1.0, ""), EvaluationMetric("endings", 0.98, "", is_fraction=True)
GPT = ComparedModel("gpt", "r-gpt", 10, 100, 61.0, (LOSS, ENDINGS), ((1.0, 2.0), (2.0, 1.0)))
NGRAM = ComparedModel("ngram", "r-ngram", 5, 100, 1.0, (LOSS,))


def test_missing_metric_is_an_empty_cell():
    parts = CompareResult("d", "1 minutes each", 0, "loss", (GPT, NGRAM)).document().parts
    table = next(part for part in parts if isinstance(part, Table))
    assert table.columns[-2:] == ("loss", "endings")
    assert table.rows[0][-2:] == ("1.0000", "98.00%")
    assert table.rows[1][-1] == ""
    curves = next(part for part in parts if isinstance(part, Curves))
    assert [name for name, _ in curves.lines] == ["gpt"]


def test_curves_name_their_metric():
    for measure, drawn in (("bits per byte", "bits per byte"), ("exact match", "loss")):
        parts = CompareResult("d", "1 steps each", 0, measure, (GPT,)).document().parts
        assert next(part for part in parts if isinstance(part, Curves)).y_axis == drawn


@pytest.mark.parametrize("kinds", [["gpt"], ["gpt", "gpt", "rnn"], []])
def test_at_least_two_different_kinds_are_needed(kinds):
    with pytest.raises(UsageError):
        compare(kinds, "copy")
