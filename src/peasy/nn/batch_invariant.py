"""Batch-invariant wrapper of an elementwise function: the bits of a result do not depend on its position.

Torch computes most of an array with SIMD vectors and the remainder with a scalar routine, and splits long arrays
between threads. An exponential in such a remainder may differ in its last bit.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

SIMD_MULTIPLE = 64
"""At least the SIMD width of any CPU: an array whose size is a multiple of it has no remainder."""

MAX_UNTHREADED = 32_768
"""Torch splits longer arrays between threads."""


def batch_invariant(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return `function(x)` for an elementwise function, with bits that do not depend on an element's position.

    >>> x = torch.randn(3, 21)
    >>> torch.equal(batch_invariant(torch.tanh, x)[1:], batch_invariant(torch.tanh, x[1:]))
    True
    """
    if torch.compiler.is_compiling():  # an exported graph has no threads, and its sizes are symbolic
        return function(x)
    count = x.numel()
    if count % SIMD_MULTIPLE == 0 and count <= MAX_UNTHREADED and x.is_contiguous():
        return function(x)
    flat = functional.pad(x.reshape(-1), (0, -count % SIMD_MULTIPLE))
    return torch.cat([function(piece) for piece in flat.split(MAX_UNTHREADED)])[:count].view(x.shape)
