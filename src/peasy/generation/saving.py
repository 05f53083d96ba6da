"""KV cache benchmark: multiplications and time of each decoding step, with and without the cache."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from peasy.errors import InvalidInput
from peasy.models.protocol import Model


class Step(NamedTuple):
    """One decoding step: cached and new tokens, multiplications and seconds with and without the cache, and the largest
    difference of the logits."""

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
    """Replay a prompt and its continuation, each step once with the cache and once without.

    `unpacked`: the model whose weights are counted, if those of `model` are packed.
    """
    counted = counted or model
    if model.reads_source:
        raise InvalidInput("The cache comparison needs a decoder-only model.", hint="This model is an encoder-decoder.")
    with torch.inference_mode():
        state = model.start(room=len(prompt) + len(written))
    ids: list[int] = []
    for new in ([*prompt], *([id] for id in written[:-1])):
        num_cached, ids = len(ids), [*ids, *new]
        with torch.inference_mode():
            began = time.perf_counter()
            cached = model.read([new], [state])[0]
            between = time.perf_counter()
            uncached = model(torch.tensor([ids], device=model.device), last=True)[0, -1]
            ended = time.perf_counter()
        difference = (cached - uncached)[uncached > -torch.inf].abs().max()
        yield Step(
            num_cached, len(new), multiplications(counted, len(new), num_cached), multiplications(counted, len(ids)),
            between - began, ended - between, float(difference),
        )  # fmt: skip


def multiplications(model: Model, new: int, kept: int = 0) -> int:
    """Return the multiplications to compute `num_new` tokens after `num_cached`: each weight once per token, the LM
    head once, and in attention query times key and weight times value.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> multiplications(model, 1, 99) < multiplications(model, 100) / 20
    True
    """
    head = getattr(model, "head", None)
    excluded = {id(weight) for part in (head, *_tables(model)) if part is not None for weight in part.parameters()}
    per_token = sum(weight.numel() for weight in model.parameters() if weight.ndim > 1 and id(weight) not in excluded)
    in_lm_head = 0 if head is None else model.config.vocabulary * model.config.d_model  # type: ignore[union-attr]
    return new * per_token + in_lm_head + _looking(model.config, new, kept)


def _tables(model: Model) -> list[nn.Module]:
    """Return the embedding tables, which are looked up, not multiplied."""
    return [module for module in model.modules() if isinstance(module, nn.Embedding)]


def _looking(config: Any, new: int, kept: int) -> int:
    stack = getattr(config, "stack", None)
    if stack is None:
        return 0
    width = stack.attention.d_head or config.d_model // stack.attention.heads
    total = 0
    for layer in range(stack.layers):
        window = stack.attention.window_of(layer) or new + kept
        pairs = sum(min(position + 1, window) for position in range(kept, kept + new))
        total += 2 * stack.attention.heads * width * pairs
    return total
