"""Plain text: the last tenth is the validation split, and no character is lost or moved."""

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peasy.datasets import charset, open_corpus, plain_text
from peasy.errors import InvalidInput

WORDS = st.text("ab \n\r", min_size=30, max_size=400)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(5, 40))
def test_splits_concatenate_to_the_text(tmp_path_factory, monkeypatch, texts, block):
    """nanoGPT's split: train = text[:int(0.9 * n)], valid = the rest; for any block size."""
    folder = tmp_path_factory.mktemp("texts")
    monkeypatch.setattr(charset, "READ_BYTES", block)
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_bytes(text.encode())
    whole = "".join(text.replace("\r\n", "\n").replace("\r", "\n") for text in texts)
    corpus = open_corpus(folder)
    cut = int(len(whole) * 0.9)
    assert "".join(corpus.documents("train")) == whole[:cut]
    assert "".join(corpus.documents("valid")) == whole[cut:]
    assert corpus.card.sizes["train"].characters == cut
    assert corpus.card.sizes["valid"].characters == len(whole) - cut


def test_pieces_are_split_at_line_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(charset, "READ_BYTES", 64)
    (tmp_path / "a.txt").write_text("one two three four\n\n    five six\n" * 100)
    parts = list(open_corpus(tmp_path / "a.txt").documents())
    assert len(parts) > 10
    assert all(part.endswith("\n") and part.startswith("one") for part in parts[:-1])


def test_each_file_is_a_document(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name} text of some words\n" * 5)
    pieces = list(open_corpus(tmp_path).pieces("train"))
    assert [ends for _, ends in pieces] == [True, True, False]
    assert [piece[0] for piece, _ in pieces] == ["a", "b", "c"]
    assert open_corpus(tmp_path).card.sizes["train"].documents == 3


def test_file_names_determine_splits(tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text(f"this is the file {name}\n")
    corpus = open_corpus(tmp_path)
    assert corpus.splits == ("train", "valid", "test")
    assert [next(corpus.documents(split)).split()[-1] for split in corpus.splits] == list(corpus.splits)


def test_validation_file_can_be_given(tmp_path):
    (tmp_path / "book.txt").write_text("a text to be learned from\n")
    (tmp_path / "other.txt").write_text("a text to be held out then\n")
    corpus = open_corpus(tmp_path / "book.txt", valid=str(tmp_path / "other.txt"))
    assert list(corpus.documents("train")) == ["a text to be learned from\n"]
    assert list(corpus.documents("valid")) == ["a text to be held out then\n"]


@pytest.mark.parametrize(("text", "message"), [("", "is empty"), ("short\n", "has only 6 characters")])
def test_too_little_text_is_rejected(tmp_path, text, message):
    (tmp_path / "tiny.txt").write_text(text)
    with pytest.raises(InvalidInput, match=message) as error:
        open_corpus(tmp_path / "tiny.txt").card  # noqa: B018
    assert "are needed" in error.value.hint


def test_small_text_has_a_note(tmp_path):
    (tmp_path / "small.txt").write_text("a few words in a row\n" * 10)
    assert "210 characters" in open_corpus(tmp_path / "small.txt").card.notes["size note"]


def test_hash_depends_on_bytes(tmp_path):
    (tmp_path / "a.txt").write_text("a few words in a row\n" * 10)
    before = open_corpus(tmp_path / "a.txt").card.hash
    raw = (tmp_path / "a.txt").read_bytes()
    assert before == hashlib.sha256(hashlib.sha256(raw).digest()).hexdigest()
    (tmp_path / "a.txt").write_bytes(raw[:-1] + b"!")
    assert open_corpus(tmp_path / "a.txt").card.hash != before


def test_long_line_is_split_before_a_space(tmp_path, monkeypatch):
    monkeypatch.setattr(charset, "READ_BYTES", 50)
    monkeypatch.setattr(plain_text, "_MAX_PIECE", 100)
    text = "some words " * 100
    (tmp_path / "a.txt").write_text(text)
    corpus = open_corpus(tmp_path / "a.txt")
    parts = list(corpus.documents())
    assert len(parts) > 3
    assert all(part.startswith(" ") for part in parts[1:])
    assert "".join([*parts, *corpus.documents("valid")]) == text
