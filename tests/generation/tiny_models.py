"""Small models and the reference: each sequence alone, recomputed for every token, in double precision."""

from dataclasses import replace
from functools import cache

import torch
from tests.models.tiny_models import GENERATIVE_MODELS, RECURRENT_TRANSLATORS, TRANSLATORS, make

from peasy.generation.engine import Engine
from peasy.generation.request import Ended, Token
from peasy.generation.sampling import Sampler
from peasy.generation.sampling_params import SamplingParams
from peasy.models import config as kinds
from peasy.nn import config as nn_config

VOCABULARY = 61


def rotary_decoder(**attention) -> kinds.DecoderConfig:
    """Return the config of a decoder without a maximum length."""
    stack = nn_config.StackConfig(
        2, nn_config.AttentionConfig(2, **attention), nn_config.MLPConfig(24), nn_config.LayerNormConfig()
    )
    return kinds.DecoderConfig(VOCABULARY, 16, stack, None, nn_config.RotaryConfig())


KINDS = {
    "decoder": rotary_decoder(),
    "window": rotary_decoder(window=5),
    "lstm": GENERATIVE_MODELS["lstm"],
    "convolution": GENERATIVE_MODELS["convolution"],
    "ngram": GENERATIVE_MODELS["ngram"],
    "translator": TRANSLATORS["seq2seq-relative"],
    "recurrent-translator": RECURRENT_TRANSLATORS["recurrent-translator"],
}


@cache
def model_of(kind: str):
    return make(KINDS[kind], double=True).eval()


@cache
def alone(kind: str, prompt: tuple[int, ...], source: tuple[int, ...] | None, count: int, **options) -> list[int]:
    """Generate a sequence alone."""
    return generate_alone(model_of(kind), prompt, source, SamplingParams(max_tokens=count, **options))


@torch.inference_mode()
def generate_alone(model, prompt, source, sampling: SamplingParams) -> list[int]:
    source_argument = {} if source is None else {"source": torch.tensor([source])}
    ids = list(prompt) or [model.config.special_tokens.decoder_start]
    sampler, generated = Sampler(sampling, ids), []
    for _ in range(sampling.max_tokens):
        new = sampler.sample(model(torch.tensor([ids + generated]), **source_argument)[0, -1]).id
        generated.append(new)
        if new in model.config.special_tokens.eos:
            break
    return generated


def choices_alone(kind: str, request) -> list[list[int]]:
    """Generate every choice of a request alone."""
    options = {"temperature": request.sampling.temperature, "repetition_penalty": request.sampling.repetition_penalty}
    count, seed = request.sampling.max_tokens, request.sampling.seed
    return [alone(kind, request.prompt, request.source, count, seed=seed + i, **options) for i in range(request.n)]


def run(engine: Engine) -> int:
    """Step until idle; return the number of steps."""
    steps = 0
    while engine.step():
        steps += 1
    return steps


def token_ids(events, choice: int = 0) -> list[int]:
    """Return the ids of one choice."""
    return [event.sampled.id for event in events if isinstance(event, Token) and event.choice == choice]


def final_events(events) -> dict[int, Ended]:
    return {event.choice: event for event in events if isinstance(event, Ended)}


def with_end(model, *ids: int):
    model.config = replace(model.config, special_tokens=replace(model.config.special_tokens, eos=ids))
    return model
