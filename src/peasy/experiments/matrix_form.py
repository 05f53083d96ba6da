"""`matrix-form`: attention token by token, row by row, as matrix products and as a fused kernel: equality and time."""

import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, Outcome
from peasy.extras import require_extra
from peasy.formula import attend


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, tokens: int = 128, width: int = 64, repeats: int = 8
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
    errors, times = dict.fromkeys(methods, 0.0), {name: list[float]() for name in methods}
    for number in range(repeats):
        on_status(f"repeat {number + 1} of {repeats} ...")
        for name, method in methods.items():
            start = time.perf_counter()
            context = method(*inputs)
            times[name].append(time.perf_counter() - start)
            errors[name] = max(errors[name], float(np.abs(context - reference).max()))
    # A sum of n terms, each rounded, differs from the exact one by up to n times the precision.
    tolerance = tokens * float(np.finfo(np.float32).eps) * float(np.abs(inputs[2]).max())
    return conclude(errors, times, tolerance, tokens, width, seed)


def conclude(
    errors: Mapping[str, float], times: Mapping[str, Sequence[float]], tolerance: float, tokens: int, width: int,
    seed: int,
) -> ExperimentResult:  # fmt: skip
    """All results must be equal up to rounding, and the matrix form faster, by a paired test over the repeats."""
    difference = max(errors.values())
    medians = {name: float(np.median(seconds)) for name, seconds in times.items()}
    gain = medians["token by token"] / medians["whole matrices"]
    comparisons = (
        Comparison("the same numbers", "largest difference", difference, "rounding", tolerance, lower=True, exact=True),
        Comparison.of_pairs(
            "the matrix form is faster", "seconds", times["whole matrices"], "token by token", times["token by token"],
            lower=True,
        ),
    )  # fmt: skip
    equal = comparisons[0].outcome is Outcome.SUPPORTED
    verdict = (
        f"All methods give {'the same numbers' if equal else 'NOT the same numbers'} (largest difference "
        f"{difference:.0e}, rounding allows {tolerance:.0e}); for {tokens} tokens the matrix form is {gain:.0f} times "
        "as fast as computing token by token."
    )
    measured = table(
        f"{tokens} tokens, d_k = {width}, float32",
        [("method", ""), ("milliseconds", ".3f"), ("largest difference", ".1e"), ("speed-up", ".1f")],
        ((name, medians[name] * 1e3, errors[name], medians["token by token"] / medians[name]) for name in times),
    )
    numbers = {name: {"error": errors[name], "seconds": medians[name]} for name in times}
    return make_result("matrix-form", (measured,), verdict, comparisons, numbers, seed)


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
