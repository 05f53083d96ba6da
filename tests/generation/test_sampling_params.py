"""Sampling parameters: bounds, and the same names and types in `SamplingParams` and `SamplingOptions`."""

import subprocess
import sys
from typing import get_type_hints

import pytest

from peasy.errors import InvalidInput
from peasy.generation.sampling_params import SamplingOptions, SamplingParams


def test_options_have_the_names_and_types_of_the_parameters():
    options, params = (get_type_hints(kind, include_extras=True) for kind in (SamplingOptions, SamplingParams))
    assert options == params


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1."),
        ({"top_k": 0}, "top_k must be at least 1."),
        ({"top_p": 1.5}, "top_p must be at most 1."),
        ({"temperature": float("nan")}, "temperature must be at least 0."),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0."),
        ({"repetition_penalty": float("inf")}, "repetition_penalty must be at most 100."),
        ({"frequency_penalty": -101.0}, "frequency_penalty must be at least -100."),
    ],
)
def test_values_outside_the_bounds_are_rejected(options, hint):
    with pytest.raises(InvalidInput) as error:
        SamplingParams(**options)
    assert error.value.hint == hint


def test_the_parameters_need_no_torch():
    code = "import sys, peasy.generation.sampling_params; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
