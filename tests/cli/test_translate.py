"""`peasy translate`."""

import json

import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer


@pytest.fixture
def folder(tmp_path):
    words = train_tokenizer(["the cat sat on the mat"] * 9, "words")
    settings = preset(
        "translator-tiny", vocab_size=len(words), d_model=16, special_tokens={"decoder_start": 1, "eos": [2]}
    )
    return save_model(tmp_path / "cats", build(settings, seed=3), words)


OPTIONS = ("--max-tokens", "5")


def test_one_text(peasy, folder):
    ran = peasy("translate", folder, "the cat sat", "--num-beams", "3", "-n", "2", *OPTIONS)
    assert ran.code == 0
    assert "log-probability" in ran.out
    result = peasy("translate", folder, "the cat sat", "--num-beams", "3", "-n", "2", *OPTIONS, "--json").json["result"]
    assert len(result["translations"][0]["hypotheses"]) == 2
    assert result["translations"][0]["text"] in ran.out


def test_one_translation_per_line(peasy, folder, tmp_path):
    lines = ["the cat", "sat on the mat", "the"]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ran = peasy("translate", folder, "@lines.txt", *OPTIONS)
    translations = peasy("translate", folder, "-", *OPTIONS, "--json", stdin="\n".join(lines)).json["result"][
        "translations"
    ]
    assert [one["source"] for one in translations] == lines
    assert ran.out.splitlines() == [" ".join(one["text"].split()) for one in translations]


def test_invalid_line_does_not_stop_the_others(peasy, folder):
    ran = peasy("translate", folder, "-", *OPTIONS, stdin="the cat\n\nthe mat\n")
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 3
    assert "Line 2" in ran.err


def test_alignment(peasy, folder, tmp_path):
    ran = peasy("translate", folder, "the cat sat", "--align", *OPTIONS)
    assert "Alignment" in ran.out
    assert "sat" in ran.out
    assert peasy("translate", folder, "the cat sat", "--align", *OPTIONS, "--out", "a.html").code == 0
    assert "<svg" in (tmp_path / "a.html").read_text()
    ran = peasy("translate", folder, "the cat sat", "--gold", "0-0 1-1", *OPTIONS)
    assert ran.code == 0
    assert "alignment accuracy" in ran.out or "head 0" in ran.out
    wrong = peasy("translate", folder, "the cat sat", "--gold", "0:0", *OPTIONS)
    assert (wrong.code, "not a pair of word numbers" in wrong.err) == (4, True)
    data = json.loads(peasy("translate", folder, "the cat sat", "--align", *OPTIONS, "--json").out)
    assert len(data["result"]["translations"][0]["alignment"]["weights"][0]) == 3


def test_errors(peasy, folder, model_folder):
    assert "does not translate" in peasy("translate", model_folder, "I love").err
    ran = peasy("translate", folder, "")
    assert ran.code == 4
    assert peasy("translate", folder, "the", "--num-beams", "0").code == 2
