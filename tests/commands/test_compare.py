"""`compare`: kinds trained and evaluated alike, ranked by a shared measure."""

import pytest

from peasy.checkpoint import paths
from peasy.commands.compare import compare
from peasy.errors import UsageError
from peasy.views.document import Curves
from peasy.views.evaluation import ComparedModel, ComparisonFacts, comparison_document

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
    models = {model.kind: model for model in result.facts.models}
    assert set(models) == {"ngram", "rnn"} == set(events)
    assert result.facts.metric == "bits per byte"
    values = [{n: v for n, v, _ in c.metrics}["bits per byte"] for c in result.facts.models]
    assert values == sorted(values)
    assert set(paths.find_runs()) == {"both-ngram", "both-rnn"}
    assert models["rnn"].tokens == 3 * 4 * 16
    curve = models["rnn"].curve
    measured = {n: v for n, v, _ in models["rnn"].metrics}
    assert curve[-1][1] == pytest.approx(measured["bits per byte"], rel=0.02)
    assert [type(part) for part in result.document().parts].count(Curves) == 1
    assert result.data()["seed"] == 5


def test_any_measure_can_rank():
    model = ComparedModel("a", "r-a", 1, 1, 1.0, (("exact match", 0.5, True),))
    page = comparison_document(ComparisonFacts("d", "1 step", 0, "exact match", (model,)))
    assert "50.00%" in str(page)


@pytest.mark.parametrize("kinds", [["gpt"], ["gpt", "gpt", "rnn"], []])
def test_at_least_two_different_kinds_are_needed(kinds):
    with pytest.raises(UsageError):
        compare(kinds, "copy")
