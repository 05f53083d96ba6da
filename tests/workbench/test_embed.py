"""`embed`: vectors, cosines, and files that other programs read."""

import json

import numpy as np
import pytest

import peasy
from peasy.errors import InvalidInput
from peasy.workbench.embed import embed

TEXTS = ["The pizza", "it tasted good.", "The pizza", "out of the oven"]


def test_vectors_and_cosines(encoder):
    found = embed(encoder, TEXTS)
    np.testing.assert_allclose(np.asarray(found), peasy.load(encoder).embed(TEXTS))
    unit = found.vectors / np.linalg.norm(found.vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(found.cosines, unit @ unit.T, atol=1e-6)
    assert found.cosines[0, 2] == pytest.approx(1, abs=1e-5)
    assert "it tasted good." in found.text()
    assert json.dumps(found.data())
    assert "number" in embed(encoder, "The pizza").text()


def test_files(encoder, tmp_path):
    found = embed(encoder, TEXTS)
    np.testing.assert_array_equal(np.load(found.save(tmp_path / "v.npy")), found.vectors)
    rows = [json.loads(line) for line in found.save(tmp_path / "v.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_allclose([row["vector"] for row in rows], found.vectors, rtol=1e-6)
    assert "Cosines" in found.save(tmp_path / "v.md").read_text()


def test_pooling(encoder):
    loaded = peasy.load(encoder)
    own = loaded.embed(TEXTS)
    np.testing.assert_allclose(loaded.embed(TEXTS, pooling="mean"), own, atol=1e-5)  # it was made for the mean
    assert not np.allclose(loaded.embed(TEXTS, pooling="cls"), own, atol=1e-3)
    assert not np.allclose(loaded.embed(TEXTS, pooling="last"), loaded.embed(TEXTS, pooling="cls"), atol=1e-3)
    with pytest.raises(InvalidInput, match='no pooling "median"'):
        loaded.embed(TEXTS, pooling="median")
