"""`peasy embed`."""

import numpy as np
import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer


@pytest.fixture
def folder(tmp_path):
    words = train_tokenizer(["the cat sat on the mat"] * 9, "words")
    return save_model(
        tmp_path / "cats", build(preset("encoder-tiny", vocab_size=len(words), d_model=16), seed=3), words
    )


def test_similarity_table(peasy, folder):
    ran = peasy("embed", folder, "the cat", "the mat", "the cat")
    assert ran.code == 0
    assert "1.00" in ran.out
    assert "the mat" in ran.out


def test_input_and_output_files(peasy, folder, tmp_path):
    (tmp_path / "lines.txt").write_text("the cat\nthe mat\n", encoding="utf-8")
    (tmp_path / "marked.txt").write_text("the\u2028cat\nthe\x0cmat\n", encoding="utf-8")
    assert "2 vectors of 16" in peasy("embed", folder, "@marked.txt", "--out", "w.npy").out  # one a line, as in `wc -l`
    ran = peasy("embed", folder, "@lines.txt", "--out", "v.npy")
    assert ran.code == 0, ran.err
    assert "2 vectors of 16 dimensions" in ran.out
    result = peasy("embed", folder, "-", "--json", stdin="the cat\nthe mat\n").json["result"]
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), result["vectors"], rtol=1e-6)
    assert peasy("embed", folder, "the cat", "--out", "v.jsonl").code == 0
    assert '"the cat"' in (tmp_path / "v.jsonl").read_text()
    assert peasy("embed", folder, "the cat", "--out", "v.np").code == 2
    assert peasy("tokenize", folder, "the cat", "--out", "v.npy").code == 2


def test_decoder_needs_pooling(peasy, model_folder):
    ran = peasy("embed", model_folder, "I love")
    assert ran.code == 4
    assert "pooling" in ran.err
    assert peasy("embed", model_folder, "I love", "--pooling", "last").code == 0
    assert peasy("embed", model_folder, "", "--pooling", "last").code == 4
