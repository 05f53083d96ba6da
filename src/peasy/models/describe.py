"""Model diagram as data: nested boxes with weights, parameter counts and memory; no torch."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from peasy.display import DisplayMixin
from peasy.parameters import Record


class Box(DisplayMixin, Record):
    """A module of a model. `repeats` identical boxes are stacked; `parameters` and `bytes` are those of one.

    `weights` are the module's own arrays as (name, shape); `parameters` and `bytes` include nested boxes.
    """

    name: str
    description: str
    parameters: int
    bytes: int
    weights: tuple[tuple[str, tuple[int, ...]], ...] = ()
    boxes: tuple["Box", ...] = ()
    repeats: int = 1

    def walk(self) -> Iterator["Box"]:
        """Iterate over this box and all nested boxes, outermost first."""
        yield self
        for box in self.boxes:
            yield from box.walk()


def describe(module: Any, name: str = "model") -> Box:
    """Return the boxes of a module; identical consecutive blocks become one box with `repeats`."""
    boxes: list[Box] = []
    for part, child in module.parts() if hasattr(module, "parts") else module.named_children():
        if hasattr(child, "append"):  # a list of blocks
            blocks = [describe(block, f"{part.removesuffix('s')} {i}") for i, block in enumerate(child)]
            for _, equal in groupby(blocks, key=lambda box: replace(box, name="")):  # runs are named by both ends
                first, *others = equal
                last = f" … {others[-1].name.rsplit(' ', 1)[-1]}" if others else ""
                boxes.append(replace(first, name=first.name + last, repeats=1 + len(others)))
        elif hasattr(child, "summary") or next(child.parameters(), None) is not None:
            boxes.append(describe(child, part))
    return Box(
        name,
        module.summary()
        if hasattr(module, "summary")
        else _TORCH_SUMMARIES.get(type(module).__name__, lambda _: "")(module),
        sum(weight.numel() for weight in module.parameters()),
        sum(array.numel() * array.element_size() for array in module.state_dict().values()),
        tuple((parameter, tuple(weight.shape)) for parameter, weight in module.named_parameters(recurse=False)),
        tuple(boxes),
    )


_TORCH_SUMMARIES: dict[str, Callable[[Any], str]] = {
    "Linear": lambda m: f"{m.in_features} to {m.out_features}{'' if m.bias is None else ', bias'}",
    "Embedding": lambda m: f"{m.num_embeddings} vectors of {m.embedding_dim}",
    "LayerNorm": lambda m: "mean 0, variance 1",
    "RMSNorm": lambda m: "root mean square 1",
    "Conv1d": lambda m: f"{m.in_channels} to {m.out_channels}, kernel size {m.kernel_size[0]}",
    "LSTM": lambda m: "long short-term memory",
    "GRU": lambda m: "gated recurrent unit",
}
