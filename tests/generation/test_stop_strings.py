"""Engine events equal those of the decoding loop: text, stop strings, ends, log-probabilities."""

from dataclasses import replace

import pytest
from tests.generation.tiny_models import rotary_decoder, run
from tests.models.tiny_models import make

from peasy.generation.decode import Pass, decode
from peasy.generation.engine import Engine
from peasy.generation.request import Ended, Request, Token
from peasy.generation.sampling_params import SamplingParams
from peasy.tokenization import train_tokenizer

TOKENIZER = train_tokenizer(["the cat sat on the mat and the dog ran to the cat"] * 9, kind="bpe", vocab_size=280)
PROMPT = tuple(TOKENIZER.encode("the cat").ids)


@pytest.fixture(scope="module")
def model():
    return make(replace(rotary_decoder(), vocab_size=len(TOKENIZER)), double=True).eval()


def by_engine(model, sampling: SamplingParams) -> list:
    engine = Engine(model, TOKENIZER)
    others = [engine.submit(Request((number,), SamplingParams(9))) for number in range(1, 4)]
    response = engine.submit(Request(PROMPT, sampling))
    run(engine)
    assert all(other.is_finished for other in others)
    return response.pop_all()


def by_decode(model, sampling: SamplingParams) -> list:
    return [event for event in decode(model, [PROMPT], sampling, tokenizer=TOKENIZER) if not isinstance(event, Pass)]


def text_of(events) -> str:
    return "".join(event.text for event in events)


def test_engine_gives_the_same_text_as_decode(model):
    sampling = SamplingParams(30, 0.9, seed=2)
    assert by_engine(model, sampling) == by_decode(model, sampling)


def test_log_probabilities_are_reported(model):
    actual, expected = (run_path(model, SamplingParams(5, logprobs=3)) for run_path in (by_engine, by_decode))
    for event, other in zip(actual, expected, strict=True):
        if isinstance(event, Token):
            assert event.sampled.logprob == pytest.approx(other.sampled.logprob)
            assert len(event.sampled.top_logprobs) == 3


def test_stop_strings_are_found_across_tokens(model):
    sampling = SamplingParams(30, 0.9, seed=2)
    full_text = text_of(by_decode(model, sampling))
    for start in range(0, len(full_text) - 3, 5):
        stop = full_text[start : start + 3]
        events = by_engine(model, replace(sampling, stop=(stop,)))
        assert text_of(events) == full_text[: full_text.index(stop)]
        assert isinstance(events[-1], Ended)
        assert events[-1].reason == "stop"
        assert events == by_decode(model, replace(sampling, stop=(stop,)))
