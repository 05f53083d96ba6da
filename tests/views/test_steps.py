"""Steps of a formula as a document."""

from importlib import import_module

import numpy as np
import pytest

import peasy
from peasy.views.steps import MAX_TABLES, steps_document


def test_notebook_output():
    steps = peasy.attend([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[5.0], [7.0]], scoring="dot")
    shown = steps._repr_mimebundle_()
    assert "weights" in shown["text/plain"]
    assert "0.7311" in shown["text/html"]
    names = [matrix.name for matrix in steps_document(steps).matrices()]
    assert names == ["query", "key", "value", "scores", "weights", "context"], "steps that change nothing are skipped"


def test_one_table_per_head_and_batch_entry():
    x = np.ones((2, 8, 3, 4))
    shown = steps_document(peasy.attend(x, x, x, causal=True))
    assert "weights (batch 0, head 1)" in [matrix.name for matrix in shown.matrices()]
    assert sum(matrix.name.startswith("weights") for matrix in shown.matrices()) == MAX_TABLES
    assert any("8 more tables of weights" in getattr(part, "text", "") for part in shown.parts)


def test_large_arrays_are_truncated_with_a_note():
    x = np.ones((500, 4))
    shown = steps_document(peasy.attend(x, x, x))
    assert max(max(matrix.shape) for matrix in shown.matrices()) <= 40
    assert any("steps.weights has all values" in getattr(part, "text", "") for part in shown.parts)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_arrays_of_other_libraries(library):
    xp = import_module(library)
    x = xp.ones((2, 3), dtype=xp.float32)
    assert "0.5" in peasy.attend(x, x, x)._repr_html_()
