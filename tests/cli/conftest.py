"""A verb made for the tests: whatever function it is given becomes `peasy greet`."""

import sys
from types import ModuleType

import pytest

from peasy.cli import app, settings, usage
from peasy.cli.door import Answer, Flags, Page
from peasy.cli.verb import FIRST, VERBS, Verb
from peasy.views.document import Document, Paragraph


@pytest.fixture
def answer():
    return Answer(Page(Document("Greeting", (Paragraph("Hello Ada."),)), {"greeting": "Hello Ada."}))


@pytest.fixture
def verb(monkeypatch):
    """Put a function in as the verb `greet`."""

    def put(function):
        module = ModuleType("peasy.cli.greet")
        module.greet = function
        monkeypatch.setitem(sys.modules, "peasy.cli.greet", module)
        for place in (app, settings, usage):
            monkeypatch.setattr(place, "VERBS", (*VERBS, Verb("greet", "Greet somebody.", FIRST)))

    return put


@pytest.fixture
def raising(verb):
    """`greet` raises this error."""

    def put(error: BaseException):
        def greet(*, flags: Flags = Flags()) -> Answer:
            raise error

        verb(greet)

    return put


@pytest.fixture
def model_folder(tmp_path, monkeypatch):
    """A tiny model as transformers would have saved it, and an empty place for peasy's own models."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    from peasy.checkpoint.huggingface import write_folder
    from peasy.models.build import build
    from peasy.models.config import DecoderConfig
    from peasy.nn import part

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    stack = part.Stack(2, part.Attention(2), part.Plain(16, "gelu-tanh"))
    config = DecoderConfig(vocabulary=5, d_model=8, context=16, stack=stack)
    folder = tmp_path / "tiny"
    write_folder(folder, config, build(config, seed=1).state_dict())
    words = {"<unk>": 0, "I": 1, "love": 2, "AI": 3, "pizza": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
