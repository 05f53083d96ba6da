"""All methods agree up to rounding; a method that differs, or is slower, changes the verdict."""

import numpy as np

from peasy.experiments import matrix_form
from peasy.experiments.statistics import Outcome


def test_all_methods_agree():
    result = matrix_form.run(tokens=16, repeats=1)
    assert result.comparisons[0].outcome is Outcome.SUPPORTED, result.verdict
    assert "the same numbers" in result.verdict
    assert result.outcome is Outcome.CANNOT_TELL, "one repeat says nothing about time"


def test_differing_method_changes_verdict(monkeypatch):
    monkeypatch.setattr(matrix_form, "by_row", lambda q, k, v: np.zeros_like(v))
    result = matrix_form.run(tokens=16, repeats=5)
    assert result.outcome is Outcome.NOT_SUPPORTED
    assert "NOT the same" in result.verdict


def test_times_of_the_repeats_decide():
    def outcome(matrices, tokens):
        times = {"token by token": [tokens] * 8, "whole matrices": [matrices] * 8}
        return matrix_form.conclude(dict.fromkeys(times, 0.0), times, 1e-5, 16, 4, 0).outcome

    assert outcome(1e-4, 1e-2) is Outcome.SUPPORTED
    assert outcome(1e-2, 1e-4) is Outcome.NOT_SUPPORTED
