"""A-priori rounding-error bound of attention: from the dtype, the width and the lengths, so it holds on any CPU."""

import torch
from torch import Tensor


def attention_error_bound(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Largest possible first-order error of each context entry when every operation rounds to `dtype`.

    With unit roundoff u, width d and n keys: a score of d products and sums, scaled, is off by at most
    (d + 6) u S, where S is the largest scaled sum of absolute products of its row; exp turns this into a relative
    error, adding 4u of its own; it enters the numerator and the denominator (factor 2). Sums of n terms, once
    rescaled by an online softmax, add 2nu to the denominator and 2nu to the context, the division and the result 2u.
    All of this is relative to the weighted sum of the absolute values. No order of summation exceeds it.
    """
    query, key, value = query.double(), key.double(), value.double()
    absolute_scores = (scale * query.abs() @ key.abs().mT).masked_fill(~mask, 0.0).amax(dim=-1, keepdim=True)
    weights = (scale * query @ key.mT).masked_fill(~mask, -torch.inf).softmax(dim=-1)
    roundoff = torch.finfo(dtype).eps / 2
    factor = 2 * ((query.shape[-1] + 6) * absolute_scores + 4) + 4 * key.shape[-2] + 2
    return roundoff * factor * (weights @ value.abs())


def causal_mask(n_query: int, n_key: int, causal: bool = True) -> Tensor:
    """Boolean mask, True = may attend; all True without `causal`."""
    whole = torch.ones(n_query, n_key, dtype=torch.bool)
    return whole.tril(n_key - n_query) if causal else whole
