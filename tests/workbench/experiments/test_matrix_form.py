"""The roads agree, and the verdict says so only when they do."""

import numpy as np

from peasy.workbench.experiments import matrix_form


def test_all_roads_agree():
    found = matrix_form.run(tokens=16, rounds=1)
    assert found.holds, found.verdict
    assert "the same numbers" in found.verdict


def test_a_road_that_differs_turns_the_verdict(monkeypatch):
    monkeypatch.setattr(matrix_form, "by_row", lambda q, k, v: np.zeros_like(v))
    found = matrix_form.run(tokens=16, rounds=1)
    assert not found.holds
    assert "NOT the same" in found.verdict
