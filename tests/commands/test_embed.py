"""`embed`: vectors, cosine similarities, pooling and file formats."""

import json

import numpy as np
import pytest

import peasy
from peasy.commands.embed import embed
from peasy.commands.semantic_map import map_texts
from peasy.errors import InvalidInput

TEXTS = ["The pizza", "it tasted good.", "The pizza", "out of the oven"]


def test_vectors_and_cosines(encoder):
    result = embed(encoder, TEXTS)
    np.testing.assert_allclose(np.asarray(result), peasy.load(encoder).embed(TEXTS))
    unit = result.vectors / np.linalg.norm(result.vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(result.cosines, unit @ unit.T, atol=1e-6)
    assert result.cosines[0, 2] == pytest.approx(1, abs=1e-5)
    assert "it tasted good." in result.text()
    assert json.dumps(result.data())
    assert "dimension" in embed(encoder, "The pizza").text()


def test_npy_and_jsonl_files(encoder, tmp_path):
    result = embed(encoder, TEXTS)
    np.testing.assert_array_equal(np.load(result.save(tmp_path / "v.npy")), result.vectors)
    rows = [json.loads(line) for line in result.save(tmp_path / "v.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_allclose([row["vector"] for row in rows], result.vectors, rtol=1e-6)
    assert "Cosine similarity" in result.save(tmp_path / "v.md").read_text()


def test_pooling(encoder):
    loaded = peasy.load(encoder)
    default = loaded.embed(TEXTS)
    np.testing.assert_allclose(loaded.embed(TEXTS, pooling="mean"), default, atol=1e-5)  # its default is the mean
    assert not np.allclose(loaded.embed(TEXTS, pooling="cls"), default, atol=1e-3)
    assert not np.allclose(loaded.embed(TEXTS, pooling="last"), loaded.embed(TEXTS, pooling="cls"), atol=1e-3)
    with pytest.raises(InvalidInput, match='no pooling "median"'):
        loaded.embed(TEXTS, pooling="median")


def test_texts_that_are_cut_are_counted(encoder):
    longest = peasy.load(encoder).max_text_tokens
    result = embed(encoder, ["The pizza", "pizza " * (longest + 5)])
    assert result.note == f"1 of 2 texts were cut to the first {longest} tokens: the model reads no more."
    assert result.note in " ".join(result.text().split())
    assert embed(encoder, TEXTS).note is None
    model, long = peasy.load(encoder), "pizza " * (longest + 5)
    text_map = map_texts(model, [["The pizza", "it tasted good.", long]])
    assert text_map.note.startswith("1 of 3 texts were cut")
    assert text_map.note in " ".join(text_map.text().split())
    similarity = model.explain_similarity("The pizza", long)
    assert similarity.note.startswith("1 of 2 texts were cut")
    assert similarity.note in " ".join(similarity.text().split())
    assert model.explain_similarity("The pizza", "The oven").note is None
