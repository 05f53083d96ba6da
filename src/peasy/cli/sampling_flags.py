"""Sampling flags: temperature, top-k, top-p, penalties, stop strings."""

from dataclasses import dataclass
from typing import Any

from cyclopts import Group, Parameter

from peasy.cli.command import StrList

SAMPLING_GROUP = Group("Sampling", sort_key=50)


@Parameter(name="*", group=SAMPLING_GROUP)
@dataclass(frozen=True, kw_only=True)
class SamplingFlags:
    """Sampling flags; the same names as in `peasy.generation.sampling_params.SamplingParams`."""

    temperature: float = 0.0
    "Sampling temperature; 0 is greedy decoding."
    top_k: int | None = None
    "Sample only from the k most likely tokens."
    top_p: float = 1.0
    "Nucleus sampling: sample from the most likely tokens with this total probability."
    min_p: float = 0.0
    "Minimum probability, relative to the most likely token."
    repetition_penalty: float = 1.0
    "Above 1, tokens that occurred before become less likely."
    presence_penalty: float = 0.0
    "Subtracted from the logit of every token generated before."
    frequency_penalty: float = 0.0
    "Subtracted from the logit of a token for each time it was generated."
    stop: StrList = None
    "Stop string; generation ends before it. Can be repeated."

    def as_kwargs(self) -> dict[str, Any]:
        """Return the flags as keyword arguments of sampling."""
        return vars(self) | {"stop": tuple(self.stop or ())}
