import json
import subprocess
import sys
import time

import pytest

from peasy.errors import InvalidInput
from peasy.text import KINDS, train
from peasy.text.train import SPECIAL

from .conftest import CORPUS


def test_special_tokens_are_the_first_ids_of_every_kind(tokenizer):
    assert [tokenizer.token(id) for id in range(len(SPECIAL))] == list(SPECIAL)
    special = tokenizer.special
    assert (special.pad, special.unk, special.bos, special.eos, special.mask) == (0, 1, 2, 3, 4)


def test_vocabulary_is_no_larger_than_asked_for():
    for kind in ("bpe", "wordpiece", "unigram", "words"):
        assert 6 <= len(train(CORPUS, kind, 300)) <= 300


def test_wrapped_texts_begin_and_end():
    tokenizer = train(CORPUS, "words", wrap=True)
    assert tokenizer.encode("The pizza").pieces == ("<bos>", "The", "pizza", "<eos>")
    assert tokenizer.encode("The pizza", special=False).pieces == ("The", "pizza")


def test_lowercase():
    assert train(CORPUS, "words", lowercase=True).encode("THE Pizza").pieces == ("the", "pizza")


def test_training_twice_gives_the_same_file(tokenizer, tokenizers, tmp_path):
    """In another process: the order of a hash table there is another one."""
    kind = next(name for name, each in tokenizers.items() if each is tokenizer)
    (tmp_path / "corpus.json").write_text(json.dumps(CORPUS))
    size = None if kind in ("words", "characters") else 600
    code = (
        "import json, sys; from peasy.text import train; "
        f"train(json.load(open('corpus.json')), {kind!r}, {size}).save('tokenizer.json')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    tokenizer.save(tmp_path / "again.json")
    assert (tmp_path / "tokenizer.json").read_text() == (tmp_path / "again.json").read_text()


def test_a_run_without_end_is_learned_from_in_pieces():
    start = time.perf_counter()
    train(["a" * 300_000, "some words"], "bpe", 300)
    assert time.perf_counter() - start < 20


def test_any_iterator_will_do():
    assert train(iter(CORPUS), "words").encode("pizza").pieces == ("pizza",)


@pytest.mark.parametrize(
    ("corpus", "kind", "size", "said"),
    [
        (CORPUS, "bqe", None, "bqe"),
        (CORPUS, "bpe", 100, "too small"),
        ([], "words", None, "no text"),
        (["", "  "], "bpe", None, "no text"),
        ("one text", "words", None, "several texts"),
    ],
)
def test_what_cannot_be_trained_says_so(corpus, kind, size, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        train(corpus, kind, size)
    assert kind != "bqe" or caught.value.hint == "Did you mean bpe?"


def test_all_kinds_are_here():
    assert set(KINDS) == {"characters", "words", "bpe", "wordpiece", "unigram"}


def test_numbers_are_read_digit_by_digit():
    """However often a number is seen: another one that never was is made of the same tokens."""
    tokenizer = train(["in 1984 and 1984 again"] * 50, kind="bpe", vocabulary=320)
    found = tokenizer.encode(" again 1984, 4891")
    assert [piece for piece in found.pieces if any(map(str.isdigit, piece))] == list("19844891")
    assert tokenizer.decode(found.ids) == " again 1984, 4891"
    assert "·again" in found.pieces
