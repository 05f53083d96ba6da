"""Sampling parameters: bounds, and the same names and types in `SamplingParams` and `SamplingOptions`."""

import subprocess
import sys
from typing import get_type_hints

import pytest

from peasy.errors import InvalidInput
from peasy.generation.sampling_params import BeamSearchParams, SamplingOptions, SamplingParams


def test_options_have_the_names_and_types_of_the_parameters():
    options, params = (get_type_hints(kind, include_extras=True) for kind in (SamplingOptions, SamplingParams))
    assert options == params


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"max_tokens": 0}, "max_tokens must be 1 or more."),
        ({"top_k": 0}, "top_k must be 1 or more."),
        ({"top_p": 1.5}, "top_p must be 0 or more and 1 or less."),
        ({"temperature": float("nan")}, "temperature must be 0 or more and 100 or less."),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be 0.01 or more and 100 or less."),
        ({"repetition_penalty": float("inf")}, "repetition_penalty must be 0.01 or more and 100 or less."),
        ({"repetition_penalty": 1e-323}, "repetition_penalty must be 0.01 or more and 100 or less."),
        ({"logit_bias": {1: 1e39}}, "-10,000 to 10,000 are allowed, and minus infinity: it forbids an id."),
        ({"frequency_penalty": -101.0}, "frequency_penalty must be -100 or more and 100 or less."),
    ],
)
def test_values_outside_the_bounds_are_rejected(options, hint):
    with pytest.raises(InvalidInput) as error:
        SamplingParams(**options)
    assert error.value.hint == hint


def test_the_parameters_need_no_torch():
    code = "import sys, peasy.generation.sampling_params; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_EXTREMES = (5e-324, 1e-323, 1e-310, 1e-300, 1e-38, 1e-5, 0.01, 1.0, 2.0, 100.0, 1e4, 1e38, 1e39, 1e300, 1.7e308)


@pytest.mark.parametrize("name", [name for name in get_type_hints(SamplingParams) if name not in ("seed", "stop")])
def test_extreme_values_are_refused_by_name_or_give_a_token(name):
    """No value that is accepted makes logits that are not finite, whatever the size of the model's own."""
    import torch

    from peasy.generation.sampling import Sampler

    num_accepted = 0
    for value in (sign * extreme for extreme in _EXTREMES for sign in (1, -1)):
        given = {1: value} if name == "logit_bias" else value
        if name in ("max_tokens", "top_k", "logprobs"):
            given = int(value)
        params, message = None, ""
        try:
            params = SamplingParams(**{"temperature": 1.0, name: given})
        except InvalidInput as error:
            message = error.message
        if params is None:
            assert name.replace("_", " ") in message.replace("_", " "), message
            continue
        num_accepted += 1
        for logits in ([3.0, -2.0, 0.0], [3e4, -3e4, 3e4], [-torch.inf, 1e-40, -1e-40]):
            sampler = Sampler(params, prompt=[0, 1, 2])
            assert all(sampler.sample(torch.tensor(logits)).id in range(3) for _ in range(3))
    assert num_accepted


@pytest.mark.parametrize("penalty", [11.0, -11.0, 2000.0, -2000.0, 1.7e308, float("nan")])
def test_length_penalties_that_overflow_are_refused(penalty):
    with pytest.raises(InvalidInput) as error:
        BeamSearchParams(length_penalty=penalty)
    assert error.value.hint == "length_penalty must be -10 or more and 10 or less."
