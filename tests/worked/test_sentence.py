"""Sentence examples: deterministic word vectors."""

import subprocess
import sys

import pytest

from peasy.errors import InvalidInput
from peasy.worked.example import VECTOR_NOTE, sentence_example, split_words, word_vector


def test_a_word_always_gets_the_same_vector():
    assert word_vector("pizza") == (-0.2, 0.1, 0.2, -0.3), "vectors in saved pages and worksheets must not change"
    one, two = sentence_example("the cat saw the dog"), sentence_example("a dog and The bird")
    assert one.x[0] == one.x[3] == two.x[3]
    assert one.x[4] == two.x[1]
    assert len(set(one.x)) == 4


def test_vectors_are_equal_in_another_process():
    code = "from peasy.worked.example import word_vector; print(word_vector('lemon'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONHASHSEED": "7"})
    assert ran.stdout.strip() == str(word_vector("lemon")), ran.stderr


def test_unicode_normalisation_does_not_change_the_vector():
    assert word_vector("caf\u00e9") == word_vector("cafe\u0301")


def test_note_explains_the_vectors():
    assert sentence_example("I love AI").note == VECTOR_NOTE


def test_words_and_punctuation():
    assert split_words("Don't panic: it's fine!") == ("Don't", "panic", ":", "it's", "fine", "!")
    with pytest.raises(InvalidInput, match="two words"):
        sentence_example("alone")
