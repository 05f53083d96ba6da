"""KV cache benchmark: multiplications and time of each decoding step, with and without the cache."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from peasy.errors import InvalidInput
from peasy.models.protocol import Model


class CacheBenchmarkStep(NamedTuple):
    """One decoding step: cached and new tokens, multiplications and seconds with and without the cache, and the largest
    difference of the logits."""

    num_cached: int
    num_new: int
    multiplications: int
    multiplications_uncached: int
    seconds: float
    seconds_uncached: float
    max_difference: float


def benchmark_cache(
    model: Model, prompt: Sequence[int], generated: Sequence[int], unpacked: Model | None = None
) -> Iterator[CacheBenchmarkStep]:
    """Replay a prompt and its continuation, each step once with the cache and once without.

    `unpacked`: the model whose weights are counted, if those of `model` are packed.
    """
    unpacked = unpacked or model
    if model.is_encoder_decoder:
        raise InvalidInput("The cache comparison needs a decoder-only model.", hint="This model is an encoder-decoder.")
    with torch.inference_mode():
        state = model.new_state(capacity=len(prompt) + len(generated))
    ids: list[int] = []
    for new in ([*prompt], *([id] for id in generated[:-1])):
        num_cached, ids = len(ids), [*ids, *new]
        with torch.inference_mode():
            began = time.perf_counter()
            cached = model.forward_varlen([new], [state])[0]
            between = time.perf_counter()
            uncached = model(torch.tensor([ids], device=model.device), last_only=True)[0, -1]
            ended = time.perf_counter()
        difference = (cached - uncached)[uncached > -torch.inf].abs().max()
        yield CacheBenchmarkStep(
            num_cached, len(new), _count_multiplications(unpacked, len(new), num_cached),
            _count_multiplications(unpacked, len(ids)), between - began, ended - between, float(difference),
        )  # fmt: skip


def _count_multiplications(model: Model, num_new: int, num_cached: int = 0) -> int:
    """Return the multiplications to compute `num_new` tokens after `num_cached`: each weight once per token, the LM
    head once, and in attention query times key and weight times value.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> _count_multiplications(model, 1, 99) < _count_multiplications(model, 100) / 20
    True
    """
    head = getattr(model, "lm_head", None)
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]  # looked up, not multiplied
    excluded = {id(weight) for part in (head, *tables) if part is not None for weight in part.parameters()}
    per_token = sum(weight.numel() for weight in model.parameters() if weight.ndim > 1 and id(weight) not in excluded)
    in_lm_head = 0 if head is None else model.config.vocab_size * model.config.d_model  # type: ignore[union-attr]
    config: Any = model.config
    stack: Any = getattr(config, "stack", None)
    total = num_new * per_token + in_lm_head
    for layer in range(stack.num_layers if stack else 0):
        width = stack.attention.d_head or config.d_model // stack.attention.num_heads
        window = stack.attention.window_for_layer(layer) or num_new + num_cached
        pairs = sum(min(position + 1, window) for position in range(num_cached, num_cached + num_new))
        total += 2 * stack.attention.num_heads * width * pairs
    return total
