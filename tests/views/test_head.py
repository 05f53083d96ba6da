"""One head of a model as a worked example."""

import dataclasses

import numpy as np
import pytest
from tests.views.conftest import SELF, head

from peasy.errors import NotFound
from peasy.views.document import Paragraph
from peasy.views.head import head_document, head_example


def test_steps_equal_the_formula(look):
    worked = head_example(look, SELF, 1)
    steps = head(1)[3]
    assert np.allclose(worked.step("weights").values, np.asarray(steps.weights))
    assert np.allclose(worked.step("context").values, np.asarray(steps.context))


def test_cells_have_arithmetic_and_the_model_agrees(look):
    document = head_document(look, SELF, 0)
    weights = next(matrix for matrix in document.matrices() if matrix.name == "weights")
    assert weights.explain(3, 1).lines
    assert any(
        part.tone == "good" and "same weights" in part.text for part in document.parts if isinstance(part, Paragraph)
    )


def test_difference_from_the_formula_is_noted(look):
    captures = [
        dataclasses.replace(capture, array=capture.array[:, :, ::-1].copy()) if capture.step == "weights" else capture
        for capture in look.captures
    ]
    document = head_document(dataclasses.replace(look, captures=tuple(captures)), SELF, 0)
    assert any(
        part.tone == "bad" and "does more" in part.text for part in document.parts if isinstance(part, Paragraph)
    )


def test_single_query_has_only_earlier_keys(look):
    worked = head_example(look, SELF, 0, rows=[2])
    assert worked.tokens == ("za",)
    assert worked.keys == ("The", "·piz", "za")
    assert np.allclose(worked.step("weights").values[0], np.asarray(head(0)[3].weights)[2, :3])


def test_missing_queries_raise_not_found(look):
    bare = dataclasses.replace(look, captures=tuple(capture for capture in look.captures if capture.step == "weights"))
    with pytest.raises(NotFound, match="query of layer 0, head 1"):
        head_document(bare, SELF, 1)
