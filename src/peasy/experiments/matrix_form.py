"""`matrix-form`: attention token by token, row by row, as matrix products and as a fused kernel: equality and time."""

import math
import time
from collections.abc import Callable

import numpy as np

from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status
from peasy.extras import require_extra
from peasy.formula import attend
from peasy.views.document import DocumentPart, Table

QUESTION = "Q, K and V are packed into matrices for efficiency. Is the result the same, and how much faster is it?"
TOLERANCE = 1e-5
MIN_SECONDS = 0.05
"""Minimum total time measured, in seconds."""


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, tokens: int = 128, width: int = 64, repeats: int = 5
) -> ExperimentResult:
    """Compute the same attention in four ways; the reference is the formula in float64."""
    query, key, value = np.random.default_rng(seed).standard_normal((3, tokens, width)).astype(np.float32)
    methods: dict[str, Callable[[], np.ndarray]] = {
        "token by token": lambda: by_token(query, key, value),
        "row by row": lambda: by_row(query, key, value),
        "whole matrices": lambda: attend(query, key, value).context,
        "fused kernel": lambda: fused(query, key, value),
    }
    reference = attend(*(array.astype(np.float64) for array in (query, key, value))).context
    results = {}
    for name, method in methods.items():
        on_status(f"{name} ...")
        results[name] = measure_method(method, reference, repeats)
    return conclude(results, tokens, width, seed)


def measure_method(method: Callable[[], np.ndarray], reference: np.ndarray, repeats: int) -> tuple[float, float]:
    """Return the largest difference from the reference, and the shortest time; short runs are repeated more often."""
    times: list[float] = []
    while len(times) < repeats or sum(times) < MIN_SECONDS:
        start = time.perf_counter()
        context = method()
        times.append(time.perf_counter() - start)
    return float(np.abs(context - reference).max()), min(times)


def conclude(results: dict[str, tuple[float, float]], tokens: int, width: int, seed: int) -> ExperimentResult:
    """Holds if all results are equal and the matrix form is faster."""
    slowest, matrices = results["token by token"][1], results["whole matrices"][1]
    difference, gain = max(error for error, _ in results.values()), slowest / matrices
    equal = difference <= TOLERANCE
    numbers = "the same numbers" if equal else "NOT the same numbers"
    verdict = (
        f"All methods give {numbers} (largest difference {difference:.0e}); for {tokens} tokens the matrix form is "
        f"{gain:.0f} times as fast as computing token by token."
    )
    columns = ("method", "milliseconds", "largest difference", "speed-up")
    rows = tuple(
        (name, f"{seconds * 1e3:.3f}", f"{error:.1e}", f"{slowest / seconds:.0f}")
        for name, (error, seconds) in results.items()
    )
    parts: tuple[DocumentPart, ...] = (Table(columns, rows, f"{tokens} tokens, d_k = {width}, float32"),)
    caveat = "Times hold for this machine and Python loops; all methods need the same number of multiplications."
    measured = {name: {"error": error, "seconds": seconds} for name, (error, seconds) in results.items()}
    return ExperimentResult("matrix-form", QUESTION, parts, verdict, equal and gain > 1, caveat, measured, seed)


def by_token(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """One query-key pair at a time, as by hand."""
    scale, contexts = 1 / math.sqrt(key.shape[1]), []
    for q in query:
        exponentials = [math.exp(float(q @ k) * scale) for k in key]
        denominator = sum(exponentials)
        contexts.append(sum((power / denominator) * v for power, v in zip(exponentials, value, strict=True)))
    return np.stack(contexts)


def by_row(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """One query at a time, by the formula."""
    return np.concatenate([attend(row[None], key, value).context for row in query])


def fused(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Fused kernel, as used by models; no intermediate step is stored."""
    require_extra("torch")
    import torch

    from peasy.nn.attention import attend_fused
    from peasy.nn.capture import AttentionInputs
    from peasy.nn.mask import AttentionMask

    q, k, v = (torch.from_numpy(array)[None, None] for array in (query, key, value))
    return attend_fused(AttentionInputs(q, k, v, AttentionMask(), key.shape[1] ** -0.5))[0, 0].numpy()
