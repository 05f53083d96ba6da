"""`matrix-form`: token by token, row by row, as one matrix product, or fused: the same numbers, and the time."""

import math
import time
from collections.abc import Callable

import numpy as np

from peasy.formula import attend
from peasy.parts import need
from peasy.views.document import Part, Table
from peasy.workbench.experiments.finding import Finding, Hear, unheard

QUESTION = "Q, K and V are matrices for efficiency. Is it the same calculation, and how much is gained?"
ALLOWED = 1e-5
LEAST = 0.05
"""Seconds that are measured at least."""


def run(seed: int = 0, hear: Hear = unheard, tokens: int = 128, width: int = 64, rounds: int = 5) -> Finding:
    """The same attention by four roads; the formula's is the measure of the others."""
    query, key, value = np.random.default_rng(seed).standard_normal((3, tokens, width)).astype(np.float32)
    roads: dict[str, Callable[[], np.ndarray]] = {
        "token by token": lambda: by_token(query, key, value),
        "row by row": lambda: by_row(query, key, value),
        "whole matrices": lambda: attend(query, key, value).context,
        "fused kernel": lambda: fused(query, key, value),
    }
    right = attend(*(each.astype(np.float64) for each in (query, key, value))).context
    found = {}
    for name, road in roads.items():
        hear(f"{name} ...")
        found[name] = measure(road, right, rounds)
    return conclude(found, tokens, width, seed)


def measure(road: Callable[[], np.ndarray], right: np.ndarray, rounds: int) -> tuple[float, float]:
    """The largest difference, and the shortest time of some rounds: more of them where one is over in no time."""
    times: list[float] = []
    while len(times) < rounds or sum(times) < LEAST:
        begin = time.perf_counter()
        context = road()
        times.append(time.perf_counter() - begin)
    return float(np.abs(context - right).max()), min(times)


def conclude(found: dict[str, tuple[float, float]], tokens: int, width: int, seed: int) -> Finding:
    """The verdict: equal or not, and how many times as fast the matrices are."""
    slowest, matrices = found["token by token"][1], found["whole matrices"][1]
    differs, gain = max(error for error, _ in found.values()), slowest / matrices
    same = differs <= ALLOWED
    numbers = "the same numbers" if same else "NOT the same numbers"
    verdict = (
        f"All roads give {numbers} (largest difference {differs:.0e}); for {tokens} tokens the matrices are "
        f"{gain:.0f} times as fast as token by token."
    )
    columns = ("road", "milliseconds", "largest difference", "times as fast")
    rows = tuple(
        (name, f"{spent * 1e3:.3f}", f"{error:.1e}", f"{slowest / spent:.0f}") for name, (error, spent) in found.items()
    )
    parts: tuple[Part, ...] = (Table(columns, rows, f"{tokens} tokens, {width} wide, float32"),)
    caveat = "Times are of this machine and of Python's loops; the number of multiplications is the same on all roads."
    told = {name: {"error": error, "seconds": spent} for name, (error, spent) in found.items()}
    return Finding("matrix-form", QUESTION, parts, verdict, same and gain > 1, caveat, told, seed)


def by_token(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Each query with each key, one pair at a time, as a person would with a pencil."""
    scale, rows = 1 / math.sqrt(key.shape[1]), []
    for q in query:
        powers = [math.exp(float(q @ k) * scale) for k in key]
        total = sum(powers)
        rows.append(sum((power / total) * v for power, v in zip(powers, value, strict=True)))
    return np.stack(rows)


def by_row(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """One query at a time, through the formula."""
    return np.concatenate([attend(row[None], key, value).context for row in query])


def fused(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """All at once, without keeping any step: the kernel that models run on."""
    need("torch")
    import torch

    from peasy.nn.attention import attend_fused
    from peasy.nn.sight import Visible
    from peasy.nn.watch import Look

    q, k, v = (torch.from_numpy(each)[None, None] for each in (query, key, value))
    return attend_fused(Look(q, k, v, Visible(), key.shape[1] ** -0.5))[0, 0].numpy()
