"""Capture spec: which steps, layers, heads and rows to capture; checked against the model before it runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from peasy.errors import InvalidInput, did_you_mean
from peasy.looking.label import Part
from peasy.looking.part import Widths
from peasy.nn.tap import FORMULA_STEPS, HEAD_STEPS, KNOWN_STEPS, STREAM_STEPS


@dataclass(frozen=True)
class Question:
    """What to capture; None = all. `rows`: query positions, -1 is the last; `parts` and `stacks` as in `Tap`."""

    steps: tuple[str, ...] = ("weights",)
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    parts: tuple[str, ...] | None = None
    stacks: tuple[str, ...] | None = None

    def check(self, model: str, parts: tuple[Part, ...], widths: Widths) -> None:
        """Raise if the model does not have these steps, layers or heads."""
        for step in self.steps:
            if step not in KNOWN_STEPS:
                hint = did_you_mean(step, KNOWN_STEPS) or f"Choose from {', '.join(KNOWN_STEPS)}."
                raise InvalidInput(f'There is no step "{step}".', hint=hint)
        if not self.steps:
            raise InvalidInput("No step is given.", hint=f"Choose from {', '.join(KNOWN_STEPS)}.")
        if set(self.steps) & set(HEAD_STEPS) and not parts:
            hint = "Only its residual stream can be captured: steps=['residual'] or ['final']."
            raise InvalidInput(f"{model} has no attention.", hint=hint)
        num_layers = max(widths.layers.values(), default=0) + bool(set(self.steps) & set(STREAM_STEPS))
        self._within("layer", self.layers, num_layers, negative=False)
        if parts:
            self._within("head", self.heads, max(part.heads for part in parts), negative=False)

    def _within(self, what: str, asked: Iterable[int] | None, count: int, negative: bool) -> None:
        for index in asked or ():
            if not (-count if negative else 0) <= index < count:
                raise InvalidInput(f"There is no {what} {index}.", hint=f"Choose from 0 to {count - 1}.")

    def wants(self, part: Part) -> bool:
        """True if this attention is to be captured."""
        filters = ((part.place.layer, self.layers), (part.place.part, self.parts), (part.place.stack, self.stacks))
        return all(allowed is None or value in allowed for value, allowed in filters)

    def numbers(self, parts: tuple[Part, ...], widths: Widths, lengths: Mapping[str, int]) -> int:
        """Return the number of values captured, for a sequence with these lengths in each stack."""
        in_attention = sum(self._inside(info, widths, lengths) for info in parts if self.wants(info))
        return in_attention + sum(self._outside(stack, widths, length) for stack, length in lengths.items())

    def _inside(self, part: Part, widths: Widths, lengths: Mapping[str, int]) -> int:
        queries = lengths[part.place.stack]
        keys = lengths["encoder"] if part.cross else queries
        rows = queries if self.rows is None else len(self.rows)
        heads = part.heads if self.heads is None else len([head for head in self.heads if head < part.heads])
        sizes = dict.fromkeys(FORMULA_STEPS, rows * keys) | dict.fromkeys(("query", "context"), rows * widths.head)
        sizes |= dict.fromkeys(("key", "value"), keys * widths.head)
        return heads * sum(sizes[step] for step in self.steps if step in sizes)

    def _outside(self, stack: str, widths: Widths, length: int) -> int:
        if self.stacks is not None and stack not in self.stacks:
            return 0
        count = widths.layers.get(stack, 0)
        layers = count if self.layers is None else len([layer for layer in self.layers if layer < count])
        rows = length if self.rows is None else len(self.rows)
        per_layer = {"residual": widths.stream, "normed": 2 * widths.stream, "output": 2 * widths.stream}
        per_layer |= {"activation": widths.inner}
        once = {"final": widths.stream, "logits": widths.scores if stack == self._writing(widths) else 0}
        return rows * sum((layers + 1) * per_layer.get(step, 0) + once.get(step, 0) for step in self.steps)

    def _writing(self, widths: Widths) -> str:
        return "decoder" if "decoder" in widths.layers else "encoder"
