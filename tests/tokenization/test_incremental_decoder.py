"""Incremental decoding equals decoding at once, and never splits a character."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.tokenization import IncrementalDecoder, Tokenizer, train_tokenizer
from peasy.tokenization import tokenizer as tokenizer_module

from .conftest import CORPUS
from .tokenizer_files import FILES, OF_ENCODERS, make_tokenizer

TEXTS = [
    "The pizza 👍🏽 tasted good.",
    "日本語",
    "\ufffd\ufffd ok \ufffd",
    "a",
    "",
    "It's 25°, isn't it?  two  spaces\n",
]


def decode_stream(tokenizer, ids, prompt=()):
    """Return what each id adds to the text of the prompt, without empty texts."""
    stream = IncrementalDecoder(tokenizer, prompt)
    return [text for text in (*map(stream.push, ids), stream.finish()) if text]


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer(CORPUS[:4], "bpe", 261)  # bytes only: every non-ASCII character has several tokens


@pytest.mark.parametrize("text", TEXTS)
def test_incremental_decoding_equals_decode(tokenizer, text):
    ids = tokenizer.encode(text).ids
    assert "".join(decode_stream(tokenizer, ids)) == tokenizer.decode(ids)


@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_byte_decoder_never_splits_a_character(bpe, text):
    pieces = list(decode_stream(bpe, bpe.encode(text).ids))
    assert "".join(pieces) == bpe.decode(bpe.encode(text).ids)
    assert sum(piece.count("\ufffd") for piece in pieces) == bpe.decode(bpe.encode(text).ids).count("\ufffd")


def test_partial_character_is_held_back(bpe):
    decoder = IncrementalDecoder(bpe)
    *first, last = bpe.encode("👍").ids
    assert [decoder.push(id) for id in first] == ["", "", ""]
    assert decoder.push(last) == "👍"


def test_incomplete_character_is_flushed_at_the_end(bpe):
    decoder = IncrementalDecoder(bpe)
    assert decoder.push(bpe.encode("é").ids[0]) == ""
    assert decoder.finish() == "\ufffd"


def test_random_ids(tokenizer):
    """Output of an untrained model: random ids, including special tokens."""
    rng = random.Random(0)
    for _ in range(50):
        ids = [rng.randrange(len(tokenizer)) for _ in range(30)]
        assert "".join(decode_stream(tokenizer, ids)) == tokenizer.decode(ids)


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
    # Bytes are held back until another token follows: an invalid byte would make all of them invalid.
    assert list(decode_stream(tokenizer, ids)) == ["a", " ", "€a"]
    invalid = [*ids[:-1], tokenizer.id("<0xFF>"), ids[-1]]
    assert "".join(decode_stream(tokenizer, invalid)) == tokenizer.decode(invalid) == "a \ufffd\ufffd\ufffd\ufffda"


def check_continuations(tokenizer, texts, rng):
    """Cut each text of ids anywhere into a prompt and its continuation, and compare with decoding both at once."""
    for ids in texts:
        cut = rng.randrange(len(ids) + 1)
        prompt, new = ids[:cut], ids[cut:]
        expected = tokenizer.decode(ids)[len(tokenizer.decode(prompt)) :]
        assert "".join(decode_stream(tokenizer, new, prompt)) == expected == tokenizer.decode_continuation(prompt, new)


def random_texts(tokenizer, rng, count):
    return [[rng.randrange(len(tokenizer)) for _ in range(rng.randrange(25))] for _ in range(count)]


@pytest.mark.parametrize("name", [*FILES, *OF_ENCODERS])
def test_a_continuation_is_what_it_adds_to_the_decoded_prompt(name):
    """Also for random ids (special tokens, single bytes) after any prompt, and in every tokenizer file."""
    tokenizer, rng = make_tokenizer(name), random.Random(name)
    texts = [tokenizer.encode_ids(text) for text in TEXTS]
    check_continuations(tokenizer, [*texts, *random_texts(tokenizer, rng, 150)], rng)


@pytest.mark.parametrize("name", ["t5", "bert", "pegasus"])
def test_spaces_before_punctuation_are_removed_in_parts_too(name):
    """Old fine-tuned models ask for it in tokenizer_config.json; most of a text still comes early."""
    files = make_tokenizer(name)
    tokenizer, rng = Tokenizer(files._data, files.config | {"clean_up_tokenization_spaces": True}), random.Random(name)
    vocabulary = tokenizer._data["model"]["vocab"]
    known = [*vocabulary] if isinstance(vocabulary, dict) else [piece for piece, _ in vocabulary]
    marks = [tokenizer.id(piece) for piece in known if set(piece) <= set("▁#.,!?'nmst")]
    check_continuations(tokenizer, random_texts(tokenizer, rng, 50), rng)
    check_continuations(tokenizer, [[rng.choice(marks) for _ in range(12)] for _ in range(300)], rng)
    ids = tokenizer.encode_ids("the pizza tasted good , the oven . the end", add_special_tokens=False)
    pieces = decode_stream(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert " ," not in tokenizer.decode(ids)
    assert len(pieces) >= 5


@pytest.mark.parametrize("cut", [r"(?<! ') (?=[^'])", " ", r" (?=[^'])", r"(?<! ') "])
def test_around_a_quote_the_text_is_held_back(monkeypatch, cut):
    """A quote loses both of its spaces, and then n't the one before it: cut between them, a space would stay."""
    tokenizer, rng = make_tokenizer("bert"), random.Random(0)
    tokenizer = Tokenizer(tokenizer._data, tokenizer.config | {"clean_up_tokenization_spaces": True})
    monkeypatch.setattr(tokenizer_module, "_CUT", re.compile(cut))
    wrong = 0
    for _ in range(2000):
        parts = [rng.choice([" ", "'", "n", "t", "m", "."]) for _ in range(9)]
        decoder = tokenizer_module._CleanUp(tokenizer, ())
        joined = "".join([*map(decoder.push, parts), decoder.push("", is_last=True)])
        wrong += joined != tokenizer_module._clean_up("".join(parts))
    assert (wrong == 0) == (cut == r"(?<! ') (?=[^'])")


def test_words_that_end_with_a_suffix_are_decoded_one_by_one():
    """The form of CLIP: the suffix is a space, but not at the end."""
    tokenizer = make_tokenizer("clip")
    ids = tokenizer.encode_ids("the pizza tasted good", add_special_tokens=False)
    pieces = list(decode_stream(tokenizer, ids))
    assert "".join(pieces) == "the pizza tasted good"
    assert len(pieces) >= 4  # not all at the end


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DECODERS = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "Replace", "pattern": {"String": "ab"}, "content": ""},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    {"type": "Strip", "content": "a", "start": 2, "stop": 0},
    {"type": "BPEDecoder", "suffix": "</w>"},
    {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
    {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    _BYTE_LEVEL,
]
_PIECES = [
    "a", "b", "ab", "▁", "▁a", "▁b</w>", "a</w>", "b</w>", "</w>", "<", "/w", ">", "##a", "##", "|", "<pad>", ".", "'",
    "n", "t", "##b", "x", "<0xE2>", "<0x82>", "<0xAC>", "<0xF0>", "Ġ", "Ġa", "âĤ", "¬", "ðŁ", "ĳ", "į", " ", " .",
]  # fmt: skip


def decoder_tokenizer(decoders, suffix=None):
    vocabulary = {piece: id for id, piece in enumerate(_PIECES)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": "x", "end_of_word_suffix": suffix}
    split = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
    data = {"version": "1.0", "model": model, "pre_tokenizer": split}
    return Tokenizer(data | {"decoder": {"type": "Sequence", "decoders": decoders}})


def test_an_end_of_word_suffix_may_come_in_parts():
    tokenizer, rng = decoder_tokenizer([_BYTE_LEVEL], "</w>"), random.Random(3)
    ids = [tokenizer.id(piece) for piece in ("Ġ", "a", "<", "/w", ">", "b</w>", "</w>", "x", "Ġ", "<", "/w")]
    assert list(decode_stream(tokenizer, ids)) == ["a", " b", "  x", " </w"]
    check_continuations(tokenizer, [rng.choices(ids, k=12) for _ in range(300)], rng)
    check_continuations(tokenizer, random_texts(tokenizer, rng, 600), rng)


def test_any_sequence_of_decoders_is_decoded_as_at_once():
    rng = random.Random(11)
    for _ in range(60):
        tokenizer = decoder_tokenizer(rng.choices(_DECODERS, k=rng.randrange(1, 4)))
        check_continuations(tokenizer, random_texts(tokenizer, rng, 40), rng)


@pytest.mark.parametrize(
    ("decoders", "pieces"),
    [
        ([_DECODERS[3], _DECODERS[1]], ("a", "b", "x")),  # a step after the text is joined
        ([_BYTE_LEVEL, _DECODERS[4]], ("ðŁ", "ĳ", "į", "Ġ", "x")),  # a character in several tokens
        ([_DECODERS[3], _DECODERS[5]], ("a", "ab", "b")),  # two characters less at the beginning
        (_DECODERS[7:9], ("a", "##a", "<pad>", "|", ".")),  # two steps that depend on neighbours
    ],
)
def test_without_waiting_for_the_end_such_a_decoder_loses_characters(decoders, pieces):
    tokenizer, rng = decoder_tokenizer(decoders), random.Random(2)
    assert tokenizer.decodes_as_a_whole
    texts = [[tokenizer.id(piece) for piece in rng.choices(pieces, k=8)] for _ in range(200)]
    check_continuations(tokenizer, texts, rng)
    tokenizer.decodes_as_a_whole = False
    with pytest.raises(AssertionError):
        check_continuations(tokenizer, texts, rng)


@pytest.mark.parametrize("name", [*FILES, *OF_ENCODERS])
def test_the_bytes_of_tokens_are_the_bytes_of_the_text(name):
    tokenizer = make_tokenizer(name)
    for text in ("The pizza came out", "the 25 oven", "日本 the"):
        ids = [id for id in tokenizer.encode_ids(text) if not tokenizer.is_special(id)]
        parts = [tokenizer.to_bytes(id, is_first=index == 0) for index, id in enumerate(ids)]
        text = b"".join(parts).decode(errors="replace")
        assert (text.rstrip() if tokenizer.word_end else text) == tokenizer.decode(ids)


def test_the_first_word_of_a_continuation_keeps_its_space():
    tokenizer = make_tokenizer("t5")
    prompt, whole = (tokenizer.encode_ids(text, add_special_tokens=False) for text in ("The", "The pizza"))
    new = whole[len(prompt) :]
    assert tokenizer.decode(new) == "pizza"  # inverse: alone, the ids have lost it
    assert "".join(decode_stream(tokenizer, new, prompt)) == " pizza"


def test_decoding_each_id_alone_gives_replacement_characters(bpe, monkeypatch):
    """Inverse: decoding id by id gives replacement characters."""
    ids = bpe.encode("👍").ids
    assert "\ufffd" in "".join(bpe.decode([id]) for id in ids)
    assert "\ufffd" not in "".join(decode_stream(bpe, ids))
