"""The map against another road: variances by the covariance's eigenvalues, neighbours by brute force."""

import numpy as np
import pytest

from peasy.errors import InvalidInput
from peasy.views import Plane
from peasy.views.embedding import embedding_document, embedding_map, nearest_points, principal_plane

VECTORS = np.random.default_rng(3).normal(size=(30, 8)) * np.arange(1, 9)
NAMES = [f"w{place}" for place in range(30)]


def test_the_plane_holds_the_two_largest_variances():
    places, share = principal_plane(VECTORS)
    eigen = np.linalg.eigvalsh(np.cov(VECTORS.T))[::-1]
    assert np.allclose(places.var(axis=0, ddof=1), eigen[:2])
    assert share == pytest.approx(eigen[:2].sum() / eigen.sum())


def test_the_same_vectors_give_the_same_side():
    assert np.allclose(principal_plane(VECTORS)[0], principal_plane(VECTORS.copy())[0])


def test_neighbours_are_by_cosine():
    for place, line in enumerate(nearest_points(VECTORS, 3)):
        cosines = [a @ VECTORS[place] / np.linalg.norm(a) / np.linalg.norm(VECTORS[place]) for a in VECTORS]
        others = sorted((o for o in range(30) if o != place), key=lambda o: -cosines[o])
        assert [other for other, _ in line] == others[:3]
        assert line[0][1] == pytest.approx(cosines[others[0]])


def test_few_vectors_and_equal_ones_are_no_accident():
    assert embedding_map("one", ["a"], np.ones((1, 3)))[0].points == (("a", 0.0, 0.0),)
    assert principal_plane(np.ones((4, 3)))[1] == 1.0
    assert nearest_points(np.zeros((2, 3)), 5)[0] == [(1, 0.0)]


def test_the_document_names_neighbours_and_groups():
    document = embedding_document("Words", NAMES, VECTORS, ["x"] * 15 + ["y"] * 15)
    plane = document.parts[0]
    assert isinstance(plane, Plane)
    assert len(plane.neighbours[0]) == 5
    assert set(plane.groups) == {"x", "y"}
    assert "w0" in document.parts[-1].rows[0][0]


def test_names_and_vectors_must_be_as_many():
    with pytest.raises(InvalidInput, match="3 names"):
        embedding_map("t", ["a", "b", "c"], np.ones((2, 3)))
