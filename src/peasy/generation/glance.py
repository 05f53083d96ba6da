"""Top-k attention of the newest token: the keys with the largest weights, per layer and head, during decoding."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from peasy.errors import InvalidInput
from peasy.models.config import RecurrentTranslatorConfig
from peasy.models.protocol import Model
from peasy.nn.part import check
from peasy.nn.tap import Seen, Tap


@dataclass(frozen=True)
class Watch:
    """Which attention to report with each token: layers and heads (None = all), and `top_k` keys per head."""

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    keys: int = 8

    def __post_init__(self) -> None:
        check(self, keys=1)


class Looked(NamedTuple):
    """Top attention weights of one head: `keys` are (position in the sequence or source, weight), largest first."""

    part: str
    layer: int
    head: int
    keys: tuple[tuple[int, float], ...]


def check_watch(watch: Watch, model: Model) -> None:
    """Raise if the model does not have these layers or heads."""
    layers, heads = _sizes(model.config)
    for what, indices, count in (("layer", watch.layers, layers), ("head", watch.heads, heads)):
        for index in indices or ():
            if not 0 <= index < count:
                hint = f"Choose from 0 to {count - 1}." if count else "This model has no attention."
                raise InvalidInput(f"The decoder has no {what} {index}.", hint=hint)


def _sizes(config: Any) -> tuple[int, int]:
    """Return the number of layers and heads of the decoder."""
    if isinstance(config, RecurrentTranslatorConfig):
        return 1, 1
    stack = getattr(config, "stack", None) or getattr(config, "decoder", None)
    return (0, 0) if stack is None else (stack.layers, stack.attention.heads)


class Glance:
    """Tap that collects the top attention weights of a sequence's newest token, one pass at a time."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self._seen = watch, list[Seen]()
        self.tap = Tap(self._seen.append, layers=watch.layers, heads=watch.heads, rows=[-1], stacks=["decoder"])

    def fork(self) -> "Glance":
        """Return a copy with the same collected weights."""
        other = Glance(self.watch)
        other._seen.extend(self._seen)
        return other

    def take(self, length: int) -> tuple[Looked, ...]:
        """Return and clear the weights of the last pass, which ended at `length` tokens."""
        heads = tuple(head for activation in self._seen for head in self._tell(activation, length))
        self._seen.clear()
        return heads

    def _tell(self, seen: Seen, length: int) -> list[Looked]:
        weights = seen.array[0, :, -1]
        is_self_attention = seen.place.part == "attention"
        first = length - weights.shape[-1] if is_self_attention else 0  # a sliding window has evicted earlier keys
        top = weights.topk(min(self.watch.keys, weights.shape[-1]))
        return [
            Looked(seen.place.part, seen.place.layer, head, _pairs(positions, values, first))
            for head, positions, values in zip(seen.heads or (), top.indices.tolist(), top.values.tolist(), strict=True)
        ]


def _pairs(places: list[int], weights: list[float], first: int) -> tuple[tuple[int, float], ...]:
    return tuple((first + position, weight) for position, weight in zip(places, weights, strict=True) if weight > 0)
