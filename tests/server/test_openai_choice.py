"""Logprob tokens of a choice: their texts, bytes and offsets are those of the text, for every kind of tokenizer."""

import json
import math

import pytest
from tests.tokenization.tokenizer_files import FILES, make_tokenizer

from peasy.generation.request import Ended, Token
from peasy.generation.sampling import SampledToken
from peasy.generation.sequence import _Detokenizer
from peasy.server.openai_choice import ChoiceBuilder, completion_logprobs


def built(tokenizer, prompt, new, stop=(), reason="length"):
    """Return the choice after the events that the engine emits for these tokens."""
    builder, detokenizer = ChoiceBuilder(tokenizer, tokenizer, prompt, with_logprobs=True), None
    detokenizer = _Detokenizer(tokenizer, prompt, stop)
    for index, id in enumerate(new):
        text, stopped = detokenizer.push(id)
        builder.add_event(Token(0, index, SampledToken(id, -1.0, ()), text))
        if stopped:
            builder.add_event(Ended(0, "stop", index + 1, ""))
            return builder.complete
    builder.add_event(Ended(0, reason, len(new), detokenizer.finish()))
    return builder.complete


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ["The pizza came out of the oven", "It's 25 degrees, 日本 the oven"])
def test_tokens_bytes_and_offsets_are_those_of_the_text(name, text):
    tokenizer = make_tokenizer(name)
    ids = tokenizer.encode_ids(text, add_special_tokens=False)
    eos = tokenizer.special_tokens.eos
    for cut in (0, 1, len(ids) // 2):
        prompt, new = ids[:cut], [*ids[cut:], eos]
        choice = built(tokenizer, prompt, new, reason="eos")
        assert tokenizer.decode(prompt) + choice.text == tokenizer.decode(ids)
        shown = completion_logprobs(choice.tokens)
        assert b"".join(bytes(token["bytes"]) for token in choice.tokens).decode() == choice.text
        assert len(choice.tokens) == len([id for id in new if not tokenizer.is_special(id)])
        for token, offset in zip(shown["tokens"], shown["text_offset"], strict=True):
            assert token.startswith("bytes:") or choice.text[offset:].startswith(token)


def test_tokens_of_a_stop_string_are_not_listed():
    tokenizer = make_tokenizer("t5")
    prompt, ids = (tokenizer.encode_ids(text, add_special_tokens=False) for text in ("The", "The pizza came out"))
    choice = built(tokenizer, prompt, ids[len(prompt) :], stop=(" came",))
    assert choice.text == " pizza"
    assert "".join(token["token"] for token in choice.tokens) == " pizza"
    assert choice.finish_reason == "stop"


def test_log_probability_of_an_impossible_token_is_a_number_of_json():
    tokenizer = make_tokenizer("t5")
    builder = ChoiceBuilder(tokenizer, tokenizer, [], with_logprobs=True)
    id = tokenizer.encode_ids("The", add_special_tokens=False)[0]
    builder.add_event(Token(0, 0, SampledToken(id, -math.inf, ()), "The"))
    builder.add_event(Ended(0, "length", 1, ""))
    assert completion_logprobs(builder.complete.tokens)["token_logprobs"] == [-9999.0]
    json.dumps(builder.complete.tokens, allow_nan=False)
