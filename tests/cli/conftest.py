"""Fixtures: a test command `peasy greet` made of a given function, and a tiny model."""

import sys
from types import ModuleType

import pytest

from peasy.cli import app, settings, usage
from peasy.cli.command import CommandOutput, DocumentResult, Flags
from peasy.cli.command_table import COMMANDS, Command
from peasy.views.document import Document, Paragraph


@pytest.fixture
def answer():
    return CommandOutput(DocumentResult(Document("Greeting", (Paragraph("Hello Ada."),)), {"greeting": "Hello Ada."}))


@pytest.fixture
def register(monkeypatch):
    """Register a function as the command `greet`."""

    def put(function):
        module = ModuleType("peasy.cli.greet")
        module.greet = function
        monkeypatch.setitem(sys.modules, "peasy.cli.greet", module)
        for module_ in (app, settings, usage):
            command = Command("greet", "Print a greeting.", "Getting started")
            monkeypatch.setattr(module_, "COMMANDS", (*COMMANDS, command))

    return put


@pytest.fixture
def raising(register):
    """Make `greet` raise the given error."""

    def put(error: BaseException):
        def greet(*, flags: Flags = Flags()) -> CommandOutput:
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
    from peasy.nn import config as nn_config

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    stack = nn_config.StackConfig(2, nn_config.AttentionConfig(2), nn_config.MLPConfig(16, "gelu-tanh"))
    config = DecoderConfig(vocab_size=5, d_model=8, max_seq_len=16, stack=stack)
    folder = tmp_path / "tiny"
    write_folder(folder, config, build(config, seed=1).state_dict())
    words = {"<unk>": 0, "I": 1, "love": 2, "AI": 3, "pizza": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8")
    return folder
