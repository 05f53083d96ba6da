"""`peasy classify`."""

import json

import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer


@pytest.fixture
def folder(tmp_path):
    words = train_tokenizer(["the cat sat on the mat"] * 9, "words")
    config = preset("encoder-tiny", vocab_size=len(words), d_model=16, classifier={"labels": ["animal", "thing"]})
    return save_model(tmp_path / "cats", build(config, seed=3), words)


def test_labels_of_one_text_and_of_several(peasy, folder):
    ran = peasy("classify", folder, "the cat")
    assert ran.code == 0, ran.err
    assert "animal" in ran.out
    assert "thing" in ran.out
    several = peasy("classify", folder, "the cat", "the mat", "--json").json["result"]
    assert [one["text"] for one in several["results"]] == ["the cat", "the mat"]
    assert sum(score["probability"] for score in several["results"][0]["scores"]) == pytest.approx(1)


def test_input_and_output_files(peasy, folder, tmp_path):
    (tmp_path / "lines.txt").write_text("the cat\n\nthe mat\n", encoding="utf-8")
    ran = peasy("classify", folder, "@lines.txt", "--out", "labels.jsonl")
    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == ["the cat", "the mat"]


def test_empty_text_and_model_without_a_head(peasy, folder, model_folder):
    assert peasy("classify", folder, "").code != 0
    ran = peasy("classify", model_folder, "I love")
    assert ran.code == 4
    assert "classification head" in ran.err
