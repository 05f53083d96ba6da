"""`teacher-forcing`: losses of all positions in one pass and one by one; right tokens given, or the model's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from peasy.commands.load import LoadedModel
from peasy.datasets import open_corpus
from peasy.experiments.models import ModelSource, open_model, time_call
from peasy.experiments.result import ExperimentResult, OnStatus, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, Outcome

_TOLERANCE = 1024 * 2.0**-23
"""Rounding of float32 logits on two execution paths: a sum of about a thousand terms, each rounded to 2^-23."""
_GIVEN = 6
"""Number of tokens that are given before generation."""


@dataclass(frozen=True)
class ForcedText:
    """One text: largest difference of the logits in one pass and one by one, seconds of both, and right tokens.

    `forced`: predictions after the right earlier tokens; `free`: after the model's own, from the `_GIVEN` first on.
    """

    difference: float
    parallel_seconds: float
    serial_seconds: float
    forced: tuple[bool, ...]
    free: tuple[bool, ...]


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", texts: int = 24
) -> ExperimentResult:
    """Compute each text in one pass and token by token, then continue its beginning."""
    loaded = open_model(model)
    stories = islice(open_corpus("stories", num_valid=10**6).texts("valid"), seed * texts, (seed + 1) * texts)
    on_status(f"{texts} texts in one pass, one by one, and generated ...")
    return conclude([measure_text(loaded, list(loaded.encode_prompt(text))) for text in stories], seed)


def measure_text(loaded: LoadedModel, ids: Sequence[int]) -> ForcedText:
    """Measure one text."""
    import torch

    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams

    model, whole = loaded.model, torch.tensor([ids])

    def one_by_one() -> "torch.Tensor":
        return torch.stack([model(whole[:, :end], last_only=True)[0, -1] for end in range(1, len(ids) + 1)])

    with torch.inference_mode():
        parallel, serial = model(whole)[0], one_by_one()
        seconds = [time_call(lambda: model(whole)), time_call(one_by_one)]
    usual = serial > -torch.inf
    expected, forced = ids[_GIVEN:], parallel[_GIVEN - 1 : -1].argmax(dim=-1).tolist()
    sampling = SamplingParams(max_tokens=len(expected), temperature=0.0)
    free = [*generate(model, [list(ids[:_GIVEN])], sampling)[0], *[-1] * len(expected)]
    right = [tuple(a == b for a, b in zip(expected, side, strict=False)) for side in (forced, free)]
    return ForcedText(float((parallel - serial)[usual].abs().max()), seconds[0], seconds[1], right[0], right[1])


def conclude(texts: Sequence[ForcedText], seed: int) -> ExperimentResult:
    """Equal logits are an identity; the time of one pass, and the accuracy with the right tokens given, decide."""
    difference = max(text.difference for text in texts)
    parallel, serial = ([getattr(text, f"{way}_seconds") for text in texts] for way in ("parallel", "serial"))
    forced, free = ([float(np.mean(getattr(text, way))) for text in texts] for way in ("forced", "free"))
    comparisons = (
        Comparison("one pass gives the same logits", "difference", difference, "rounding", _TOLERANCE, True, True),
        Comparison.of_pairs("one pass is faster", "seconds", parallel, "one by one", serial, lower=True),
        Comparison.of_pairs("mistakes are fed back", "accuracy, right tokens given", forced, "own tokens", free),
    )  # fmt: skip
    same = comparisons[0].outcome is Outcome.SUPPORTED
    verdict = (
        f"One pass over a text gives {'the same logits' if same else 'NOT the same logits'} as one pass for each token "
        f"(difference {difference:.0e}) in {np.mean(parallel) * 1e3:.1f} instead of {np.mean(serial) * 1e3:.1f} ms. "
        f"With the right tokens before it, {np.mean(forced):.0%} of tokens are predicted; after the model's own, "
        f"{np.mean(free):.0%}."
    )
    length = max(len(text.forced) for text in texts)
    lines = {
        name: {at + 1: float(np.mean(hits)) for at in range(length) if (hits := _hits_at(texts, way, at))}
        for name, way in (("right tokens given", "forced"), ("own tokens", "free"))
    }
    columns = [("computed", ""), ("milliseconds per text", ".2f"), ("accuracy", ".0%")]
    rows = [
        ("all at once, right tokens given", np.mean(parallel) * 1e3, np.mean(forced)),
        ("one by one, own tokens", np.mean(serial) * 1e3, np.mean(free)),
    ]
    parts = (
        table("Training and generation", columns, rows),
        curves("Accuracy by position", lines, f"tokens after the first {_GIVEN}", "accuracy"),
    )
    numbers = {"difference": difference, "parallel": parallel, "serial": serial, "forced": forced, "free": free}
    return make_result("teacher-forcing", parts, verdict, comparisons, numbers, seed)


def _hits_at(texts: Sequence[ForcedText], way: str, at: int) -> list[bool]:
    return [getattr(text, way)[at] for text in texts if len(text.forced) > at]
