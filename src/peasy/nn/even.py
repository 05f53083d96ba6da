"""Elementwise functions whose bits do not depend on where in an array a number stands.

Torch computes most of an array with vectors and what is left at its end one by one, by another routine; and it cuts
long arrays into one piece for each thread. An exponential at such an end may differ in its last bit.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

WHOLE = 64
"""No processor computes more numbers at a time: an array of whole such steps has no odd end."""

LONGEST = 32_768
"""Torch shares longer arrays between its threads."""


def evenly(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function(x)` for a function of single numbers, each computed alike wherever it stands.

    >>> x = torch.randn(3, 21)
    >>> torch.equal(evenly(torch.tanh, x)[1:], evenly(torch.tanh, x[1:]))
    True
    """
    if torch.compiler.is_compiling():  # an exported graph has no threads, and symbols for sizes
        return function(x)
    count = x.numel()
    if count % WHOLE == 0 and count <= LONGEST and x.is_contiguous():
        return function(x)
    flat = functional.pad(x.reshape(-1), (0, -count % WHOLE))
    return torch.cat([function(piece) for piece in flat.split(LONGEST)])[:count].view(x.shape)
