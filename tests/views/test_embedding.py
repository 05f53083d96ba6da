"""PCA map, compared with the eigenvalues of the covariance and with brute-force neighbours."""

import numpy as np
import pytest

from peasy.errors import InvalidInput
from peasy.views.embedding import embedding_map, nearest_neighbours, pca_2d

VECTORS = np.random.default_rng(3).normal(size=(30, 8)) * np.arange(1, 9)
NAMES = [f"w{index}" for index in range(30)]


def test_principal_plane_has_the_two_largest_variances():
    coordinates, share = pca_2d(VECTORS)
    eigen = np.linalg.eigvalsh(np.cov(VECTORS.T))[::-1]
    assert np.allclose(coordinates.var(axis=0, ddof=1), eigen[:2])
    assert share == pytest.approx(eigen[:2].sum() / eigen.sum())


def test_signs_are_deterministic():
    assert np.allclose(pca_2d(VECTORS)[0], pca_2d(VECTORS.copy())[0])


def test_neighbours_are_by_cosine():
    for index, line in enumerate(nearest_neighbours(VECTORS, 3)):
        cosines = [a @ VECTORS[index] / np.linalg.norm(a) / np.linalg.norm(VECTORS[index]) for a in VECTORS]
        others = sorted((o for o in range(30) if o != index), key=lambda o: -cosines[o])
        assert [other for other, _ in line] == others[:3]
        assert line[0][1] == pytest.approx(cosines[others[0]])


def test_single_and_equal_vectors():
    assert embedding_map("one", ["a"], np.ones((1, 3)))[0].points == (("a", 0.0, 0.0),)
    assert pca_2d(np.ones((4, 3)))[1] == 1.0
    assert nearest_neighbours(np.zeros((2, 3)), 5)[0] == [(1, 0.0)]


def test_map_has_neighbours_and_groups():
    plane, _ = embedding_map("Words", NAMES, VECTORS, ["x"] * 15 + ["y"] * 15)
    assert plane.points[0][0] == "w0"
    assert len(plane.neighbours[0]) == 5
    assert set(plane.groups) == {"x", "y"}


def test_number_of_names_and_vectors_must_match():
    with pytest.raises(InvalidInput, match="3 names"):
        embedding_map("t", ["a", "b", "c"], np.ones((2, 3)))
