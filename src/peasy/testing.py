"""Assertions for tests of attention code: `assert_attention` compares a function or module with the formula."""

from peasy.verification.implementation.examine import examine
from peasy.verification.verdict import Diagnosis


def assert_attention(
    target: object, *, call: str | None = None, seed: int = 0, allow: tuple[str, ...] = (), not_compared: bool = False
) -> Diagnosis:
    """Assert that a function, a class or a module computes attention; return the diagnosis.

    Fails if it is wrong, with the mistake, its line and the fix; or if it could not be compared, unless `not_compared`.
    Mistakes named in `allow` are accepted.

    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    ...     powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    ...     return powers / powers.sum(axis=-1, keepdims=True) @ v
    >>> assert_attention(attention).verdict
    'equal'

    Args:
        target: A function, an nn.Module, or a class that can be created with small sizes.
        call: How to call it, if that is not found: an expression with q, k, v, x, source and mask.
        seed: Seed of the inputs and parameters.
        allow: Names of mistakes that are meant.
        not_compared: Accept code that could not be compared.
    """
    diagnosis = examine(target, call=call, seed=seed)
    wrong = [
        finding for finding in diagnosis.findings if finding.name in diagnosis.mistakes and finding.name not in allow
    ]
    if wrong:
        lines = [
            f"{one.name} ({f'line {one.line}: {one.code}' if one.line else 'no line'}). Fix: {one.fix}" for one in wrong
        ]
        raise AssertionError(f"{diagnosis.name} is wrong: " + "; ".join(lines))
    if diagnosis.passed is None and not not_compared:
        raise AssertionError(f"{diagnosis.name} was not compared with the formula: {' '.join(diagnosis.unknown)}")
    return diagnosis
