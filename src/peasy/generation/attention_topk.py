"""Top-k attention of the newest token: the keys with the largest weights, per layer and head, during decoding."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from peasy.errors import InvalidInput
from peasy.models.config import RecurrentTranslatorConfig
from peasy.models.protocol import Model
from peasy.nn.config import check_minimums
from peasy.nn.tap import Activation, Tap


@dataclass(frozen=True)
class AttentionQuery:
    """Which attention to report with each token: layers and heads (None = all), and `top_k` keys per head."""

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    top_k: int = 8

    def __post_init__(self) -> None:
        check_minimums(self, top_k=1)


class HeadTopK(NamedTuple):
    """Top attention weights of one head: `keys` are (position in the sequence or source, weight), largest first."""

    part: str
    layer: int
    head: int
    keys: tuple[tuple[int, float], ...]


def check_attention_query(query: AttentionQuery, model: Model) -> None:
    """Raise if the model does not have these layers or heads."""
    layers, heads = _decoder_shape(model.config)
    for what, indices, count in (("layer", query.layers, layers), ("head", query.heads, heads)):
        for index in indices or ():
            if not 0 <= index < count:
                hint = f"Choose from 0 to {count - 1}." if count else "This model has no attention."
                raise InvalidInput(f"The decoder has no {what} {index}.", hint=hint)


def _decoder_shape(config: Any) -> tuple[int, int]:
    """Return the number of layers and heads of the decoder."""
    if isinstance(config, RecurrentTranslatorConfig):
        return 1, 1
    stack = getattr(config, "stack", None) or getattr(config, "decoder", None)
    return (0, 0) if stack is None else (stack.num_layers, stack.attention.num_heads)


class AttentionTopK:
    """Tap that collects the top attention weights of a sequence's newest token, one pass at a time."""

    def __init__(self, query: AttentionQuery) -> None:
        self.query, self._activations = query, list[Activation]()
        self.tap = Tap(self._activations.append, layers=query.layers, heads=query.heads, rows=[-1], stacks=["decoder"])

    def fork(self) -> "AttentionTopK":
        """Return a copy with the same collected weights."""
        other = AttentionTopK(self.query)
        other._activations.extend(self._activations)
        return other

    def pop(self, length: int) -> tuple[HeadTopK, ...]:
        """Return and clear the weights of the last pass, which ended at `length` tokens."""
        heads = tuple(head for activation in self._activations for head in self._top_keys(activation, length))
        self._activations.clear()
        return heads

    def _top_keys(self, activation: Activation, length: int) -> list[HeadTopK]:
        weights = activation.array[0, :, -1]
        is_self_attention = activation.path.part == "attention"
        first = length - weights.shape[-1] if is_self_attention else 0  # a sliding window has evicted earlier keys
        top = weights.topk(min(self.query.top_k, weights.shape[-1]))
        return [
            HeadTopK(activation.path.part, activation.path.layer, head, _pairs(positions, values, first))
            for head, positions, values in zip(
                activation.heads or (), top.indices.tolist(), top.values.tolist(), strict=True
            )
        ]


def _pairs(positions: list[int], weights: list[float], first: int) -> tuple[tuple[int, float], ...]:
    return tuple((first + position, weight) for position, weight in zip(positions, weights, strict=True) if weight > 0)
