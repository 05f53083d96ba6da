"""Conversations as training data: the chat template is applied, and only tokens of answers have a loss."""

import json

import pytest
import torch

from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.tokenizer import read_tokenizer
from peasy.commands.chat import chat
from peasy.commands.data import data
from peasy.commands.evaluate import evaluate
from peasy.commands.train import train
from peasy.datasets import open_corpus
from peasy.datasets.shards import prepare_shards
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.config import SpecialTokensConfig
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer
from peasy.tokenization.chat_template import encode_conversations
from peasy.training.data_loader import SpecialTokens, make_data_loader
from peasy.training.objective import IGNORE_INDEX, MaskedToken, NextToken

TEMPLATE = (
    "{% for m in messages %}{{ '[' + m.role + ']' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '#' }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
CHATS = [
    [("system", "Be short."), ("user", "2+2?"), ("assistant", "4"), ("user", "And 3+3?"), ("assistant", "That is 6.")],
    [("user", "Hello"), ("assistant", "Good day to you")],
    [("user", "Bye"), ("assistant", "Bye")],
]


def message_list(chat_):
    return [{"role": role, "content": content} for role, content in chat_]


@pytest.fixture
def file(tmp_path):
    rows = [json.dumps({"messages": message_list(chat_)}) for chat_ in CHATS]
    (tmp_path / "chats.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path / "chats.jsonl"


@pytest.fixture
def tokenizer():
    texts = [f"[{role}]{content}#\n" for chat_ in CHATS for role, content in chat_]
    return train_tokenizer(texts * 3, "characters").with_chat_template(TEMPLATE)


def by_hand(chat_):
    """Return text and answer flags, one per character: a token of this tokenizer."""
    text, flags = "", []
    for role, content in chat_:
        before, said = f"[{role}]", content + "#" if role == "assistant" else content
        text += before + said + "\n"
        flags += [0] * len(before) + [int(role == "assistant")] * len(said) + [0]
    return text, flags


def test_loss_is_that_of_the_answers(file, tokenizer, tmp_path):
    shards = prepare_shards(open_corpus(file, valid=str(file)), tokenizer, tmp_path / "shards")
    loader = make_data_loader(shards, NextToken(), SpecialTokensConfig(), SpecialTokens(), seed=1)
    model = build(preset("gpt-tiny", vocab_size=len(tokenizer)), seed=1).eval()
    [batch] = list(loader.validation(8, 200))
    expected, whole, num_targets = 0.0, 0.0, 0
    for chat_ in CHATS:
        text, flags = by_hand(chat_)
        ids = tokenizer.encode_ids(text, add_special_tokens=False)
        assert len(ids) == len(flags)
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).log_softmax(-1)[0]
        losses = [-float(logprobs[at - 1, ids[at]]) for at in range(1, len(ids))]
        expected += sum(loss for loss, flag in zip(losses, flags[1:], strict=True) if flag)
        whole, num_targets = whole + sum(losses), num_targets + sum(flags[1:])
    with torch.no_grad():
        loss = float(NextToken().loss_sum(model, batch))
    assert loss == pytest.approx(expected, rel=1e-5)
    assert NextToken().num_targets(batch) == num_targets
    assert whole > 1.5 * expected  # inverse: with every token as a target, the loss is another


def test_answers_are_those_of_transformers(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    bpe = train_tokenizer(["user assistant Be short. That is 6. Hello Good day to you [#]\n"] * 9, "bpe", 300)
    for ours in (tokenizer, bpe.with_chat_template(TEMPLATE)):
        ours.save(tmp_path / "tokenizer.json")
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
        for chat_ in CHATS:
            expected = theirs.apply_chat_template(
                message_list(chat_),
                chat_template=TEMPLATE,
                return_dict=True,
                return_assistant_tokens_mask=True,
            )
            [(ids, answers)] = encode_conversations(ours, [message_list(chat_)])
            assert (ids, answers) == (expected["input_ids"], expected["assistant_masks"])


def test_long_conversations_are_cut(file, tokenizer, tmp_path):
    shards = prepare_shards(open_corpus(file), tokenizer, tmp_path / "shards")
    loader = make_data_loader(shards, NextToken(), SpecialTokensConfig(), SpecialTokens(), seed=1)
    batch = loader.batch(0, 2, 5)
    assert batch["ids"].shape == batch["targets"].shape == (2, 5)
    assert (batch["targets"] == IGNORE_INDEX).all()  # no answer begins within five tokens
    with pytest.raises(InvalidInput, match="next token"):
        make_data_loader(shards, MaskedToken(), SpecialTokensConfig(), SpecialTokens(), seed=1)


def test_a_template_that_changes_earlier_messages_is_refused(tokenizer):
    last_only = tokenizer.with_chat_template(
        "{{ messages[-1].content }}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    with pytest.raises(InvalidInput, match="changes earlier messages"):
        encode_conversations(last_only, [message_list(CHATS[0])])


def test_trained_from_the_start_and_asked(file, tmp_path):
    """A new tokenizer gets a plain template, with which the run answers; validation measures answers."""
    settings = {"seq_len": 5, "batch_size": 2, "num_validations": 1, "precision": "float32"}
    result = train("gpt", file, preset="tiny", steps=2, run=tmp_path / "run", settings=settings)
    assert result.model.tokenizer.chat_template is not None
    session = chat(result.model, max_tokens=3)
    list(session.send("Hello"))
    assert session.messages[-1]["role"] == "assistant"
    assert session.render_prompt().startswith("<bos>User: Hello\nAssistant:")
    with pytest.raises(InvalidInput, match="conversations"):
        evaluate(result.model, file)


def test_unusable_conversations_are_listed(tmp_path):
    rows = [
        {"messages": message_list(CHATS[1])},
        {"messages": message_list(CHATS[2])},
        {"messages": message_list(CHATS[0])},
        {"messages": [{"role": "user", "content": "Hello"}]},
        {"messages": "Hello"},
        {"messages": [{"role": "assistant", "content": ["parts"]}]},
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    result = data(tmp_path / "chats.jsonl")
    assert result.card.kind == "chat"
    text = str(result)
    for reason in ("there is no answer", "not a list of objects", '"content" of a message is not text', "user: Hello"):
        assert reason in text


def test_template_file_of_newer_transformers_is_read(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}!", encoding="utf-8")
    read = read_tokenizer(SafeFolder(tmp_path))
    assert read.chat_template == "{{ messages[0].content }}!"
