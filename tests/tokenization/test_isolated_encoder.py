"""Foreign tokenizers are bounded in time and memory whatever they contain; peasy's own run in this process."""

import gc
import json
import os
import threading
import time

import pytest
import tokenizers as library

from peasy.checkpoint.paths import built_in_models
from peasy.errors import InvalidInput
from peasy.tokenization import Tokenizer, isolated_encoder
from peasy.tokenization.tokenizer_validation import tokenizer_form, validate_tokenizer_json

PREFIXES = {
    "type": "Unigram", "unk_id": 0, "byte_fallback": False,
    "vocab": [["<unk>", 0.0], *(["a" * count, -float(count)] for count in range(1, 3000))],
}  # fmt: skip
"""Pieces that all begin at every character of a long run: quadratic, and allowed by every check of the file."""


@pytest.fixture
def bomb(data):
    return Tokenizer(data() | {"model": PREFIXES, "pre_tokenizer": None, "added_tokens": []})


def test_slow_text_is_refused_and_the_next_one_works(bomb):
    assert bomb.is_isolated
    start = time.process_time()
    with pytest.raises(InvalidInput, match=r"took more than 1\.3 s"):
        bomb.encode("a" * 30_000)
    assert time.process_time() - start < 1, "the text was tokenized in this process"
    assert len(bomb.encode("aaa").ids) == 1


def test_text_that_needs_much_memory_is_refused(data, monkeypatch):
    """Without the check of growth, the limit on memory holds."""
    growing = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}] * 9
    hostile = data() | {"normalizer": {"type": "Sequence", "normalizers": growing}}
    encoder = isolated_encoder.IsolatedEncoder(hostile)
    with pytest.raises(InvalidInput, match=r"too much memory|more than"):
        encoder.encode(["a" * 100], add_special_tokens=False, offsets=False)
    assert encoder.encode(["x"], add_special_tokens=False, offsets=True)[0][1] == [(0, 1)]


def test_text_with_too_many_tokens_is_refused(bomb, monkeypatch):
    monkeypatch.setattr(isolated_encoder, "_TOKENS_PER_CHAR", 0)
    monkeypatch.setattr(isolated_encoder, "_TOKENS_PER_TEXT", 0)
    with pytest.raises(InvalidInput, match="was stopped"):
        bomb.encode("aaa")


def test_a_panic_while_building_stays_in_its_process(data, capfd):
    """Pieces shorter than the prefix: the library cuts them at a negative index."""
    with pytest.raises(InvalidInput, match="tokenizer failed"):
        Tokenizer(data("bpe", model={"continuing_subword_prefix": "####"}))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("limit", "value"), [("_BUILD_SECONDS", 0.001), ("_MAX_BYTES", 0)])
def test_building_is_limited_in_time_and_memory(data, monkeypatch, limit, value):
    monkeypatch.setattr(isolated_encoder, limit, value)
    words = {f"{number:06}": number for number in range(50_000)}
    large = data() | {"model": {"type": "BPE", "vocab": words, "merges": []}, "added_tokens": []}
    monkeypatch.setattr(isolated_encoder, "_BYTES_PER_BUILD_SECOND", 1e12)
    monkeypatch.setattr(isolated_encoder, "_MEMORY_PER_BYTE", 1)
    encoder = isolated_encoder.IsolatedEncoder(large)
    with pytest.raises(InvalidInput, match=r"was stopped|memory"):
        encoder.build()


def test_wall_clock_limit_holds_without_a_cpu_limit(bomb, monkeypatch):
    """As on systems that cannot limit CPU time."""
    bomb.encode("a")
    monkeypatch.setattr(isolated_encoder, "_CPU_SECONDS", 0.0)
    monkeypatch.setattr(isolated_encoder, "_CHARS_PER_CPU_SECOND", 1e12)
    with pytest.raises(InvalidInput, match="was stopped"):
        bomb.encode("a" * 30_000)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "words", "characters"])
def test_isolated_tokens_equal_those_of_the_library(tokenizers, kind):
    tokenizer, texts = tokenizers[kind], ["The pizza 👍 tasted good", "", "日本語 où  l'on\n"]
    encoder = isolated_encoder.IsolatedEncoder(tokenizer._data)
    isolated = encoder.encode(texts, add_special_tokens=True, offsets=True)
    expected = library.Tokenizer.from_str(json.dumps(tokenizer._data)).encode_batch(texts)
    assert isolated == [(encoding.ids, encoding.offsets) for encoding in expected]
    assert not tokenizer.is_isolated


def test_changed_forms_are_isolated(data):
    """Each part of a form is compared: an own tokenizer with one change runs in its own process."""
    own = data("wordpiece")
    assert tokenizer_form(own).is_own
    changes = [
        {"normalizer": {"type": "NFKC"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"model": own["model"] | {"max_input_chars_per_word": 101}},
        {"added_tokens": [own["added_tokens"][0] | {"lstrip": True}]},
        {"post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}] * 2}},
        {
            "model": data("bpe")["model"] | {"continuing_subword_prefix": "##"},
            "pre_tokenizer": data("bpe")["pre_tokenizer"],
        },
    ]
    assert [tokenizer_form(validate_tokenizer_json(own | change)[0]).is_own for change in changes] == [False] * len(
        changes
    )
    unigram = data("unigram")
    unigram["model"]["vocab"].append(["a" * 65, -1.0])
    assert not tokenizer_form(unigram).is_own


def test_built_in_models_tokenize_in_this_process():
    files = [path for folder in built_in_models().values() for path in folder.glob("*tokenizer.json")]
    assert files
    assert [path for path in files if Tokenizer.load(path).is_isolated] == []


def test_threads_share_one_process(bomb):
    wrong = []

    def encode(count):
        for _ in range(20):
            if len(bomb.encode("a" * count).text) != count or bomb.encode("b" * count).offsets[-1][1] != count:
                wrong.append(count)

    threads = [threading.Thread(target=encode, args=(count,)) for count in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_process_ends_with_its_tokenizer(data):
    tokenizer = Tokenizer(data(pre_tokenizer={"type": "Whitespace"}))
    tokenizer.encode("a")
    process = tokenizer._isolated_encoder._process
    del tokenizer
    gc.collect()
    assert process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_interrupted_request_does_not_answer_the_next_one(bomb, monkeypatch):
    bomb.encode("a")
    real = isolated_encoder._exchange

    def interrupted(process, message, offsets, max_tokens):
        process.stdin.write(message)
        process.stdin.flush()
        raise KeyboardInterrupt

    monkeypatch.setattr(isolated_encoder, "_exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bomb.encode("b" * 7)
    monkeypatch.setattr(isolated_encoder, "_exchange", real)
    assert bomb.encode("aa").offsets == ((0, 2),)
