"""All methods agree; a method that differs changes the verdict."""

import numpy as np

from peasy.experiments import matrix_form


def test_all_methods_agree():
    result = matrix_form.run(tokens=16, repeats=1)
    assert result.holds, result.verdict
    assert "the same numbers" in result.verdict


def test_differing_method_changes_verdict(monkeypatch):
    monkeypatch.setattr(matrix_form, "by_row", lambda q, k, v: np.zeros_like(v))
    result = matrix_form.run(tokens=16, repeats=1)
    assert not result.holds
    assert "NOT the same" in result.verdict
