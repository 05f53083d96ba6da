"""Document model."""

from dataclasses import FrozenInstanceError

import pytest

from peasy.views.document import Arithmetic, Document, Heading, Matrix, Paragraph, Table


def matrix(**changes):
    return Matrix(**({"name": "m", "values": ((1.0, 2.0),), "rows": ("a",), "columns": ("x", "y")} | changes))


def test_matrix_shape():
    assert matrix().shape == (1, 2)


def test_matrices_are_listed_in_order():
    first, second = matrix(name="first"), matrix(name="second")
    assert Document("t", (Heading("h"), first, Heading("h"), second)).matrices() == [first, second]


def test_explain_is_not_compared():
    assert matrix(explain=lambda row, column: Arithmetic("", ())) == matrix()
    assert matrix(name="other") != matrix()


def test_parts_are_frozen():
    with pytest.raises(FrozenInstanceError):
        matrix().name = "other"


def test_has_numbers():
    assert Document("t", (matrix(),)).has_numbers()
    assert not Document("t", (Paragraph("x"), Table(("command",), (("explain",),)))).has_numbers()
