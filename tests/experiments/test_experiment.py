"""`experiment`: experiments by name, and their list."""

import pytest

from peasy.errors import NotFound, UsageError
from peasy.experiments.experiment import experiment
from peasy.experiments.result import EXPERIMENTS


def test_every_experiment_has_a_module_a_question_and_a_caveat():
    from importlib import import_module

    for name, entry in EXPERIMENTS.items():
        assert callable(import_module(f"peasy.experiments.{name.replace('-', '_')}").run)
        assert entry.full_question
        assert entry.caveat.endswith(".")


def test_the_list_has_all_experiments():
    assert [row["name"] for row in experiment().data()["experiments"]] == list(EXPERIMENTS)


def test_a_typo_gets_a_suggestion():
    with pytest.raises(NotFound) as caught:
        experiment("matrix-from")
    assert "matrix-form" in caught.value.hint


def test_a_result_shows_question_verdict_and_caveat():
    result = experiment("matrix-form", tokens=8, repeats=1)
    shown = " ".join(result.text().split())
    assert all(text in shown for text in (result.question, result.verdict, result.caveat))
    assert result.data()["comparisons"][0]["name"] in shown
    assert result.data()["outcome"] == "cannot tell", "one repeat says nothing about time"


def test_wrong_number_of_seeds():
    with pytest.raises(UsageError, match="at least 1"):
        experiment("matrix-form", seeds=0)
