"""`cache`: one more token with keys and values remembered, or with everything read again."""

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

QUESTION = "Keys and values of earlier tokens do not change. What is saved by remembering them, and what does it cost?"
PROMPT = "The pizza came out of the oven and it"
ALLOWED = 1e-4
"""Scores of one model by two roads of float32 differ by less."""
SHOWN = 8


def run(seed: int = 0, hear: Hear = unheard, model: Subject = "stories", tokens: int = 240, rounds: int = 3) -> Finding:
    """Write a text both ways, then measure each of its steps both ways, some times: the shortest time counts."""
    need("torch")
    from peasy.generation.saving import compare

    loaded = open_subject(model)
    prompt = loaded.prompt(PROMPT)
    context = getattr(loaded.model.config, "context", None)
    count = tokens if context is None else min(tokens, context - len(prompt))
    hear(f"writing {count} tokens with a cache ...")
    written = write(loaded, prompt, count, seed, cached=True)
    hear("writing them without ...")
    same = written == write(loaded, prompt, count, seed, cached=False)
    measured = []
    for number in range(rounds):
        hear(f"measuring each step, round {number + 1} of {rounds} ...")
        measured.append(list(compare(loaded.model, prompt, written)))
    pieces = [loaded.need_tokenizer().piece(id) for id in (*prompt, *written)]
    return conclude(fastest(measured), same, held(loaded, prompt), pieces, seed)


def write(loaded: "LoadedModel", prompt: Sequence[int], count: int, seed: int, *, cached: bool) -> list[int]:
    """So many tokens, drawn by chance; the end is forbidden."""
    from peasy.generation.decode import Sampling, generate

    bias = dict.fromkeys(loaded.model.config.special.end, -math.inf)
    sampling = Sampling(max_tokens=count, temperature=0.8, seed=seed, logit_bias=bias)
    return generate(loaded.model, [list(prompt)], sampling, cached=cached)[0]


def held(loaded: "LoadedModel", prompt: Sequence[int]) -> int:
    """How many bytes the cache keeps of one token, read off a cache."""
    import torch

    memory = loaded.model.start()
    with torch.inference_mode():
        loaded.model.read([list(prompt)], [memory])
    kept = [array for layer in memory.layers for array in (layer.keys, layer.values)]  # type: ignore[attr-defined]
    return sum(array.shape[1] * array.shape[3] * array.element_size() for array in kept)


def fastest(rounds: Sequence[Sequence["Step"]]) -> list["Step"]:
    """The shortest time of every step: what is longer was somebody else's. Differences are the largest."""
    return [
        each[0]._replace(
            seconds=min(step.seconds for step in each),
            seconds_without=min(step.seconds_without for step in each),
            apart=max(step.apart for step in each),
        )
        for each in zip(*rounds, strict=True)
    ]


def conclude(steps: Sequence["Step"], same: bool, held: int, pieces: Sequence[str], seed: int) -> Finding:
    """The tokens must be the same, and the last ones cheaper with the cache than without."""
    differs = max(step.apart for step in steps)
    equal = same and differs <= ALLOWED
    first, last = ends([step.seconds for step in steps])
    first_without, last_without = ends([step.seconds_without for step in steps])
    gain, length = last_without / last, steps[-1].kept + steps[-1].new
    verdict = (
        f"With and without a cache {'the same' if equal else 'NOT the same'} {len(steps)} tokens are written (largest "
        f"difference of a score {differs:.0e}). The last ones take {last * 1e3:.2f} ms each with it and "
        f"{last_without * 1e3:.2f} without, {gain:.1f} times as long; since the first ones a step has become "
        f"{last / first:.1f} times as long with the cache and {last_without / first_without:.1f} times without. It "
        f"holds {held:,} bytes a token, {held * length / 1024:,.0f} KiB for this text."
    )
    shown = tuple((step.kept, step.new) for step in steps[:SHOWN])
    parts: tuple[Part, ...] = (
        Cache("What each step computes, and what it takes from the cache", tuple(pieces[: sum(shown[-1])]), shown),
        _table(steps, held),
        Curves("One more token", _lines(steps), "tokens before it", "milliseconds"),
    )
    caveat = (
        "Times are of this machine and of a small model, where much of a step is not arithmetic at all. With a cache, "
        "too, each step looks at every key, so that it grows slowly; and the cache itself grows with every token: in "
        "large models it is the cache, not the weights, that fills the memory."
    )
    numbers = {
        "same": equal,
        "difference": differs,
        "bytes_per_token": held,
        "times_as_long": gain,
        "steps": [step._asdict() for step in steps],
    }
    return Finding("cache", QUESTION, parts, verdict, equal and gain > 1, caveat, numbers, seed)


def ends(seconds: Sequence[float]) -> tuple[float, float]:
    """The median of the first and of the last eighth; the very first step reads the prompt and does not count.

    >>> ends([9, 1, 1, 1, 1, 1, 1, 1, 3])
    (1.0, 3.0)
    """
    some = max((len(seconds) - 1) // 8, 1)
    return float(np.median(seconds[1 : 1 + some])), float(np.median(seconds[-some:]))


def _table(steps: Sequence["Step"], held: int) -> Table:
    count = len(steps)
    rows = []
    for place in sorted({1, count // 4, count // 2, count - 1}):
        step = steps[place]
        length = step.kept + step.new
        work = f"{step.work / 1e6:,.2f}", f"{step.work_without / 1e6:,.2f}"
        times = f"{step.seconds * 1e3:.2f}", f"{step.seconds_without * 1e3:.2f}"
        rows.append((f"{length:,}", *times, *work, f"{held * length / 1024:,.0f}"))
    columns = ("tokens", "ms", "without", "million products", "without", "KiB held")
    return Table(columns, tuple(rows), "The cost of one more token, with a cache and without")


def _lines(steps: Sequence["Step"]) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    """Medians over some steps, so that a line is a line."""
    some = max(len(steps) // 12, 1)
    cut = [steps[at : at + some] for at in range(1, len(steps), some)]
    middles = [float(np.mean([step.kept for step in each])) for each in cut]
    sides = {
        "with a cache": [float(np.median([step.seconds for step in each])) * 1e3 for each in cut],
        "without": [float(np.median([step.seconds_without for step in each])) * 1e3 for each in cut],
    }
    return tuple((name, tuple(zip(middles, times, strict=True))) for name, times in sides.items())
