"""`data`: the list of corpora, a dataset card, and rows that could not be used."""

import json

import peasy
from peasy.commands.data import data
from peasy.datasets import BUILT_IN


def test_every_corpus_is_listed_with_its_usage():
    corpora = data().data()["corpora"]
    assert [corpus["name"] for corpus in corpora] == list(BUILT_IN)
    text = data().text()
    assert all(name in text for name in BUILT_IN)
    for corpus in corpora:
        assert corpus["usage"].startswith(corpus["name"])
    assert peasy.data.__wrapped__ is data  # it takes any option of the corpus


def test_a_card_has_sizes_licence_hash_and_examples():
    result = data("recall", seed=3, num_train=100, num_valid=10, distance=12)
    card = result.data()
    assert card["sizes"]["train"]["documents"] == 100
    assert card["sizes"]["valid"]["documents"] == 10
    assert len(card["hash"]) == 64
    assert card["notes"]["distance"] == "12 words"
    assert card["problems"] == {"count": 0, "reasons": {}, "first": []}
    text = result.text()
    assert card["hash"][:16] in text
    assert card["examples"][0] in text
    assert "invalid row" not in text
    json.dumps(card)


def test_pairs_show_both_sides_and_their_category():
    text = data("locales", num_pairs=400).text()
    assert "source" in text
    assert "category" in text
    assert "English to French" in text


def test_labels_are_shown(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\nsunny day\tgood\nrainy day\tbad\n")
    text = data(tmp_path / "a.tsv").text()
    assert "label" in text
    assert "sunny day" in text
    assert "category" not in text


def test_unusable_rows_are_listed(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\nbad\nc\td\n")
    result = data(str(tmp_path / "a.tsv"))
    assert result.data()["problems"]["first"] == [
        {"where": f"{tmp_path / 'a.tsv'}:2", "reason": "the row has 1 column, not 2"}
    ]
    assert "1 invalid row is left out" in " ".join(result.text().split())


def test_many_problems_are_summarised(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n" * 60 + "bad\n" * 30)
    text = " ".join(data(tmp_path / "a.tsv").text().split())
    assert "The first 20 of 30." in text


def test_long_examples_are_truncated_and_line_ends_shown(tmp_path):
    rows = [json.dumps({"text": "first line\nsecond line"}), json.dumps({"text": "word " * 1000})] * 2
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    text = data(tmp_path / "a.jsonl").text()
    assert "first line ⏎ second line" in text
    assert "…" in text
    assert len(text) < 3000


def test_a_card_can_be_saved(tmp_path):
    result = data("copy", num_train=10, num_valid=5)
    for suffix in ("html", "md", "json", "tex"):
        assert result.save(tmp_path / f"card.{suffix}").stat().st_size > 100


def test_a_card_has_the_suggested_settings():
    result = data("stories")
    settings = {"sample_unit": "documents", "seq_len": 64, "seq_len_warmup": None, "batch_size": 48}
    assert result.data()["suggested_settings"] == settings
    shown = "sample_unit=documents, seq_len=64, seq_len_warmup=null, batch_size=48"
    assert shown in " ".join(result.text().split())
