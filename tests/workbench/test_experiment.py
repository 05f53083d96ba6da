"""Experiments by name."""

import pytest

from peasy.errors import NotFound
from peasy.workbench.experiment import EXPERIMENTS, experiment, experiments


def test_every_experiment_has_its_file_with_a_question():
    from importlib import import_module

    for each in EXPERIMENTS:
        assert import_module(f"peasy.workbench.experiments.{each.name.replace('-', '_')}").QUESTION


def test_list_names_all():
    assert [row["name"] for row in experiments().data()["experiments"]] == [each.name for each in EXPERIMENTS]


def test_typo_is_answered():
    with pytest.raises(NotFound) as caught:
        experiment("matrix-from")
    assert "matrix-form" in caught.value.hint


def test_finding_shows_question_verdict_and_caveat():
    found = experiment("matrix-form", tokens=8, rounds=1)
    said = " ".join(found.text().split())
    assert all(text in said for text in (found.question, found.verdict, found.caveat))
    assert found.data()["holds"] is True
