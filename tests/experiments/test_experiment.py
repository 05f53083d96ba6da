"""`experiment`: experiments by name, and their list."""

import pytest

from peasy.errors import NotFound
from peasy.experiments.experiment import EXPERIMENTS, experiment


def test_every_experiment_has_a_module_with_a_question():
    from importlib import import_module

    for entry in EXPERIMENTS:
        assert import_module(f"peasy.experiments.{entry.name.replace('-', '_')}").QUESTION


def test_the_list_has_all_experiments():
    assert [row["name"] for row in experiment().data()["experiments"]] == [entry.name for entry in EXPERIMENTS]


def test_a_typo_gets_a_suggestion():
    with pytest.raises(NotFound) as caught:
        experiment("matrix-from")
    assert "matrix-form" in caught.value.hint


def test_a_result_shows_question_verdict_and_caveat():
    result = experiment("matrix-form", tokens=8, repeats=1)
    shown = " ".join(result.text().split())
    assert all(text in shown for text in (result.question, result.verdict, result.caveat))
    assert result.data()["holds"] is True
