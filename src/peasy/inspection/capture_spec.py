"""Capture spec: which steps, layers, heads and rows to capture; checked against the model before it runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from peasy.errors import InvalidInput, did_you_mean
from peasy.inspection.introspect import ModelDims
from peasy.inspection.label import AttentionInfo
from peasy.nn.tap import FORMULA_STEPS, HEAD_STEPS, KNOWN_STEPS, TOKEN_STEPS


@dataclass(frozen=True)
class CaptureSpec:
    """What to capture; None = all. `rows`: query positions, -1 is the last; `parts` and `stacks` as in `Tap`."""

    steps: tuple[str, ...] = ("weights",)
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    parts: tuple[str, ...] | None = None
    stacks: tuple[str, ...] | None = None

    def check(self, model: str, attentions: tuple[AttentionInfo, ...], dims: ModelDims) -> None:
        """Raise if the model does not have these steps, layers or heads."""
        for step in self.steps:
            if step not in KNOWN_STEPS:
                hint = did_you_mean(step, KNOWN_STEPS) or f"Choose from {', '.join(KNOWN_STEPS)}."
                raise InvalidInput(f'There is no step "{step}".', hint=hint)
        if not self.steps:
            raise InvalidInput("No step is given.", hint=f"Choose from {', '.join(KNOWN_STEPS)}.")
        if set(self.steps) & set(HEAD_STEPS) and not attentions:
            hint = "Only its residual stream can be captured: steps=['residual'] or ['final']."
            raise InvalidInput(f"{model} has no attention.", hint=hint)
        num_layers = max(dims.num_layers.values(), default=0) + bool(set(self.steps) & set(TOKEN_STEPS))
        self._check_range("layer", self.layers, num_layers, negative=False)
        if attentions:
            self._check_range("head", self.heads, max(info.num_heads for info in attentions), negative=False)

    def _check_range(self, what: str, indices: Iterable[int] | None, count: int, negative: bool) -> None:
        for index in indices or ():
            if not (-count if negative else 0) <= index < count:
                raise InvalidInput(f"There is no {what} {index}.", hint=f"Choose from 0 to {count - 1}.")

    def includes(self, attention: AttentionInfo) -> bool:
        """True if this attention is to be captured."""
        filters = (
            (attention.path.layer, self.layers),
            (attention.path.part, self.parts),
            (attention.path.stack, self.stacks),
        )
        return all(allowed is None or value in allowed for value, allowed in filters)

    def count_values(self, attentions: tuple[AttentionInfo, ...], dims: ModelDims, lengths: Mapping[str, int]) -> int:
        """Return the number of values captured, for a sequence with these lengths in each stack."""
        in_attention = sum(self._attention_values(info, dims, lengths) for info in attentions if self.includes(info))
        return in_attention + sum(self._stream_values(stack, dims, length) for stack, length in lengths.items())

    def _attention_values(self, attention: AttentionInfo, dims: ModelDims, lengths: Mapping[str, int]) -> int:
        queries = lengths[attention.path.stack]
        keys = lengths["encoder"] if attention.cross else queries
        rows = queries if self.rows is None else len(self.rows)
        heads = (
            attention.num_heads
            if self.heads is None
            else len([head for head in self.heads if head < attention.num_heads])
        )
        sizes = dict.fromkeys(FORMULA_STEPS, rows * keys) | dict.fromkeys(("query", "context"), rows * dims.d_head)
        sizes |= dict.fromkeys(("key", "value"), keys * dims.d_head)
        return heads * sum(sizes[step] for step in self.steps if step in sizes)

    def _stream_values(self, stack: str, dims: ModelDims, length: int) -> int:
        if self.stacks is not None and stack not in self.stacks:
            return 0
        count = dims.num_layers.get(stack, 0)
        layers = count if self.layers is None else len([layer for layer in self.layers if layer < count])
        rows = length if self.rows is None else len(self.rows)
        per_layer = {"residual": dims.d_model, "normed": 2 * dims.d_model, "output": 2 * dims.d_model}
        per_layer |= {"activation": dims.d_ff}
        once = {"final": dims.d_model, "logits": dims.vocab_size if stack == self._output_stack(dims) else 0}
        return rows * sum((layers + 1) * per_layer.get(step, 0) + once.get(step, 0) for step in self.steps)

    def _output_stack(self, dims: ModelDims) -> str:
        return "decoder" if "decoder" in dims.num_layers else "encoder"
