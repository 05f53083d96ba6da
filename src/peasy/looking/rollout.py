"""Attention rollout: weights of all layers multiplied, half of each layer being the stream that passes it by."""

import numpy as np

from peasy.errors import InvalidInput
from peasy.looking.record import Look

CAVEAT = (
    "Rollout multiplies weights as if heads only copied: it ignores values, norms and feed-forwards. "
    "It is a picture of where information could have gone, not of where it went."
)


def roll_out(look: Look, stack: str) -> np.ndarray:
    """How much of each input token could have reached each last vector, `[query, key]`; rows add up to 1."""
    places = sorted(p for p in look.of("weights") if p.stack == stack and p.part == "attention")
    every = [part.place for part in look.parts if part.place.stack == stack and part.place.part == "attention"]
    if places != every or not every:
        raise InvalidInput("Rollout needs the weights of every layer.", hint="Look without layers= and heads=.")
    count = len(look.axes(places[0])[0])
    found = np.eye(count, dtype=np.float64)
    for place in places:
        capture = look.of("weights")[place]
        part = look.part(place)
        if capture.array.shape[1] != count or part is None or len(capture.heads) != part.heads:
            raise InvalidInput("Rollout needs all rows and heads.", hint="Look without rows= and heads=.")
        mean = capture.array.astype(np.float64).mean(axis=0)
        found = (0.5 * mean + 0.5 * np.eye(count)) @ found
    return (found / found.sum(axis=1, keepdims=True)).astype(np.float32)
