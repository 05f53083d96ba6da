"""Fixtures: a test command `peasy greet` made of a given function, and a tiny model."""

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
def register(monkeypatch):
    """Register a function as the command `greet`."""

    def put(function):
        module = ModuleType("peasy.cli.greet")
        module.greet = function
        monkeypatch.setitem(sys.modules, "peasy.cli.greet", module)
        for module_ in (app, settings, usage):
            monkeypatch.setattr(module_, "VERBS", (*VERBS, Verb("greet", "Print a greeting.", FIRST)))

    return put


@pytest.fixture
def raising(register):
    """Make `greet` raise the given error."""

    def put(error: BaseException):
        def greet(*, flags: Flags = Flags()) -> Answer:
            raise error

        register(greet)

    return put


@pytest.fixture
def model_folder(tmp_path, monkeypatch):
    """A tiny Hugging Face model folder, and an empty data folder for peasy."""
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
