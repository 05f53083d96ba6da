"""Chat templates: same text as transformers, and sandboxed."""

import time

import pytest
import transformers

from peasy.errors import InvalidInput
from peasy.tokenization import Tokenizer, train_tokenizer
from peasy.tokenization import chat_template as room
from peasy.tokenization.chat_template import apply_chat_template

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": 'Hallo <b>&</b> "you"'}]
CHATML = (
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' }}\n"
    "    {%- if loop.last %}{% continue %}{% endif %}{{ '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ bos_token }}<|im_start|>assistant\n{% endif %}{{ messages | tojson }}"
)


@pytest.fixture(scope="module")
def words():
    return train_tokenizer(["hello there"] * 9, "bpe", 280)


def with_template(words, template):
    return Tokenizer(words._data, words.settings | {"chat_template": template})


@pytest.mark.parametrize("answer", [True, False])
def test_text_equals_transformers(words, answer, tmp_path):
    tokenizer = with_template(words, CHATML)
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    begin = tokenizer.token(tokenizer.special_tokens.bos) if tokenizer.special_tokens.bos is not None else ""
    theirs.bos_token = begin or None
    expected = theirs.apply_chat_template(
        MESSAGES, chat_template=CHATML, tokenize=False, add_generation_prompt=answer, bos_token=begin
    )
    assert apply_chat_template(tokenizer, MESSAGES, add_generation_prompt=answer) == expected


HOSTILE = {
    "reaches classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "reaches globals": "{{ cycler.__init__.__globals__.os.system('touch /tmp/peasy-was-here') }}",
    "imports": "{% import 'os' as os %}{{ os }}",
    "changes its input": "{{ messages.append(1) }}",
    "never ends": "{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}"
    "{% endfor %}",
    "writes too much": "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "doubles": "{% set ns = namespace(x='xxxxxxxxxx') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
    "{% endfor %}{{ ns.x }}",
    "refuses": "{{ raise_exception('Only user and assistant roles!') }}",
    "is not a template": "{% for %}",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_malicious_templates_are_refused(words, what):
    began = time.monotonic()
    with pytest.raises(InvalidInput, match="chat template cannot be used") as caught:
        apply_chat_template(
            with_template(words, HOSTILE[what]), MESSAGES, max_cpu_seconds=1 if what == "never ends" else 10
        )
    assert time.monotonic() - began < 130
    if what == "refuses":
        assert "Only user and assistant roles!" in caught.value.message


def test_larger_limit_is_enough(words, monkeypatch):
    """Inverse: what exceeds one limit is rendered under a larger one."""
    monkeypatch.setattr(room, "MAX_CHARS", 20)
    with pytest.raises(InvalidInput, match="writes 50 characters"):
        apply_chat_template(with_template(words, "{{'x' * 50}}"), MESSAGES)
    monkeypatch.setattr(room, "MAX_CHARS", 1000)
    assert apply_chat_template(with_template(words, "{{'x' * 50}}"), MESSAGES) == "x" * 50


def test_no_template(words):
    with pytest.raises(InvalidInput, match="no chat template"):
        apply_chat_template(words, MESSAGES)
