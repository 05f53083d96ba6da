"""Tolerances per dtype for comparing two computations of the same result."""

import torch
from torch import Tensor

from peasy.errors import InvalidInput

TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
"""Relative to the largest value. In a deep model, different summation orders differ by a few hundred roundings."""

INT8 = 0.10
"""Tolerance for int8 weights: RMS error over RMS of the logits. Random models, whose logits are small sums of large
terms, had up to 0.04."""


def tolerance_of(dtype: torch.dtype) -> float:
    """Return the relative tolerance for results of this dtype."""
    if dtype not in TOLERANCE:
        raise InvalidInput(f"There is no tolerance for {dtype}.", hint="Load the model in float32 or bfloat16.")
    return TOLERANCE[dtype]


def apart(found: Tensor, right: Tensor) -> Tensor:
    """Return the elementwise error relative to the largest expected value (at least 1); NaN counts as infinite.

    >>> apart(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0])).tolist()
    [0.0, 0.5]
    """
    found, right = found.detach().double(), right.detach().double()
    size = right[right.isfinite()].abs().max() if bool(right.isfinite().any()) else right.new_ones(())
    difference = torch.where(found == right, 0.0, (found - right).abs() / size.clamp(min=1.0))
    return difference.nan_to_num(nan=torch.inf)
