"""The last result is restored exactly; unreadable files are ignored."""

from dataclasses import replace

import numpy as np
import pytest

from peasy.experiments.experiment import experiment
from peasy.experiments.result import ExperimentResult, load_result, save_result
from peasy.experiments.statistics import Comparison
from peasy.render import html
from peasy.render import terminal as text
from peasy.views.document import CacheFigure, Curves, Diagram, Links, Maps, Matrix, Node, Paragraph, Plane, Table


@pytest.fixture
def result():
    parts = (
        Table(("a", "b"), (("x", 1.5), ("y", None)), "T"),
        Curves("C", (("one", ((0.0, 1.0), (1.0, float("inf")))),), "step", "loss"),
        Matrix("M", ((0.25, "–"),), ("r",), ("c", "d"), shaded=True, marks=frozenset({(0, 1)})),
        Paragraph("a note", "note"),
    )
    decided = (Comparison("faster", "seconds", 1.0, "loop", 2.0, lower=True, p_value=0.01),)
    return ExperimentResult(
        "matrix-form", "It is so.", "Why?", parts, "It is so.", decided, "Not always.", {"n": 1.5}, 7
    )


def test_result_roundtrip(result):
    save_result(result)
    loaded, saved_at = load_result("matrix-form")
    assert loaded == result
    assert loaded.document() == result.document()
    assert saved_at > 1.6e9


PICTURES = (
    Plane("P", (("a", 0.5, -1.0), ("b", 2.0, 3.0)), "x", "y", groups=("one", "two"), neighbours=((1,), (0,))),
    Maps("M", np.array([[[[1.0, np.nan], [0.25, 0.75]]]]), ("a", "b"), ("a", "b"), ("0",), ("3",)),
    Links("L", ("a",), ("b", "c"), np.array([[0.5, 0.25]]), ribbons=True, gold=((0, 1),)),
    CacheFigure("C", ("a", "b"), ((0, 1), (1, 1))),
    Diagram("D", ((Node("outer", nodes=(Node("inner", note="4"),), repeat=2),),)),
)


@pytest.mark.parametrize("part", PICTURES, ids=lambda part: type(part).__name__)
def test_figures_roundtrip(result, part):
    whole = replace(result, parts=(part,))
    save_result(whole)
    loaded, _ = load_result("matrix-form")
    assert html.draw(loaded.document()) == html.draw(whole.document())


@pytest.mark.parametrize("name", ["first-word"])
def test_real_experiment_roundtrip(name):
    loaded = experiment(name, store=True)
    again, _ = load_result(name)
    assert text.draw(again.document()) == text.draw(loaded.document())


def test_torn_or_foreign_files_are_ignored(result):
    assert load_result("matrix-form") is None
    path = save_result(result)
    path.write_text(path.read_text()[:-40])
    assert load_result("matrix-form") is None
    path.write_text('{"format_version": 0}')
    assert load_result("matrix-form") is None


def test_results_are_saved_only_with_store():
    experiment("matrix-form", tokens=8)
    assert load_result("matrix-form") is None
    loaded = experiment("matrix-form", tokens=8, store=True)
    assert load_result("matrix-form")[0].numbers == loaded.numbers


def test_unwritable_home_does_not_fail_the_experiment(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "file"))
    assert experiment("matrix-form", tokens=8, store=True).verdict
