"""A real head on paper: the steps are the formula's, and its cells open."""

import dataclasses

import numpy as np
import pytest
from tests.views.conftest import SELF, head

from peasy.errors import NotFound
from peasy.views import Paragraph
from peasy.views.head import head_document, work_head


def test_the_steps_are_the_numbers_of_the_formula(look):
    worked = work_head(look, SELF, 1)
    steps = head(1)[3]
    assert np.allclose(worked.step("weights").values, np.asarray(steps.weights))
    assert np.allclose(worked.step("context").values, np.asarray(steps.context))


def test_every_cell_opens_and_the_model_agrees(look):
    document = head_document(look, SELF, 0)
    weights = next(matrix for matrix in document.matrices() if matrix.name == "weights")
    assert weights.explain(3, 1).lines
    assert any(
        part.tone == "good" and "same weights" in part.text for part in document.parts if isinstance(part, Paragraph)
    )


def test_a_model_that_does_more_says_so(look):
    captures = [
        dataclasses.replace(each, array=each.array[:, :, ::-1].copy()) if each.step == "weights" else each
        for each in look.captures
    ]
    document = head_document(dataclasses.replace(look, captures=tuple(captures)), SELF, 0)
    assert any(
        part.tone == "bad" and "does more" in part.text for part in document.parts if isinstance(part, Paragraph)
    )


def test_one_row_sees_only_what_stands_before_it(look):
    worked = work_head(look, SELF, 0, rows=[2])
    assert worked.tokens == ("za",)
    assert worked.keys == ("The", "·piz", "za")
    assert np.allclose(worked.step("weights").values[0], np.asarray(head(0)[3].weights)[2, :3])


def test_without_queries_it_says_what_to_ask(look):
    bare = dataclasses.replace(look, captures=tuple(each for each in look.captures if each.step == "weights"))
    with pytest.raises(NotFound, match="query of layer 0, head 1"):
        head_document(bare, SELF, 1)
