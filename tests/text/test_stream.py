import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.text import Stream, Tokenizer, train

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
    return train(CORPUS[:4], "bpe", 261)  # bytes only: every character beyond ASCII comes in halves


@pytest.mark.parametrize("text", TEXTS)
def test_stream_says_what_decode_says(tokenizer, text):
    ids = tokenizer.encode(text).ids
    assert "".join(tokenizer.decode_stream(ids)) == tokenizer.decode(ids)


@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_a_stream_of_bytes_never_splits_a_character(bpe, text):
    said = list(bpe.decode_stream(bpe.encode(text).ids))
    assert "".join(said) == bpe.decode(bpe.encode(text).ids)
    assert sum(piece.count("\ufffd") for piece in said) == bpe.decode(bpe.encode(text).ids).count("\ufffd")


def test_half_a_character_waits(bpe):
    stream = bpe.stream()
    *first, last = bpe.encode("👍").ids
    assert [stream.push(id) for id in first] == ["", "", ""]
    assert stream.push(last) == "👍"


def test_a_half_that_stays_half_is_said_at_the_end(bpe):
    stream = bpe.stream()
    assert stream.push(bpe.encode("é").ids[0]) == ""
    assert stream.finish() == "\ufffd"


def test_any_ids_make_a_stream(tokenizer):
    """What a model without a clue writes: random ids, special ones too."""
    rng = random.Random(0)
    for _ in range(50):
        ids = [rng.randrange(len(tokenizer)) for _ in range(30)]
        assert "".join(tokenizer.decode_stream(ids)) == tokenizer.decode(ids)


def test_byte_fallback_waits_too(data):
    """Sentencepiece models write rare characters as bytes, `<0xE2>`, among their other pieces."""
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


def test_without_waiting_halves_would_show(bpe, monkeypatch):
    """The inverse: decoding id by id, which is what the stream guards against, gives replacement signs."""
    ids = bpe.encode("👍").ids
    assert "\ufffd" in "".join(bpe.decode([id]) for id in ids)
    assert isinstance(bpe.stream(), Stream)
