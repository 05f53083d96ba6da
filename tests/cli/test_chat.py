"""`peasy chat` with an argument and with stdin."""

import json

import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import Tokenizer, train_tokenizer

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


@pytest.fixture
def folder(tmp_path):
    plain = train_tokenizer(["user: hello there\nassistant: hello you\n"] * 9, "bpe", 280)
    words = Tokenizer(plain._data, plain.config | {"chat_template": TEMPLATE})
    return save_model(tmp_path / "talker", build(preset("gpt-tiny", vocab_size=280, d_model=16), seed=2), words)


OPTIONS = ("--max-tokens", "5", "--temperature", "0")


def test_single_message_and_conversation(peasy, folder):
    once = peasy("chat", folder, "hello", *OPTIONS)
    assert once.code == 0
    assert once.out.strip()
    twice = peasy("chat", folder, *OPTIONS, "--json", stdin="hello\n\nhello there\n")
    last = json.loads(twice.out.splitlines()[-1])
    messages = last["result"]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    assert messages[1]["content"].strip() == once.out.strip()


def test_model_without_chat_template(peasy, model_folder):
    ran = peasy("chat", model_folder, "hello")
    assert ran.code == 4
    assert "peasy generate" in ran.err
