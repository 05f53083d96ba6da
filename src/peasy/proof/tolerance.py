"""How far two roads to the same numbers may come out apart: one table for each kind of number."""

import torch
from torch import Tensor

from peasy.errors import InvalidInput

TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
"""Relative to the largest number. Two orders of sums of a deep model differ by a few hundred roundings."""

INT8 = 0.10
"""Weights in 8 bits: how large the error may be, root mean square over root mean square. Random models, whose scores
are small sums of large parts, had up to 0.04."""


def tolerance_of(dtype: torch.dtype) -> float:
    """How far apart results of numbers of this kind may be."""
    if dtype not in TOLERANCE:
        raise InvalidInput(f"There is no tolerance for {dtype}.", hint="Load the model in float32 or bfloat16.")
    return TOLERANCE[dtype]


def apart(found: Tensor, right: Tensor) -> Tensor:
    """How far each number is from the right one, relative to the largest right one; NaN is as far as can be.

    >>> apart(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0])).tolist()
    [0.0, 0.5]
    """
    found, right = found.detach().double(), right.detach().double()
    size = right[right.isfinite()].abs().max() if bool(right.isfinite().any()) else right.new_ones(())
    difference = torch.where(found == right, 0.0, (found - right).abs() / size.clamp(min=1.0))
    return difference.nan_to_num(nan=torch.inf)
