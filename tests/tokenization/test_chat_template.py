"""Chat templates: same text as transformers, and sandboxed."""

import os

import pytest
import transformers

from peasy.errors import InvalidInput
from peasy.tokenization import Tokenizer, chat_template, train_tokenizer
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
def bpe():
    return train_tokenizer(["hello there"] * 9, "bpe", 280)


def with_template(tokenizer, template):
    return Tokenizer(tokenizer._data, tokenizer.config | {"chat_template": template})


@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_text_equals_transformers(bpe, add_generation_prompt, tmp_path):
    tokenizer = with_template(bpe, CHATML)
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    bos = tokenizer.token(tokenizer.special_tokens.bos) if tokenizer.special_tokens.bos is not None else ""
    theirs.bos_token = bos or None
    expected = theirs.apply_chat_template(
        MESSAGES, chat_template=CHATML, tokenize=False, add_generation_prompt=add_generation_prompt, bos_token=bos
    )
    assert apply_chat_template(tokenizer, MESSAGES, add_generation_prompt=add_generation_prompt) == expected


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
    "power": "{{ 9 ** 999999999 }}",
    "repeats": "{{ ('x' * 99999) * 99999 }}",
    "calls itself": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "maps": "{% for a in range(9999) %}{{ range(99999) | map('string') | join | length }}{% endfor %}",
    "one long operation": "{% set a = [1] * 10000 %}{{ ([a] * 10000) | sum(start=[]) | length }}",
    "grows when it is written": "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}"
    "{% endfor %}{{ n.x | tojson | length }}",
    "compares what it shares": "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(40) %}"
    "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
    "contains what it shares": "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(40) %}"
    "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x in [n.y] }}",
    "shared as text": "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ (n.x | string)[:9] }}",
    "pads": "{{ ('x' | center(2000000000))[:9] }}",
    "pads by a method": "{{ 'x'.ljust(4000000000)[:9] }}",
    "pads by a format": "{{ ('%4000000000d' % 1)[:9] }}",
    "pads by a format method": "{{ '{:>4000000000}'.format(1)[:9] }}",
    "indents": "{{ ('x\\n' * 999999) | indent(99999) | length }}",
    "replaces": "{{ ('x' * 9999999) | replace('x', 'y' * 9999999) | length }}",
    "replaces by a method": "{{ ('x' * 9999999).replace('', 'y' * 999)[:9] }}",
    "sorts": "{{ (range(99999) | map('string') | list * 99) | sort | length }}",
    "sorts long texts": "{{ ([('x' * 999999) ~ 'y', ('x' * 999999) ~ 'z'] * 99999) | sort | length }}",
    "unique": "{{ (['x' * 999999] * 99999) | map('list') | list | length }}",
    "writes paragraphs": "{{ lipsum(n=99999, min=99, max=100) | length }}",
    "joins": "{{ (['x' * 999999] * 99) | join('y' * 9999999) | length }}",
    "splits": "{{ (('x y ' * 2499999).split() * 40) | length }}",
    "wraps": "{{ ('x' * 9999999) | wordwrap(1) | length }}",
    "marks links": "{{ ('http://a.b ' * 900000) | urlize | length }}",
    "prints nested lists": "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}"
    "{% endfor %}{{ n.x | pprint | length }}",
    "slices": "{{ [1] | slice(999999999) | list | length }}",
    "fills batches": "{{ [1] | batch(999999999, 0) | list | length }}",
    "long division": "{{ (7 ** 3000000) // (3 ** 3000000) }}",
    "long remainder": "{{ (7 ** 3000000) % (3 ** 3000000) }}",
    "long": "{{ 1 }}" * 10_000,
    "long power": "{{ 10 ** 25000000 }}",
    "refuses": "{{ raise_exception('Only user and assistant roles!') }}",
    "is not a template": "{% for %}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_malicious_templates_are_refused(bpe, name, monkeypatch):
    counted = name in ("never ends", "maps")  # by counting, not by the clock: the same on a busy machine
    if counted:
        monkeypatch.setattr(chat_template, "MAX_CPU_SECONDS", 60.0)
    before = sum(os.times()[2:4])
    with pytest.raises(InvalidInput, match=r"chat template (cannot be used|has 70,000 characters)") as caught:
        apply_chat_template(with_template(bpe, HOSTILE[name]), MESSAGES)
    assert sum(os.times()[2:4]) - before < 3, "single operations are bounded in CPU time"
    if counted:
        assert "operations" in caught.value.message
    if name in ("power", "long power", "repeats"):  # before it is computed
        assert "a product is too large" in caught.value.message
    if name == "refuses":
        assert "Only user and assistant roles!" in caught.value.message


def test_a_loop_ends_after_so_many_operations_not_seconds(bpe, monkeypatch):
    """Inverse: with a larger budget the same template ends, with its text."""
    template = "{% for a in range(9999) %}{{ 'x' if a == 9998 }}{% endfor %}"
    assert apply_chat_template(with_template(bpe, template), MESSAGES) == "x"
    monkeypatch.setattr(chat_template, "MAX_OPERATIONS", 1000)
    with pytest.raises(InvalidInput, match=r"more than 1,\d+ operations"):
        apply_chat_template(with_template(bpe, template), MESSAGES)


def test_a_long_conversation_is_within_the_budget(bpe):
    messages = [{"role": "user", "content": f"message {number}"} for number in range(1000)]
    assert "message 999" in apply_chat_template(with_template(bpe, CHATML), messages)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}!{% endfor %}",
        "{{ messages | tojson(ensure_ascii=False) }}{{ messages | tojson(ensure_ascii=True, indent=2) }}",
        "{{ messages | tojson(separators=(',', ':'), sort_keys=True) }}",
        "{% if tools is none and documents is none %}none{% endif %}",
    ],
)
def test_generation_blocks_and_json_as_in_transformers(bpe, template, tmp_path):
    tokenizer = with_template(bpe, template)
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    messages = [{"role": "user", "content": "Grüße <b> 東京"}]
    expected = theirs.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=True)
    assert apply_chat_template(tokenizer, messages) == expected


def test_larger_limit_is_enough(bpe, monkeypatch):
    """Inverse: what exceeds one limit is rendered under a larger one."""
    monkeypatch.setattr(chat_template, "MAX_CHARS", 20)
    with pytest.raises(InvalidInput, match="writes 50 characters"):
        apply_chat_template(with_template(bpe, "{{'x' * 50}}"), MESSAGES)
    monkeypatch.setattr(chat_template, "MAX_CHARS", 1000)
    assert apply_chat_template(with_template(bpe, "{{'x' * 50}}"), MESSAGES) == "x" * 50


def test_no_template(bpe):
    with pytest.raises(InvalidInput, match="no chat template"):
        apply_chat_template(bpe, MESSAGES)
