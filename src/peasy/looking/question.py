"""What is asked of a look: which steps, of which layers, heads and rows; held against the model before it runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from peasy.errors import InvalidInput, did_you_mean
from peasy.looking.label import Part
from peasy.looking.part import Widths
from peasy.nn.tap import FORMULA_STEPS, HEAD_STEPS, KNOWN_STEPS, STREAM_STEPS


@dataclass(frozen=True)
class Question:
    """None = all of them. `rows` are places of queries, -1 the last; `parts` and `stacks` as the tap names them."""

    steps: tuple[str, ...] = ("weights",)
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    parts: tuple[str, ...] | None = None
    stacks: tuple[str, ...] | None = None

    def check(self, model: str, parts: tuple[Part, ...], widths: Widths) -> None:
        """Refuse steps, layers and heads that this model does not have."""
        for step in self.steps:
            if step not in KNOWN_STEPS:
                hint = did_you_mean(step, KNOWN_STEPS) or f"Known: {', '.join(KNOWN_STEPS)}."
                raise InvalidInput(f'There is no step "{step}" to look at.', hint=hint)
        if not self.steps:
            raise InvalidInput("No step is asked for.", hint=f"Known: {', '.join(KNOWN_STEPS)}.")
        if set(self.steps) & set(HEAD_STEPS) and not parts:
            hint = "Of this kind only the stream can be looked at: steps=['residual'] or ['final']."
            raise InvalidInput(f"{model} has no attention.", hint=hint)
        most = max(widths.layers.values(), default=0) + bool(set(self.steps) & set(STREAM_STEPS))
        self._within("layer", self.layers, most, negative=False)
        if parts:
            self._within("head", self.heads, max(part.heads for part in parts), negative=False)

    def _within(self, what: str, asked: Iterable[int] | None, count: int, negative: bool) -> None:
        for index in asked or ():
            if not (-count if negative else 0) <= index < count:
                raise InvalidInput(f"There is no {what} {index}.", hint=f"Here they go from 0 to {count - 1}.")

    def wants(self, part: Part) -> bool:
        """Is this attention asked for?"""
        asked = ((part.place.layer, self.layers), (part.place.part, self.parts), (part.place.stack, self.stacks))
        return all(wanted is None or value in wanted for value, wanted in asked)

    def numbers(self, parts: tuple[Part, ...], widths: Widths, lengths: Mapping[str, int]) -> int:
        """How many numbers will be kept of a text with so many tokens in each stack."""
        inside = sum(self._inside(part, widths, lengths) for part in parts if self.wants(part))
        return inside + sum(self._outside(stack, widths, length) for stack, length in lengths.items())

    def _inside(self, part: Part, widths: Widths, lengths: Mapping[str, int]) -> int:
        own = lengths[part.place.stack]
        keys = lengths["encoder"] if part.cross else own
        rows = own if self.rows is None else len(self.rows)
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
        each = {"residual": widths.stream, "normed": 2 * widths.stream, "output": 2 * widths.stream}
        each |= {"activation": widths.inner}
        once = {"final": widths.stream, "logits": widths.scores if stack == self._writing(widths) else 0}
        return rows * sum((layers + 1) * each.get(step, 0) + once.get(step, 0) for step in self.steps)

    def _writing(self, widths: Widths) -> str:
        return "decoder" if "decoder" in widths.layers else "encoder"
