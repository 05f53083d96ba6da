"""Spherical k-means on separated clusters."""

import numpy as np
import pytest

from peasy.errors import InvalidInput
from peasy.metrics.kmeans import spherical_kmeans


def test_kmeans_finds_separated_clusters():
    random = np.random.default_rng(0)
    middles = np.eye(3).repeat(20, axis=0)
    result = spherical_kmeans(middles + random.normal(0, 0.1, middles.shape), 3, seed=1)
    assert [len(set(result[at : at + 20])) for at in (0, 20, 40)] == [1, 1, 1]
    assert len(set(result)) == 3
    with pytest.raises(InvalidInput, match="3 vectors cannot form 4 clusters"):
        spherical_kmeans(np.eye(3), 4)
