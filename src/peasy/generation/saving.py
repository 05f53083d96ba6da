"""What a cache saves: the same tokens with and without it, step by step, counted and timed."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from peasy.errors import InvalidInput
from peasy.models.protocol import Model


class Step(NamedTuple):
    """One step: tokens remembered and computed with the cache, multiplications and seconds with and without it, and
    the largest difference of the scores."""

    kept: int
    new: int
    work: int
    work_without: int
    seconds: float
    seconds_without: float
    apart: float


def compare(
    model: Model, prompt: Sequence[int], written: Sequence[int], counted: Model | None = None
) -> Iterator[Step]:
    """Read a prompt and what was written after it again, each step once with a cache and once without.

    `counted` is the model whose weights are counted, where those of `model` are packed.
    """
    counted = counted or model
    if model.reads_source:
        raise InvalidInput("The cache is shown for models that write on from a prompt.", hint="This one translates.")
    with torch.inference_mode():
        memory = model.start(room=len(prompt) + len(written))
    ids: list[int] = []
    for new in ([*prompt], *([id] for id in written[:-1])):
        kept, ids = len(ids), [*ids, *new]
        with torch.inference_mode():
            began = time.perf_counter()
            cached = model.read([new], [memory])[0]
            between = time.perf_counter()
            whole = model(torch.tensor([ids], device=model.device), last=True)[0, -1]
            ended = time.perf_counter()
        apart = (cached - whole)[whole > -torch.inf].abs().max()
        yield Step(
            kept, len(new), multiplications(counted, len(new), kept), multiplications(counted, len(ids)),
            between - began, ended - between, float(apart),
        )  # fmt: skip


def multiplications(model: Model, new: int, kept: int = 0) -> int:
    """How many numbers are multiplied to read `new` tokens after `kept`: every weight once for each token, the head
    once, and in each attention query by key and weight by value.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> multiplications(model, 1, 99) < multiplications(model, 100) / 20
    True
    """
    head = getattr(model, "head", None)
    inside = {id(weight) for part in (head, *_tables(model)) if part is not None for weight in part.parameters()}
    weights = sum(weight.numel() for weight in model.parameters() if weight.ndim > 1 and id(weight) not in inside)
    choosing = 0 if head is None else model.config.vocabulary * model.config.d_model  # type: ignore[union-attr]
    return new * weights + choosing + _looking(model.config, new, kept)


def _tables(model: Model) -> list[nn.Module]:
    """What is looked up, not multiplied."""
    return [module for module in model.modules() if isinstance(module, nn.Embedding)]


def _looking(config: Any, new: int, kept: int) -> int:
    stack = getattr(config, "stack", None)
    if stack is None:
        return 0
    width = stack.attention.d_head or config.d_model // stack.attention.heads
    total = 0
    for layer in range(stack.layers):
        window = stack.attention.window_of(layer) or new + kept
        pairs = sum(min(place + 1, window) for place in range(kept, kept + new))
        total += 2 * stack.attention.heads * width * pairs
    return total
