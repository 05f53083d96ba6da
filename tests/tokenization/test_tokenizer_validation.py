"""Validation of untrusted tokenizer files: rejected before the library sees them, or harmless."""

import base64
import json
import random
import struct
import time

import pytest
import tokenizers

from peasy.errors import InvalidInput, PeasyError
from peasy.tokenization import Tokenizer
from peasy.tokenization.tokenizer import library_errors
from peasy.tokenization.tokenizer_validation import check_built


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def many(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def nested(depth):
    return {"type": "Sequence", "normalizers": [nested(depth - 1)]} if depth else {"type": "Lowercase"}


def pre(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def nested_sequences(key, step, width=40):
    """Return a sequence of sequences: few steps in each, many in all."""
    return {"type": "Sequence", key: [{"type": "Sequence", key: [step] * width}] * width}


def untagged(step):
    return {key: value for key, value in step.items() if key != "type"}


def charsmap(replacement):
    return base64.b64encode(struct.pack("<I", 4) + bytes(4) + replacement + b"\0").decode()


TEXT, OTHER_TEXT = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}


def template(*single, pair=(TEXT, OTHER_TEXT), special=None):
    names = {"single": list(single), "pair": list(pair), "special_tokens": special or {}}
    return {"post_processor": {"type": "TemplateProcessing"} | names}


INVALID_STEPS = {
    "growth without a tag": ({"normalizer": many(*[untagged(replace("a", "a" * 10))] * 5)}, "type 'None'"),
    "sequence without a tag": ({"normalizer": untagged(many(replace("a", "a" * 10)))}, "type 'None'"),
    "another list before the one that is read": (
        {"pre_tokenizer": {"type": "Sequence", "normalizers": [], "pretokenizers": [split("(a+)+b")]}},
        "unknown key 'normalizers'",
    ),
    "another pattern": ({"normalizer": replace("a", "b") | {"Pattern": {"Regex": "(a+)+"}}}, "unknown key 'Pattern'"),
    "unknown key": ({"normaliser": None}, "unknown key 'normaliser'"),
    "step of another section": ({"normalizer": {"type": "WhitespaceSplit"}}, "type 'WhitespaceSplit'"),
    "bytes of bytes": ({"normalizer": many(*[{"type": "ByteLevel"}] * 20)}, "times as long"),
    "bytes of bytes of words": ({"pre_tokenizer": pre(*[{"type": "ByteLevel"}] * 20)}, "times as long"),
    "growing prefix": ({"normalizer": {"type": "Prepend", "prepend": "x" * 1000}}, "times as long"),
    "growing spaces": ({"pre_tokenizer": pre(*[{"type": "Metaspace", "replacement": "x"}] * 9)}, "times as long"),
    "growing character map": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap(b"x" * 10_000)}},
        "times as long",
    ),
    "growing decoder": (
        {"decoder": {"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": ""}] * 30}},
        "times as long",
    ),
    "slow decoder": ({"decoder": replace("x+y", "", "Regex")}, "not among the known"),
    "decoder that fails on short tokens": (
        {"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 3}},
        "end",
    ),
    "text in the template many times": (template(*[TEXT] * 40), "A once"),
    "no text in the template": (template({"SpecialToken": {"id": "a", "type_id": 0}}), "A once"),
    "long template": (
        template(TEXT, special={"a": {"id": "a", "ids": [1] * 9999, "tokens": ["a"] * 9999}}),
        "special tokens",
    ),
    "empty words": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "1 or more"),
    "long added token": ({"added_tokens": [{"id": 1, "content": "x" * 9999}]}, "characters"),
    "unknown key of an added token": ({"added_tokens": [{"id": 1, "content": "x", "regex": "y"}]}, "unknown key"),
    "exponential pattern": ({"pre_tokenizer": split("(a+)+b")}, "a repeat inside a repeat"),
    "the same in a sequence": (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split(r"\d"), split("(x*)*")]}},
        "a repeat inside a repeat",
    ),
    "pattern in the decoder": ({"decoder": replace("(a|a)*", "", "Regex")}, "a repeat inside a repeat"),
    "growing text": ({"normalizer": many(*[replace("a", "a" * 10)] * 9)}, "times as long"),
    "growing empty match": ({"normalizer": replace("x?", "y" * 100, "Regex")}, "times as long"),
    "empty pattern": ({"normalizer": replace("", "x")}, "is empty"),
    "two patterns": ({"normalizer": {"type": "Replace", "pattern": {"String": "a", "Regex": "b"}}}, "one String"),
    "content that is not text": ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": 3}}, "text"),
    "steps too deep": ({"normalizer": nested(20)}, "too deeply"),
    "too many steps": ({"normalizer": many(*[{"type": "Lowercase"}] * 100)}, "at most 64"),
    "too many steps in nested sequences": (
        {"normalizer": nested_sequences("normalizers", {"type": "NFC"})},
        "at most 64",
    ),
    "too many decoders": ({"decoder": nested_sequences("decoders", {"type": "Fuse"})}, "at most 64"),
    "too many templates": (
        {"post_processor": nested_sequences("processors", template(TEXT)["post_processor"])},
        "at most 64",
    ),
    "repeat with leading zeros": ({"pre_tokenizer": split("(a+){0000001,}b")}, "a repeat inside a repeat"),
    "step that is not an object": ({"normalizer": many("x")}, "not a JSON object"),
    "many long added tokens": (
        {"added_tokens": [{"id": number, "content": f"{number:04}" * 1000} for number in range(501)]},
        "all together",
    ),
    "empty added token": ({"added_tokens": [{"id": 1, "content": ""}]}, "added_tokens"),
    "added tokens that are not a list": ({"added_tokens": {"a": 1}}, "added_tokens"),
    "damaged map": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AQAAAAAA////////"}}, "damaged"),
    "map that is not text": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap(b"\xff")}},
        "damaged",
    ),
    "map cut off": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "////////"}}, "damaged"),
    "id that no token has": (
        template(
            TEXT,
            {"SpecialToken": {"id": "<q>", "type_id": 0}},
            special={"<q>": {"id": "<q>", "ids": [2**31], "tokens": ["<q>"]}},
        ),
        "adds the id 2147483648",
    ),
    "the same after a text": (
        {"post_processor": {"type": "BertProcessing", "sep": ["<q>", 99_999], "cls": ["<eos>", 3]}},
        "adds the id 99999",
    ),
    "unknown step": ({"normalizer": {"type": "Eval", "code": "1"}}, "type 'Eval'"),
}
INVALID_MODELS = {
    "unknown key of a model": ({"regex": "(a+)+"}, "unknown key 'regex'"),
    "word without limit": ({"type": "WordPiece", "max_input_chars_per_word": 10**9}, "max_input_chars_per_word"),
    "unknown model": ({"type": "Pickle"}, "Pickle"),
    "no vocabulary": ({"vocab": {}}, "no vocab"),
    "huge id": ({"vocab": {"<unk>": 0, "a": 2**31}}, "id of 'a'"),
    "negative id": ({"vocab": {"<unk>": 0, "a": -1}}, "id of 'a'"),
    "id that is not a number": ({"vocab": {"<unk>": 0, "a": "1"}}, "id of 'a'"),
    "duplicate id": ({"vocab": {"<unk>": 0, "a": 0}}, "same id"),
    "overlong piece": ({"vocab": {"<unk>": 0, "a" * 9999: 1}}, "characters"),
    "score that is not a number": ({"type": "Unigram", "unk_id": 0, "vocab": [["a", "b"]]}, "pairs"),
    "unknown id out of range": ({"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}, "failed"),
    "merge of unknown pieces": ({"type": "BPE", "vocab": {"a": 0}, "merges": ["b c"]}, "failed"),
}


@pytest.mark.parametrize("name", INVALID_STEPS)
def test_unsafe_steps_are_refused(data, name, capfd):
    changes, message = INVALID_STEPS[name]
    start = time.process_time()
    with pytest.raises(InvalidInput, match=message):
        Tokenizer(data(**changes))
    assert time.process_time() - start < 1
    assert capfd.readouterr().err == "", "the library has printed a panic"


def test_duplicate_keys_are_refused(data):
    """The library would read one of them, and a check the other."""
    text = json.dumps(data())
    hidden = text.replace('"normalizer": null', '"normalizer": null, "normalizer": {"type": "Lowercase"}')
    assert hidden != text
    with pytest.raises(InvalidInput, match="'normalizer' twice"):
        Tokenizer.from_json(hidden)


def test_what_the_library_builds_is_compared_with_the_file(data, monkeypatch):
    """Also without the check of tags, a step that the library reads in its own way is detected."""
    hidden = data(normalizer=many(untagged(replace("a", "b"))))
    built = tokenizers.Tokenizer.from_str(json.dumps(hidden)).normalizer.__getstate__()
    sections = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
    with pytest.raises(InvalidInput, match="in another way"):
        check_built(hidden, {key: hidden.get(key) for key in sections} | {"normalizer": {"type": "Lowercase"}})
    assert json.loads(built)["normalizers"] == [replace("a", "b")]  # the library adds the tag
    smuggled = data() | {"normalizer": {"type": "Lowercase", "normalizers": []}}
    with pytest.raises(InvalidInput, match="in another way"):
        check_built(smuggled, {key: smuggled.get(key) for key in sections} | {"normalizer": {"type": "Lowercase"}})


OLDER_FILES = {
    "space of an older version": {
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "str_rep": "▁", "add_prefix_space": True}
    },
    "template": template(TEXT, {"SpecialToken": {"id": "<eos>", "type_id": 0}}, special={
        "<eos>": {"id": "<eos>", "ids": [3], "tokens": ["<eos>"]}
    }),
    "normal forms": {"normalizer": many(*[{"type": name} for name in ("NFKD", "StripAccents", "Lowercase", "NFKC")])},
    "spaces by a prefix": {"normalizer": many({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))},
    "decoder of Llama": {
        "decoder": {
            "type": "Sequence",
            "decoders": [
                replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OLDER_FILES)
def test_common_files_are_accepted(data, name):
    tokenizer = Tokenizer(data(**OLDER_FILES[name]))
    expected = tokenizers.Tokenizer.from_str(json.dumps(data(**OLDER_FILES[name])))
    assert list(tokenizer.encode("The pizza").ids) == expected.encode("The pizza").ids
    assert tokenizer.decode([8, 9]) == expected.decode([8, 9])


def test_model_without_a_type_is_read_as_bpe(data):
    older = data("bpe")
    del older["model"]["type"]
    assert Tokenizer(older).kind == "bpe"


def test_unigram_model_without_a_type_is_read():
    vocab = [["<unk>", 0.0], ["▁the", -1.0], ["▁", -2.0], ["t", -3.0]]
    older = {"model": {"unk_id": 0, "vocab": vocab}, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}}
    assert Tokenizer(older).encode_ids("the the") == [1, 1]


def test_added_tokens_of_the_config_are_tokens(data):
    """Some folders name them only in tokenizer_config.json; transformers adds them to the tokenizer."""
    plain, new = data("bpe"), 1 + max(data("bpe")["model"]["vocab"].values())
    entry = {"content": "<|turn|>", "special": True, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer = Tokenizer(plain, {"added_tokens_decoder": {str(new + len(plain["added_tokens"])): entry}})
    ids = tokenizer.encode_ids("The<|turn|>pizza", add_special_tokens=False)
    assert tokenizer.token(max(ids)) == "<|turn|>"
    assert tokenizer.is_special(max(ids))
    assert len(Tokenizer(plain).encode_ids("The<|turn|>pizza", add_special_tokens=False)) > len(ids)  # inverse
    with pytest.raises(InvalidInput, match="added_tokens"):
        Tokenizer(plain, {"added_tokens_decoder": {str(new): {"content": 5}}})


@pytest.mark.parametrize("name", INVALID_MODELS)
def test_invalid_models_are_refused(data, name):
    changes, message = INVALID_MODELS[name]
    with pytest.raises(InvalidInput, match=message):
        Tokenizer(data() | {"model": changes} if changes.get("type") == "Unigram" else data(model=changes))


@pytest.mark.parametrize("value", [None, [], "x", {}, {"model": 3}, {"model": {}}])
def test_non_tokenizer_data_is_refused(value):
    with pytest.raises(InvalidInput):
        Tokenizer.from_json(json.dumps(value))


def test_padding_truncation_and_dropout_are_removed(data):
    """Padding to a hundred million or truncation to one token are options of a training run."""
    padding = {"strategy": {"Fixed": 10**8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    truncation = {"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    changes = {"padding": padding | {"pad_type_id": 0, "pad_token": "<pad>"}, "truncation": truncation}
    tokenizer = Tokenizer(data("bpe", model={"dropout": 0.9}, **changes))
    clean = Tokenizer(data("bpe"))
    text = "The pizza tasted good"
    assert {tokenizer.encode(text).ids for _ in range(5)} == {clean.encode(text).ids}


def test_long_text_with_an_unknown_pattern_is_refused(data):
    tokenizer = Tokenizer(data(pre_tokenizer=split("x+y")))
    assert tokenizer.encode("xxy " * 100).ids
    with pytest.raises(InvalidInput, match="1,000,000 characters"):
        tokenizer.encode("x" * 1_000_000)


def test_rust_panic_becomes_an_error(data, capfd):
    """The library's panics are BaseExceptions, which `except Exception` does not catch, and print to stderr."""
    damaged = data(normalizer={"type": "Precompiled", "precompiled_charsmap": "BAAAAAEAAAB4eHg="})
    with pytest.raises(InvalidInput, match="tokenizer failed"):
        Tokenizer(damaged).encode("abc")
    assert capfd.readouterr().err == ""
    with pytest.raises(BaseException, match="out of bounds") as caught:
        tokenizers.Tokenizer.from_str(json.dumps(damaged)).encode("abc")  # inverse: in this process
    assert not isinstance(caught.value, Exception)
    assert "panicked" in capfd.readouterr().err


def test_keyboard_interrupt_passes_through():
    with pytest.raises(KeyboardInterrupt), library_errors("x"):
        raise KeyboardInterrupt


def mutate(value, rng):
    """Return the data with one value changed."""
    strange = [None, -1, 0, 2**70, 1e308, "", "x", [], {}, True, "\ud800", "(a+)+", [[]], {"type": "BPE"}]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        return (
            value | {key: mutate(value[key], rng)}
            if rng.random() < 0.9
            else {k: v for k, v in value.items() if k != key}
        )
    if isinstance(value, list) and value and rng.random() < 0.9:
        i = rng.randrange(len(value))
        return [*value[:i], mutate(value[i], rng), *value[i + 1 :]]
    return rng.choice(strange)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "words"])
def test_mutated_files_raise_peasy_errors_or_work(data, kind):
    rng = random.Random(kind)
    base, refused = data(kind), 0
    for _ in range(60):
        start = time.process_time()
        try:
            tokenizer = Tokenizer.from_json(json.dumps(mutate(base, rng)))
            tokenizer.decode(tokenizer.encode("The pizza 👍").ids)
        except PeasyError:
            refused += 1
        assert time.process_time() - start < 1
    assert refused > 5
