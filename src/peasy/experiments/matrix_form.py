"""`matrix-form`: attention token by token, row by row, as matrix products and as a fused kernel: equality and time."""

import math
import time
from collections.abc import Callable

import numpy as np

from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status, make_result, table
from peasy.experiments.statistics import outcome_of
from peasy.extras import require_extra
from peasy.formula import attend

_TOLERANCE = 1e-5
_MIN_SECONDS = 0.05
"""Minimum total time measured, in seconds."""


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, tokens: int = 128, width: int = 64, repeats: int = 5
) -> ExperimentResult:
    """Compute the same attention in four ways; the reference is the formula in float64."""
    inputs = np.random.default_rng(seed).standard_normal((3, tokens, width)).astype(np.float32)
    methods: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
        "token by token": _by_token,
        "row by row": by_row,
        "whole matrices": lambda query, key, value: attend(query, key, value).context,
        "fused kernel": _fused,
    }
    reference = attend(*inputs.astype(np.float64)).context
    results = {}
    for name, method in methods.items():
        on_status(f"{name} ...")
        times: list[float] = []
        while len(times) < repeats or sum(times) < _MIN_SECONDS:  # short runs are repeated more often
            start = time.perf_counter()
            context = method(*inputs)
            times.append(time.perf_counter() - start)
        results[name] = {"error": float(np.abs(context - reference).max()), "seconds": min(times)}
    return _conclude(results, tokens, width, seed)


def _conclude(results: dict[str, dict[str, float]], tokens: int, width: int, seed: int) -> ExperimentResult:
    """Holds if all results are equal and the matrix form is faster."""
    slowest = results["token by token"]["seconds"]
    difference = max(result["error"] for result in results.values())
    gain, equal = slowest / results["whole matrices"]["seconds"], difference <= _TOLERANCE
    verdict = (
        f"All methods give {'the same numbers' if equal else 'NOT the same numbers'} (largest difference "
        f"{difference:.0e}); for {tokens} tokens the matrix form is {gain:.0f} times as fast as computing token by "
        "token."
    )
    measured = table(
        f"{tokens} tokens, d_k = {width}, float32",
        [("method", ""), ("milliseconds", ".3f"), ("largest difference", ".1e"), ("speed-up", ".0f")],
        ((name, by["seconds"] * 1e3, by["error"], slowest / by["seconds"]) for name, by in results.items()),
    )
    return make_result("matrix-form", (measured,), verdict, outcome_of(equal and gain > 1), results, seed)


def _by_token(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
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


def _fused(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Fused kernel, as used by models; no intermediate step is stored."""
    require_extra("torch")
    import torch

    from peasy.nn.attention_backends import FUSED
    from peasy.nn.capture import AttentionInputs
    from peasy.nn.mask import AttentionMask

    q, k, v = (torch.from_numpy(array)[None, None] for array in (query, key, value))
    return FUSED.run(AttentionInputs(q, k, v, AttentionMask(), key.shape[1] ** -0.5))[0, 0].numpy()
