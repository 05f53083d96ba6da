"""Tokenizer training: sizes, special tokens, reproducibility and invalid arguments."""

import json
import subprocess
import sys
import time

import pytest

from peasy.errors import InvalidInput
from peasy.tokenization import TOKENIZER_KINDS, train_tokenizer
from peasy.tokenization.trainer import SPECIAL_TOKENS

from .conftest import CORPUS


def test_special_tokens_are_the_first_ids_of_every_kind(tokenizer):
    assert [tokenizer.token(id) for id in range(len(SPECIAL_TOKENS))] == list(SPECIAL_TOKENS)
    special = tokenizer.special_tokens
    assert (special.pad, special.unk, special.bos, special.eos, special.mask) == (0, 1, 2, 3, 4)


def test_vocabulary_size_is_respected():
    for kind in ("bpe", "wordpiece", "unigram", "words"):
        assert 6 <= len(train_tokenizer(CORPUS, kind, 300)) <= 300


def test_bos_and_eos_are_added():
    tokenizer = train_tokenizer(CORPUS, "words", add_bos_eos=True)
    assert tokenizer.encode("The pizza").pieces == ("<bos>", "The", "pizza", "<eos>")
    assert tokenizer.encode("The pizza", add_special_tokens=False).pieces == ("The", "pizza")


def test_lowercase():
    assert train_tokenizer(CORPUS, "words", lowercase=True).encode("THE Pizza").pieces == ("the", "pizza")


def test_training_twice_gives_the_same_file(tokenizer, tokenizers, tmp_path):
    """In another process, where hash tables have another order."""
    kind = next(name for name, trained in tokenizers.items() if trained is tokenizer)
    (tmp_path / "corpus.json").write_text(json.dumps(CORPUS))
    size = None if kind in ("words", "characters") else 600
    code = (
        "import json, sys; from peasy.tokenization import train_tokenizer; "
        f"train_tokenizer(json.load(open('corpus.json')), {kind!r}, {size}).save('tokenizer.json')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    tokenizer.save(tmp_path / "again.json")
    assert (tmp_path / "tokenizer.json").read_text() == (tmp_path / "again.json").read_text()


def test_long_runs_are_split():
    start = time.process_time()
    train_tokenizer(["a" * 300_000, "some words"], "bpe", 300)
    assert time.process_time() - start < 20


def test_corpus_may_be_an_iterator():
    assert train_tokenizer(iter(CORPUS), "words").encode("pizza").pieces == ("pizza",)


@pytest.mark.parametrize(
    ("corpus", "kind", "size", "message"),
    [
        (CORPUS, "bqe", None, "bqe"),
        (CORPUS, "bpe", 100, "too small"),
        ([], "words", None, "no text"),
        (["", "  "], "bpe", None, "no text"),
        ("one text", "words", None, "a list of texts"),
    ],
)
def test_invalid_arguments_are_refused(corpus, kind, size, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        train_tokenizer(corpus, kind, size)
    assert kind != "bqe" or caught.value.hint == "Did you mean bpe?"


def test_all_kinds_are_listed():
    assert set(TOKENIZER_KINDS) == {"characters", "words", "bpe", "wordpiece", "unigram"}


def test_numbers_are_split_into_digits():
    """Frequent numbers get no token of their own, so unseen numbers use the same tokens."""
    tokenizer = train_tokenizer(["in 1984 and 1984 again"] * 50, kind="bpe", vocab_size=320)
    encoding = tokenizer.encode(" again 1984, 4891")
    assert [piece for piece in encoding.pieces if any(map(str.isdigit, piece))] == list("19844891")
    assert tokenizer.decode(encoding.ids) == " again 1984, 4891"
    assert "·again" in encoding.pieces
