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
        ({"max_tokens": 0}, "max_tokens must be 1 or more."),
        ({"top_k": 0}, "top_k must be 1 or more."),
        ({"top_p": 1.5}, "top_p must be 0 or more and 1 or less."),
        ({"temperature": float("nan")}, "temperature must be 0 or more and 100 or less."),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0 and 100 or less."),
        ({"repetition_penalty": float("inf")}, "repetition_penalty must be above 0 and 100 or less."),
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
