"""Attention rollout: product of the head-averaged weights of all layers, each mixed half with the identity."""

import numpy as np

from peasy.errors import InvalidInput
from peasy.looking.record import Look

CAVEAT = (
    "Rollout multiplies weights as if heads only copied: it ignores values, norms and feed-forward layers. "
    "It shows where information could have flowed, not where it did."
)


def roll_out(look: Look, stack: str) -> np.ndarray:
    """Return the rollout `[query, key]`: the share of each input token in each final vector; rows sum to 1."""
    captured = sorted(p for p in look.of("weights") if p.stack == stack and p.part == "attention")
    expected = [info.place for info in look.parts if info.place.stack == stack and info.place.part == "attention"]
    if captured != expected or not expected:
        raise InvalidInput("Rollout needs the weights of every layer.", hint="Leave out layers= and heads=.")
    count = len(look.axes(captured[0])[0])
    product = np.eye(count, dtype=np.float64)
    for path in captured:
        capture = look.of("weights")[path]
        info = look.part(path)
        if capture.array.shape[1] != count or info is None or len(capture.heads) != info.heads:
            raise InvalidInput("Rollout needs all rows and heads.", hint="Leave out rows= and heads=.")
        mean = capture.array.astype(np.float64).mean(axis=0)
        product = (0.5 * mean + 0.5 * np.eye(count)) @ product
    return (product / product.sum(axis=1, keepdims=True)).astype(np.float32)
