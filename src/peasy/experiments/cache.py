"""`cache`: generation with a KV cache against recomputing the whole sequence at every step."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from peasy.experiments.models import ModelSource, open_model
from peasy.experiments.result import ExperimentResult, OnStatus, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, Outcome
from peasy.views.document import CacheFigure

if TYPE_CHECKING:
    from peasy.generation.cache_benchmark import CacheBenchmarkStep

_PROMPT = "The pizza came out of the oven and it"
_LOGIT_TOLERANCE = 1024 * 2.0**-23
"""Rounding of float32 logits on two execution paths: a sum of about a thousand terms, each rounded to 2^-23."""
_SHOWN_STEPS = 8


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", max_tokens: int = 240,
    repeats: int = 3,
) -> ExperimentResult:  # fmt: skip
    """Generate with and without a cache, then time each step both ways; the shortest time of `repeats` counts."""
    loaded = open_model(model)  # reports a missing torch before the imports below do

    import torch

    from peasy.generation.cache_benchmark import benchmark_cache
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams

    prompt = list(loaded.encode_prompt(_PROMPT))
    context = loaded.max_seq_len
    count = max_tokens if context is None else min(max_tokens, context - len(prompt))
    no_eos = dict.fromkeys(loaded.model.config.special_tokens.eos, -math.inf)
    sampling = SamplingParams(max_tokens=count, temperature=0.8, seed=seed, logit_bias=no_eos)
    on_status(f"generating {count} tokens with a KV cache ...")
    generated = generate(loaded.model, [prompt], sampling, use_cache=True)[0]
    on_status("generating them without a cache ...")
    tokens_equal = generated == generate(loaded.model, [prompt], sampling, use_cache=False)[0]
    measured = []
    for number in range(repeats):
        on_status(f"timing each step, repeat {number + 1} of {repeats} ...")
        measured.append(list(benchmark_cache(loaded.model, prompt, generated)))
    steps = [
        repeated[0]._replace(
            seconds=min(step.seconds for step in repeated),  # free of interruptions by other programs
            seconds_uncached=min(step.seconds_uncached for step in repeated),
            max_difference=max(step.max_difference for step in repeated),
        )
        for repeated in zip(*measured, strict=True)
    ]
    state = loaded.model.new_state()
    with torch.inference_mode():
        loaded.model.forward_varlen([prompt], [state])
    arrays = [array for layer in state.layers for array in (layer.keys, layer.values)]
    bytes_per_token = sum(array.shape[1] * array.shape[3] * array.element_size() for array in arrays)
    pieces = loaded.require_tokenizer().pieces([*prompt, *generated])
    return conclude(steps, tokens_equal, bytes_per_token, pieces, seed)


def conclude(
    steps: Sequence["CacheBenchmarkStep"], tokens_equal: bool, bytes_per_token: int, pieces: Sequence[str], seed: int
) -> ExperimentResult:
    """Tokens and logits must be equal up to rounding, and the later half of the steps faster, by a paired test."""
    difference = max(step.max_difference for step in steps) if tokens_equal else math.inf
    later = steps[len(steps) // 2 :]
    comparisons = (
        Comparison("the same logits", "largest difference", difference, "rounding", _LOGIT_TOLERANCE, True, True),
        Comparison.of_pairs(
            "later tokens are faster", "seconds with cache", [step.seconds for step in later],
            "without", [step.seconds_uncached for step in later], lower=True,
        ),
    )  # fmt: skip
    equal = comparisons[0].outcome is Outcome.SUPPORTED
    first, last = _first_and_last_median([step.seconds for step in steps])
    first_without, last_without = _first_and_last_median([step.seconds_uncached for step in steps])
    gain, length = last_without / last, steps[-1].num_cached + steps[-1].num_new
    verdict = (
        f"With and without a KV cache {'the same' if equal else 'NOT the same'} {len(steps)} tokens are generated "
        f"(largest difference of the logits: {difference:.0e}). The last tokens take {last * 1e3:.2f} ms each with the "
        f"cache and {last_without * 1e3:.2f} ms without it, {gain:.1f} times as long. From the first to the last "
        f"tokens, the time per step grows by a factor of {last / first:.1f} with the cache and "
        f"{last_without / first_without:.1f} without it. The cache needs {bytes_per_token:,} bytes per token, "
        f"{bytes_per_token * length / 1024:,.0f} KiB for this sequence."
    )
    columns = [
        ("context", ","), ("ms", ".2f"), ("without", ".2f"), ("million products", ",.2f"), ("without", ",.2f"),
        ("cache (KiB)", ",.0f"),
    ]  # fmt: skip
    rows = [
        (
            step.num_cached + step.num_new, step.seconds * 1e3, step.seconds_uncached * 1e3,
            step.multiplications / 1e6, step.multiplications_uncached / 1e6,
            bytes_per_token * (step.num_cached + step.num_new) / 1024,
        )
        for step in (steps[index] for index in sorted({1, len(steps) // 4, len(steps) // 2, len(steps) - 1}))
    ]  # fmt: skip
    width = max(len(steps) // 12, 1)  # curves are smoothed by medians over neighbouring steps
    lines: dict[str, list[tuple[float, float]]] = {"with a KV cache": [], "without": []}
    for start in range(1, len(steps), width):
        group = steps[start : start + width]
        centre = float(np.mean([step.num_cached for step in group]))
        times = np.median([(step.seconds, step.seconds_uncached) for step in group], axis=0) * 1e3
        for line, milliseconds in zip(lines.values(), times.tolist(), strict=True):
            line.append((centre, milliseconds))
    shown = tuple((step.num_cached, step.num_new) for step in steps[:_SHOWN_STEPS])
    parts = (
        CacheFigure("Computed and cached keys and values of each step", tuple(pieces[: sum(shown[-1])]), shown),
        table("Cost of one more token, with and without a KV cache", columns, rows),
        curves("Time per token", lines, "context length (tokens)", "milliseconds"),
    )
    numbers = {
        "tokens_equal": equal,
        "max_logit_difference": difference,
        "bytes_per_token": bytes_per_token,
        "speedup": gain,
        "steps": [step._asdict() for step in steps],
    }
    return make_result("cache", parts, verdict, comparisons, numbers, seed)


def _first_and_last_median(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the first and the last eighth; the first step (the prefill) does not count.

    >>> _first_and_last_median([9, 1, 1, 1, 1, 1, 1, 1, 3])
    (1.0, 3.0)
    """
    eighth = max((len(seconds) - 1) // 8, 1)
    return float(np.median(seconds[1 : 1 + eighth])), float(np.median(seconds[-eighth:]))
