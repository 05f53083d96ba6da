"""The last result is restored exactly; unreadable files are ignored."""

from dataclasses import replace

import numpy as np
import pytest

from peasy.render import html
from peasy.render import terminal as text
from peasy.views.document import Block, Cache, Curves, Diagram, Links, Maps, Matrix, Paragraph, Plane, Table
from peasy.workbench.experiment import experiment
from peasy.workbench.experiments import memory
from peasy.workbench.experiments.finding import Finding


@pytest.fixture
def finding():
    parts = (
        Table(("a", "b"), (("x", 1.5), ("y", None)), "T"),
        Curves("C", (("one", ((0.0, 1.0), (1.0, float("inf")))),), "step", "loss"),
        Matrix("M", ((0.25, "–"),), ("r",), ("c", "d"), shaded=True, marks=frozenset({(0, 1)})),
        Paragraph("said", "note"),
    )
    return Finding("matrix-form", "Why?", parts, "It is so.", True, "Not always.", {"n": 1.5}, 7)


def test_result_roundtrip(finding):
    memory.remember(finding)
    found, when = memory.recall("matrix-form")
    assert found == finding
    assert found.document() == finding.document()
    assert when > 1.6e9


PICTURES = (
    Plane("P", (("a", 0.5, -1.0), ("b", 2.0, 3.0)), "x", "y", groups=("one", "two"), neighbours=((1,), (0,))),
    Maps("M", np.array([[[[1.0, np.nan], [0.25, 0.75]]]]), ("a", "b"), ("a", "b"), ("0",), ("3",)),
    Links("L", ("a",), ("b", "c"), np.array([[0.5, 0.25]]), ribbons=True, known=((0, 1),)),
    Cache("C", ("a", "b"), ((0, 1), (1, 1))),
    Diagram("D", ((Block("outer", blocks=(Block("inner", note="4"),), times=2),),)),
)


@pytest.mark.parametrize("part", PICTURES, ids=lambda part: type(part).__name__)
def test_figures_roundtrip(finding, part):
    whole = replace(finding, parts=(part,))
    memory.remember(whole)
    found, _ = memory.recall("matrix-form")
    assert html.draw(found.document()) == html.draw(whole.document())


@pytest.mark.parametrize("name", ["first-word"])
def test_real_experiment_roundtrip(name):
    found = experiment(name, keep=True)
    again, _ = memory.recall(name)
    assert text.draw(again.document()) == text.draw(found.document())


def test_torn_or_foreign_files_are_ignored(finding):
    assert memory.recall("matrix-form") is None
    path = memory.remember(finding)
    path.write_text(path.read_text()[:-40])
    assert memory.recall("matrix-form") is None
    path.write_text('{"form": 0}')
    assert memory.recall("matrix-form") is None


def test_results_are_saved_only_with_keep():
    experiment("matrix-form", tokens=8)
    assert memory.recall("matrix-form") is None
    found = experiment("matrix-form", tokens=8, keep=True)
    assert memory.recall("matrix-form")[0].numbers == found.numbers


def test_unwritable_home_does_not_fail_the_experiment(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "file"))
    assert experiment("matrix-form", tokens=8, keep=True).verdict
