"""`chat`: the template's text goes in, the answer comes piece by piece, and what no longer fits is forgotten."""

import pytest

import peasy
from peasy.checkpoint.model import save_model
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.text import Tokenizer, train
from peasy.workbench.chat import Chat, chat

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    plain = train(["user: hello there\nassistant: hello you\nsystem: be kind\n"] * 9, "bpe", 300)
    words = Tokenizer(plain._data, plain.settings | {"chat_template": TEMPLATE})
    settings = preset("gpt-tiny", vocabulary=300, d_model=16, context=48)
    return save_model(tmp_path_factory.mktemp("models") / "talker", build(settings, seed=2), words)


def test_an_answer_goes_on_from_the_template(talker):
    talk = chat(talker, system="be kind", max_tokens=5)
    answer = "".join(talk.say("hello"))
    loaded = peasy.load(talker)
    text = "system: be kind\nuser: hello\nassistant: "
    assert answer == loaded.generate(text, max_tokens=5)
    assert [message["role"] for message in talk.messages] == ["system", "user", "assistant"]
    assert talk.messages[-1]["content"] == answer
    assert "hello" in talk.text()
    assert talk.data()["messages"] == talk.messages


def test_the_oldest_is_forgotten_when_there_is_no_room(talker):
    talk = Chat(peasy.load(talker), max_tokens=8)
    for _ in range(6):
        list(talk.say("hello there"))
    assert talk.forgotten
    assert talk.messages[-2]["content"] == "hello there"
    assert len(peasy.load(talker).tokenizer.encode(talk.template()).ids) < 48 + 16


def test_what_was_answered_when_it_is_closed_is_kept(talker):
    talk = Chat(peasy.load(talker), max_tokens=30)
    pieces = talk.say("hello")
    first = next(pieces)
    pieces.close()
    assert talk.messages[-1] == {"role": "assistant", "content": first}


def test_a_model_without_a_template(decoder):
    with pytest.raises(InvalidInput, match="no chat template"):
        chat(decoder)
