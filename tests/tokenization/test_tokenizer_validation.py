"""Validation of untrusted tokenizer files: rejected before the library sees them, or harmless."""

import json
import random
import time

import pytest

from peasy.errors import InvalidInput, PeasyError
from peasy.tokenization import Tokenizer
from peasy.tokenization.tokenizer import library_errors


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def many(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def nested(depth):
    return {"type": "Sequence", "normalizers": [nested(depth - 1)]} if depth else {"type": "Lowercase"}


INVALID_STEPS = {
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
    "step that is not an object": ({"normalizer": many("x")}, "not a JSON object"),
    "empty added token": ({"added_tokens": [{"id": 1, "content": ""}]}, "added_tokens"),
    "added tokens that are not a list": ({"added_tokens": {"a": 1}}, "added_tokens"),
    "damaged map": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA////////"}}, "failed"),
    "unknown step": ({"normalizer": {"type": "Eval", "code": "1"}}, "failed"),
}
INVALID_MODELS = {
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
def test_unsafe_steps_are_refused(data, name):
    changes, message = INVALID_STEPS[name]
    start = time.perf_counter()
    with pytest.raises(InvalidInput, match=message):
        Tokenizer(data(**changes))
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("name", INVALID_MODELS)
def test_invalid_models_are_refused(data, name):
    changes, message = INVALID_MODELS[name]
    with pytest.raises(InvalidInput, match=message):
        Tokenizer(data(model=changes))


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


def test_rust_panic_becomes_an_error(data):
    """The library's panics are BaseExceptions, which `except Exception` does not catch."""
    tokenizer = Tokenizer(data(normalizer={"type": "Precompiled", "precompiled_charsmap": "BAAAAAEAAAB4eHg="}))
    with pytest.raises(InvalidInput, match="Tokenizing failed"):
        tokenizer.encode("abc")
    with pytest.raises(BaseException, match="out of bounds") as caught:
        tokenizer._backend.encode("abc")  # inverse: without the error wrapper
    assert not isinstance(caught.value, Exception)


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
        start = time.perf_counter()
        try:
            tokenizer = Tokenizer.from_json(json.dumps(mutate(base, rng)))
            tokenizer.decode(tokenizer.encode("The pizza 👍").ids)
        except PeasyError:
            refused += 1
        assert time.perf_counter() - start < 1
    assert refused > 5
