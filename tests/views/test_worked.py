"""Worked examples as documents."""

import numpy as np

import peasy
from peasy.views.document import Matrix, Paragraph
from peasy.views.worked import contribution_parts


def test_contributions_sum_to_the_context():
    example = peasy.explain("i-love-ai")
    tables = [part for part in contribution_parts(example.worked) if isinstance(part, Matrix)]
    assert [table.rows[-1] for table in tables] == ["sum"] * 3
    np.testing.assert_allclose([table.values[-1] for table in tables], example.context)
    np.testing.assert_allclose(np.asarray(tables[0].values[:-1]).sum(axis=0), tables[0].values[-1])


def test_no_contributions_without_values():
    (part,) = contribution_parts(peasy.explain("easy-peasy").worked)
    assert isinstance(part, Paragraph)


def test_unprojected_inputs_are_not_repeated():
    names = [matrix.name for matrix in peasy.explain("journey").document().matrices()]
    assert names == ["x", "scores", "weights", "context", "softmax", "division by the sum"]


def test_weights_are_shaded_and_labelled():
    matrices = {matrix.name: matrix for matrix in peasy.explain("i-love-ai").document().matrices()}
    assert matrices["weights"].shaded
    assert matrices["weights"].rows == ("I", "love", "AI")
    assert (matrices["weights"].row_axis, matrices["weights"].column_axis) == ("query", "key")
