"""Fixtures: tiny in-memory corpora, and a tokenizer that covers their characters."""

import pytest

from peasy.datasets import TextPair
from peasy.datasets.corpus import Corpus
from peasy.tokenization import train_tokenizer


class Given(Corpus):
    """Corpus of the given documents."""

    name = "given"

    def __init__(self, kind, **splits):
        super().__init__()
        self.kind, self._documents = kind, splits
        self.splits = tuple(splits)

    def read(self, split):
        return iter(self._documents[split])


@pytest.fixture(scope="session")
def tokenizer():
    letters = "abcdefghijklmnopqrstuvwxyz 0123456789.,\n"
    return train_tokenizer([letters] * 3, kind="characters")


@pytest.fixture(scope="session")
def given():
    return Given


@pytest.fixture
def texts():
    return Given("text", train=[f"text {n}" for n in range(57)], valid=["held out", "too"])


@pytest.fixture
def pairs():
    return Given(
        "pairs",
        train=[TextPair("s" * (1 + n % 13), "t" * (1 + n % 7)) for n in range(131)],
        valid=[TextPair("one", "un"), TextPair("two", "deux")],
    )
