"""What the model looked at when it wrote a token: the keys with the largest weights, of the asked layers and heads."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from peasy.errors import InvalidInput
from peasy.models.config import RecurrentTranslatorConfig
from peasy.models.protocol import Model
from peasy.nn.part import check
from peasy.nn.tap import Seen, Tap


@dataclass(frozen=True)
class Watch:
    """Which attention to tell: None = all layers or heads. `keys`: so many with the largest weights, of each head."""

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    keys: int = 8

    def __post_init__(self) -> None:
        check(self, keys=1)


class Looked(NamedTuple):
    """Where one head looked: `keys` are (place of a token in the text or the source, weight), largest first."""

    part: str
    layer: int
    head: int
    keys: tuple[tuple[int, float], ...]


def check_watch(watch: Watch, model: Model) -> None:
    """Refuse layers and heads that the model does not have."""
    layers, heads = _sizes(model.config)
    for what, asked, there in (("layer", watch.layers, layers), ("head", watch.heads, heads)):
        for index in asked or ():
            if not 0 <= index < there:
                hint = f"Here they go from 0 to {there - 1}." if there else "This model has no attention."
                raise InvalidInput(f"There is no {what} {index} to watch.", hint=hint)


def _sizes(config: Any) -> tuple[int, int]:
    """How many layers and heads write."""
    if isinstance(config, RecurrentTranslatorConfig):
        return 1, 1
    stack = getattr(config, "stack", None) or getattr(config, "decoder", None)
    return (0, 0) if stack is None else (stack.layers, stack.attention.heads)


class Glance:
    """Collects what a text's newest token looked at, one pass at a time."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self._seen = watch, list[Seen]()
        self.tap = Tap(self._seen.append, layers=watch.layers, heads=watch.heads, rows=[-1], stacks=["decoder"])

    def fork(self) -> "Glance":
        """Another that has seen the same so far."""
        other = Glance(self.watch)
        other._seen.extend(self._seen)
        return other

    def take(self, length: int) -> tuple[Looked, ...]:
        """What was seen in the last pass, which ended at `length` tokens."""
        found = tuple(looked for seen in self._seen for looked in self._tell(seen, length))
        self._seen.clear()
        return found

    def _tell(self, seen: Seen, length: int) -> list[Looked]:
        weights = seen.array[0, :, -1]
        own_text = seen.place.part == "attention"
        first = length - weights.shape[-1] if own_text else 0  # a window has dropped the earlier ones
        best = weights.topk(min(self.watch.keys, weights.shape[-1]))
        return [
            Looked(seen.place.part, seen.place.layer, head, _pairs(places, values, first))
            for head, places, values in zip(seen.heads or (), best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def _pairs(places: list[int], weights: list[float], first: int) -> tuple[tuple[int, float], ...]:
    return tuple((first + place, weight) for place, weight in zip(places, weights, strict=True) if weight > 0)
