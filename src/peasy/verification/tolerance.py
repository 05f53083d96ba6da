"""Tolerances per dtype for comparing two computations of the same result."""

import torch
from torch import Tensor

from peasy.errors import InvalidInput

TOLERANCES = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
"""Relative to the largest value. In a deep model, different summation orders differ by a few hundred roundings."""

INT8_TOLERANCE = 0.10
"""Tolerance for int8 weights: RMS error over RMS of the logits. Random models, whose logits are small sums of large
terms, had up to 0.04."""


def tolerance_for(dtype: torch.dtype) -> float:
    """Return the relative tolerance for results of this dtype."""
    if dtype not in TOLERANCES:
        raise InvalidInput(f"There is no tolerance for {dtype}.", hint="Load the model in float32 or bfloat16.")
    return TOLERANCES[dtype]


def relative_error(actual: Tensor, expected: Tensor) -> Tensor:
    """Return the elementwise error relative to the largest expected value (at least 1); NaN counts as infinite.

    >>> relative_error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0])).tolist()
    [0.0, 0.5]
    """
    actual, expected = actual.detach().double(), expected.detach().double()
    size = expected[expected.isfinite()].abs().max() if bool(expected.isfinite().any()) else expected.new_ones(())
    difference = torch.where(actual == expected, 0.0, (actual - expected).abs() / size.clamp(min=1.0))
    return difference.nan_to_num(nan=torch.inf)
