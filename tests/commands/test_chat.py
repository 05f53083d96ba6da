"""`chat`: the chat template makes the prompt, replies are streamed, the oldest turns are dropped."""

import pytest

import peasy
from peasy.checkpoint.model import save_model
from peasy.commands.chat import ChatSession, chat
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import Tokenizer, train_tokenizer

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    plain = train_tokenizer(["user: hello there\nassistant: hello you\nsystem: be kind\n"] * 9, "bpe", 300)
    tokenizer = Tokenizer(plain._data, plain.config | {"chat_template": TEMPLATE})
    settings = preset("gpt-tiny", vocab_size=300, d_model=16, max_seq_len=48)
    return save_model(tmp_path_factory.mktemp("models") / "chat-model", build(settings, seed=2), tokenizer)


def test_a_reply_continues_the_rendered_template(chat_model):
    session = chat(chat_model, system="be kind", max_tokens=5)
    reply = "".join(session.send("hello"))
    loaded = peasy.load(chat_model)
    text = "system: be kind\nuser: hello\nassistant: "
    assert reply == loaded.generate(text, max_tokens=5).texts[0]
    assert [message["role"] for message in session.messages] == ["system", "user", "assistant"]
    assert session.messages[-1]["content"] == reply
    assert "hello" in session.text()
    assert session.data()["messages"] == session.messages


def test_the_oldest_turns_are_dropped_when_the_context_is_full(chat_model):
    session = ChatSession(peasy.load(chat_model), max_tokens=8)
    for _ in range(6):
        list(session.send("hello there"))
    assert session.dropped_turns
    assert session.messages[-2]["content"] == "hello there"
    assert len(peasy.load(chat_model).tokenizer.encode(session.render_prompt()).ids) < 48 + 16


def test_a_closed_reply_keeps_its_beginning(chat_model):
    session = ChatSession(peasy.load(chat_model), max_tokens=30)
    pieces = session.send("hello")
    first = next(pieces)
    pieces.close()
    assert session.messages[-1] == {"role": "assistant", "content": first}


def test_a_model_without_a_chat_template_is_refused(decoder):
    with pytest.raises(InvalidInput, match="no chat template"):
        chat(decoder)
