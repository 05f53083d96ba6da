"""Attention rollout: product of the head-averaged weights of all layers, each mixed half with the identity."""

import numpy as np

from peasy.errors import InvalidInput
from peasy.inspection.results import AttentionRecord

ROLLOUT_CAVEAT = (
    "Rollout multiplies weights as if heads only copied: it ignores values, norms and feed-forward layers. "
    "It shows where information could have flowed, not where it did."
)


def attention_rollout(record: AttentionRecord, stack: str) -> np.ndarray:
    """Return the rollout `[query, key]`: the share of each input token in each final vector; rows sum to 1."""
    captured = sorted(p for p in record.by_path("weights") if p.stack == stack and p.part == "attention")
    expected = [info.path for info in record.attentions if info.path.stack == stack and info.path.part == "attention"]
    if captured != expected or not expected:
        raise InvalidInput("Rollout needs the weights of every layer.", hint="Leave out layers= and heads=.")
    count = len(record.axes(captured[0])[0])
    product = np.eye(count, dtype=np.float64)
    for path in captured:
        capture = record.by_path("weights")[path]
        info = record.attention_info(path)
        if capture.array.shape[1] != count or info is None or len(capture.heads) != info.num_heads:
            raise InvalidInput("Rollout needs all rows and heads.", hint="Leave out queries= and heads=.")
        mean = capture.array.astype(np.float64).mean(axis=0)
        product = (0.5 * mean + 0.5 * np.eye(count)) @ product
    return (product / product.sum(axis=1, keepdims=True)).astype(np.float32)
