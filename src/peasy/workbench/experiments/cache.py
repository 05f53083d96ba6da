"""`cache`: generation with a KV cache against recomputing the whole sequence at every step."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from peasy.parts import need
from peasy.views.document import Cache, Curves, Part, Table
from peasy.workbench.experiments.finding import Finding, Hear, unheard
from peasy.workbench.experiments.subject import Subject, open_subject

if TYPE_CHECKING:
    from peasy.generation.saving import Step
    from peasy.workbench.load import LoadedModel

QUESTION = "Keys and values of earlier tokens do not change. How much time does a KV cache save, and how much memory?"
PROMPT = "The pizza came out of the oven and it"
ALLOWED = 1e-4
"""Tolerance for float32 logits computed on two execution paths."""
SHOWN = 8


def run(seed: int = 0, hear: Hear = unheard, model: Subject = "stories", tokens: int = 240, rounds: int = 3) -> Finding:
    """Generate with and without a cache, then time each step both ways; the shortest time of `rounds` counts."""
    need("torch")
    from peasy.generation.saving import compare

    loaded = open_subject(model)
    prompt = loaded.prompt(PROMPT)
    context = getattr(loaded.model.config, "context", None)
    count = tokens if context is None else min(tokens, context - len(prompt))
    hear(f"generating {count} tokens with a KV cache ...")
    written = write(loaded, prompt, count, seed, cached=True)
    hear("generating them without a cache ...")
    same = written == write(loaded, prompt, count, seed, cached=False)
    measured = []
    for number in range(rounds):
        hear(f"timing each step, round {number + 1} of {rounds} ...")
        measured.append(list(compare(loaded.model, prompt, written)))
    pieces = [loaded.need_tokenizer().piece(id) for id in (*prompt, *written)]
    return conclude(fastest(measured), same, held(loaded, prompt), pieces, seed)


def write(loaded: "LoadedModel", prompt: Sequence[int], count: int, seed: int, *, cached: bool) -> list[int]:
    """Sample `count` tokens; eos is forbidden."""
    from peasy.generation.decode import Sampling, generate

    bias = dict.fromkeys(loaded.model.config.special.end, -math.inf)
    sampling = Sampling(max_tokens=count, temperature=0.8, seed=seed, logit_bias=bias)
    return generate(loaded.model, [list(prompt)], sampling, cached=cached)[0]


def held(loaded: "LoadedModel", prompt: Sequence[int]) -> int:
    """Return the bytes per token of a KV cache."""
    import torch

    state = loaded.model.start()
    with torch.inference_mode():
        loaded.model.read([list(prompt)], [state])
    arrays = [array for layer in state.layers for array in (layer.keys, layer.values)]  # type: ignore[attr-defined]
    return sum(array.shape[1] * array.shape[3] * array.element_size() for array in arrays)


def fastest(rounds: Sequence[Sequence["Step"]]) -> list["Step"]:
    """Take the minimum time of every step, free of interruptions by other programs, and the largest difference."""
    return [
        repeats[0]._replace(
            seconds=min(step.seconds for step in repeats),
            seconds_without=min(step.seconds_without for step in repeats),
            apart=max(step.apart for step in repeats),
        )
        for repeats in zip(*rounds, strict=True)
    ]


def conclude(steps: Sequence["Step"], same: bool, held: int, pieces: Sequence[str], seed: int) -> Finding:
    """Holds if the tokens are the same and the last ones are faster with the cache."""
    difference = max(step.apart for step in steps)
    equal = same and difference <= ALLOWED
    first, last = ends([step.seconds for step in steps])
    first_without, last_without = ends([step.seconds_without for step in steps])
    gain, length = last_without / last, steps[-1].kept + steps[-1].new
    verdict = (
        f"With and without a KV cache {'the same' if equal else 'NOT the same'} {len(steps)} tokens are generated "
        f"(largest difference of the logits: {difference:.0e}). The last tokens take {last * 1e3:.2f} ms each with the "
        f"cache and {last_without * 1e3:.2f} ms without it, {gain:.1f} times as long. From the first to the last "
        f"tokens, the time per step grows by a factor of {last / first:.1f} with the cache and "
        f"{last_without / first_without:.1f} without it. The cache needs {held:,} bytes per token, "
        f"{held * length / 1024:,.0f} KiB for this sequence."
    )
    shown = tuple((step.kept, step.new) for step in steps[:SHOWN])
    parts: tuple[Part, ...] = (
        Cache("Computed and cached keys and values of each step", tuple(pieces[: sum(shown[-1])]), shown),
        _table(steps, held),
        Curves("Time per token", _lines(steps), "context length (tokens)", "milliseconds"),
    )
    caveat = (
        "Times hold for this machine and a small model, where much of a step is not arithmetic. Even with a cache each "
        "query attends to all keys, so the time per step grows slowly, and the cache grows with every token: with long "
        "contexts or large batches it can need more memory than the weights of the model."
    )
    numbers = {
        "same": equal,
        "difference": difference,
        "bytes_per_token": held,
        "times_as_long": gain,
        "steps": [step._asdict() for step in steps],
    }
    return Finding("cache", QUESTION, parts, verdict, equal and gain > 1, caveat, numbers, seed)


def ends(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the first and the last eighth; the first step (the prefill) does not count.

    >>> ends([9, 1, 1, 1, 1, 1, 1, 1, 3])
    (1.0, 3.0)
    """
    eighth = max((len(seconds) - 1) // 8, 1)
    return float(np.median(seconds[1 : 1 + eighth])), float(np.median(seconds[-eighth:]))


def _table(steps: Sequence["Step"], held: int) -> Table:
    count = len(steps)
    rows = []
    for index in sorted({1, count // 4, count // 2, count - 1}):
        step = steps[index]
        length = step.kept + step.new
        work = f"{step.work / 1e6:,.2f}", f"{step.work_without / 1e6:,.2f}"
        times = f"{step.seconds * 1e3:.2f}", f"{step.seconds_without * 1e3:.2f}"
        rows.append((f"{length:,}", *times, *work, f"{held * length / 1024:,.0f}"))
    columns = ("context", "ms", "without", "million products", "without", "cache (KiB)")
    return Table(columns, tuple(rows), "Cost of one more token, with and without a KV cache")


def _lines(steps: Sequence["Step"]) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    """Return the time curves, smoothed by medians over neighbouring steps."""
    width = max(len(steps) // 12, 1)
    bins = [steps[start : start + width] for start in range(1, len(steps), width)]
    centres = [float(np.mean([step.kept for step in group])) for group in bins]
    curves = {
        "with a KV cache": [float(np.median([step.seconds for step in group])) * 1e3 for group in bins],
        "without": [float(np.median([step.seconds_without for step in group])) * 1e3 for group in bins],
    }
    return tuple((name, tuple(zip(centres, times, strict=True))) for name, times in curves.items())
