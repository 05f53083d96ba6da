"""Incremental decoding equals decoding at once, and never splits a character."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.tokenization import IncrementalDecoder, Tokenizer, train_tokenizer

from .conftest import CORPUS

TEXTS = [
    "The pizza 👍🏽 tasted good.",
    "日本語",
    "\ufffd\ufffd ok \ufffd",
    "a",
    "",
    "It's 25°, isn't it?  two  spaces\n",
]


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer(CORPUS[:4], "bpe", 261)  # bytes only: every non-ASCII character has several tokens


@pytest.mark.parametrize("text", TEXTS)
def test_incremental_decoding_equals_decode(tokenizer, text):
    ids = tokenizer.encode(text).ids
    assert "".join(tokenizer.decode_stream(ids)) == tokenizer.decode(ids)


@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_byte_decoder_never_splits_a_character(bpe, text):
    pieces = list(bpe.decode_stream(bpe.encode(text).ids))
    assert "".join(pieces) == bpe.decode(bpe.encode(text).ids)
    assert sum(piece.count("\ufffd") for piece in pieces) == bpe.decode(bpe.encode(text).ids).count("\ufffd")


def test_partial_character_is_held_back(bpe):
    decoder = bpe.incremental_decoder()
    *first, last = bpe.encode("👍").ids
    assert [decoder.push(id) for id in first] == ["", "", ""]
    assert decoder.push(last) == "👍"


def test_incomplete_character_is_flushed_at_the_end(bpe):
    decoder = bpe.incremental_decoder()
    assert decoder.push(bpe.encode("é").ids[0]) == ""
    assert decoder.finish() == "\ufffd"


def test_random_ids(tokenizer):
    """Output of an untrained model: random ids, including special tokens."""
    rng = random.Random(0)
    for _ in range(50):
        ids = [rng.randrange(len(tokenizer)) for _ in range(30)]
        assert "".join(tokenizer.decode_stream(ids)) == tokenizer.decode(ids)


def test_byte_fallback_is_held_back(data):
    """Sentencepiece models encode rare characters as byte tokens, `<0xE2>`."""
    vocab = [["<unk>", 0.0], ["▁", -2.0], ["a", -2.0], *([f"<0x{byte:02X}>", -9.0] for byte in range(256))]
    decoder = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    model = {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": True}
    tokenizer = Tokenizer(data("unigram") | {"model": model, "decoder": decoder, "added_tokens": []})
    ids = tokenizer.encode("a €a").ids
    assert tokenizer.decode(ids) == "a €a"
    assert list(tokenizer.decode_stream(ids)) == ["a", " ", "€", "a"]


def test_decoding_each_id_alone_gives_replacement_characters(bpe, monkeypatch):
    """Inverse: decoding id by id gives replacement characters."""
    ids = bpe.encode("👍").ids
    assert "\ufffd" in "".join(bpe.decode([id]) for id in ids)
    assert isinstance(bpe.incremental_decoder(), IncrementalDecoder)
