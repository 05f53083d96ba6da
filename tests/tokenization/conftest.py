"""One tokenizer of each kind, trained once, and a tokenizer.json to corrupt."""

import copy
import json

import pytest

from peasy.tokenization import TOKENIZER_KINDS, train_tokenizer

CORPUS = [
    "The pizza came out of the oven and it tasted good.",
    "It's easy peasy, lemon squeezy: 3 days ago, 25 degrees!",
    "Une phrase française, où l'on voit des accents; ein schöner Satz.",
    "日本語の文章もあります。 Привет, мир. שלום 👍🏽 and\ttabs\nand lines",
] * 25


@pytest.fixture(scope="session")
def tokenizers():
    return {
        kind: train_tokenizer(CORPUS, kind, None if kind in ("words", "characters") else 600)
        for kind in TOKENIZER_KINDS
    }


@pytest.fixture(params=sorted(TOKENIZER_KINDS))
def tokenizer(request, tokenizers):
    return tokenizers[request.param]


@pytest.fixture
def data(tokenizers):
    """Return a tokenizer.json of the given kind as data, with some keys replaced."""

    def make(kind="words", model=None, **changes):
        made = copy.deepcopy(tokenizers[kind]._data)
        made["model"] |= model or {}
        return json.loads(json.dumps(made | changes))

    return make
