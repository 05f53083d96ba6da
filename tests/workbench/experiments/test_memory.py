"""The last finding comes back as it was: parts, numbers, verdict; what cannot be read is as if it were not there."""

import pytest

from peasy.views.document import Curves, Matrix, Paragraph, Table
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


def test_a_finding_comes_back_whole(finding):
    memory.remember(finding)
    found, when = memory.recall("matrix-form")
    assert found == finding
    assert found.document() == finding.document()
    assert when > 1.6e9


def test_nothing_torn_or_foreign_comes_back(finding):
    assert memory.recall("matrix-form") is None
    path = memory.remember(finding)
    path.write_text(path.read_text()[:-40])
    assert memory.recall("matrix-form") is None
    path.write_text('{"form": 0}')
    assert memory.recall("matrix-form") is None


def test_only_what_is_to_be_kept_is_kept():
    experiment("matrix-form", tokens=8)
    assert memory.recall("matrix-form") is None
    found = experiment("matrix-form", tokens=8, keep=True)
    assert memory.recall("matrix-form")[0].numbers == found.numbers


def test_a_home_that_cannot_be_written_spoils_no_finding(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "file"))
    assert experiment("matrix-form", tokens=8, keep=True).verdict
