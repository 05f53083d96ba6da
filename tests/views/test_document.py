from dataclasses import FrozenInstanceError

import pytest

from peasy.views import Arithmetic, Document, Heading, Matrix, Paragraph, Table


def matrix(**changes):
    return Matrix(**({"name": "m", "values": ((1.0, 2.0),), "rows": ("a",), "columns": ("x", "y")} | changes))


def test_a_matrix_knows_its_shape():
    assert matrix().shape == (1, 2)


def test_a_document_lists_its_matrices_in_order():
    first, second = matrix(name="first"), matrix(name="second")
    assert Document("t", (Heading("h"), first, Heading("h"), second)).matrices() == [first, second]


def test_equal_content_is_equal_whoever_explains_it():
    assert matrix(explain=lambda row, column: Arithmetic("", ())) == matrix()
    assert matrix(name="other") != matrix()


def test_what_is_shown_does_not_change():
    with pytest.raises(FrozenInstanceError):
        matrix().name = "other"


def test_a_document_knows_whether_it_shows_numbers():
    assert Document("t", (matrix(),)).has_numbers()
    assert not Document("t", (Paragraph("x"), Table(("verb",), (("explain",),)))).has_numbers()
