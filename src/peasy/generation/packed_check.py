"""Checks batch invariance: a row must give the same bits in every batch.

It depends on CPU, threads and shapes, so each packed model is checked once before it is used.
"""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.generation.packed_product import Product
from peasy.models.protocol import Model
from peasy.nn.attention import Attention
from peasy.nn.stack import Stack

COMPANY = (2, 3, 5, 8, 17, 33, 72)
"""Batch sizes in which a row is checked."""

LEAST = (1, 2, 4, 16)
"""Small batches may use another code path; these paddings are tried, smallest first."""

TURNS = (
    ([0, 1, 2], [12, 12, 12]),
    ([2, 0], [12, 12]),
    ([1, 0, 2], [1, 1, 1]),
    ([0, 1], [3, 2]),
)
"""Schedules that are tried: which sequences share a batch, and the chunk size of each."""


DEAR, PROMPT, TIMES = 0.15, 512, 3
"""Largest accepted slowdown of a prefill of this many tokens, and the number of timed repeats."""


@dataclass(frozen=True)
class Held:
    """Result of the batch-invariance check; `min_rows`: smaller batches are padded to this many rows, 1 = none.

    `cost`: relative slowdown of a long prefill, 0.1 = 10 %. `given_up`: possible, but too expensive.
    """

    equal: bool
    least: int
    seconds: float
    cost: float = 0.0
    given_up: bool = False

    def says(self) -> str:
        """Return a one-line description."""
        if not self.equal and not self.given_up:
            return "not batch-invariant on this CPU"
        cost = f"{max(self.cost, 0):.0%} of prefill time"
        if self.given_up:
            return f"not batch-invariant (it would cost {cost})"
        return (
            f"batch-invariant: same bits in any batch, order and chunking, for {cost} (checked in {self.seconds:.1f} s)"
        )


@torch.inference_mode()
def hold_bits(model: Model, deterministic: bool | None = None) -> Held:
    """Pad small batches where invariance needs it, then check the whole model.

    With `deterministic=None`, invariance is given up if it is too expensive.
    """
    began, equal = time.perf_counter(), True
    rows_needed: dict[tuple[type, tuple[int, ...]], int | None] = {}
    for module in model.modules():
        if isinstance(module, Product):
            key = type(module), module.shape
            if key not in rows_needed:
                rows_needed[key] = least_rows(module)
            module.least = rows_needed[key] or 1
            equal &= rows_needed[key] is not None
    equal = equal and reads_alike(model)
    cost = measure_cost(model) if equal else 0.0
    given_up = deterministic is None and cost > DEAR
    if given_up:
        _let(_looks(model), [(False, None)] * len(_looks(model)))
    min_rows = max([rows or 1 for rows in rows_needed.values()], default=1)
    return Held(equal and not given_up, min_rows, time.perf_counter() - began, cost, given_up)


def measure_cost(model: Model) -> float:
    """Return the relative slowdown of prefill by row-wise attention, measured on the first layer: 0.1 = 10 %."""
    first = _first_layer(model)
    if first is None:
        return 0.0
    ids = [index % _vocabulary(model) for index in range(min(PROMPT, getattr(model.config, "context", None) or PROMPT))]
    attentions = _looks(first)
    backends: dict[bool, list[tuple[bool, Any]]]
    backends = {
        True: [(attention.apart, attention.looker) for attention in attentions],
        False: [(False, None)] * len(attentions),
    }
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for invariant in [True, False] * (1 + TIMES):
        _let(attentions, backends[invariant])
        state = _start(first, 0)
        began = time.thread_time()  # CPU time: other processes do not count
        first.read([ids], [state])
        seconds[invariant].append(time.thread_time() - began)
    _let(attentions, backends[True])
    return min(seconds[True][1:]) / min(seconds[False][1:]) - 1


def _first_layer(model: Any) -> Any:
    """Return the model with only the first decoder layer, or None if it has no decoder stack."""
    stack = getattr(model, "decoder", None)
    if not isinstance(stack, Stack):
        return None
    short_stack, short_model = copy.copy(stack), copy.copy(model)
    short_stack._modules = stack._modules | {"blocks": stack.blocks[:1]}
    short_model._modules = model._modules | {"decoder": short_stack}
    return short_model


def _looks(model: Any) -> list[Attention]:
    return [module for module in model.modules() if isinstance(module, Attention)]


def _let(looks: list[Attention], ways: list[tuple[bool, Any]]) -> None:
    """Set each attention's row-wise flag and backend."""
    for attention, (row_wise, backend) in zip(looks, ways, strict=True):
        attention.apart, attention.looker = row_wise, backend


def least_rows(product: Product) -> int | None:
    """Return the smallest padded batch at which a row's bits do not depend on the batch; None if there is none."""
    rows = torch.randn(max(COMPANY) + 1, product.shape[1], generator=torch.Generator().manual_seed(0))
    for least in LEAST:
        product.least = least
        alone = torch.cat([product(rows[index : index + 1]) for index in range(4)])
        if all(torch.equal(product(rows[:count])[:4], alone[:count]) for count in COMPANY):
            return least
    return None


def reads_alike(model: Model) -> bool:
    """True if every sequence gets the same bits alone, batched, in another order and in chunks."""
    limit, vocabulary = getattr(model.config, "context", None) or 12, _vocabulary(model)
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(0, vocabulary, (min(n, limit),), generator=generator).tolist() for n in (9, 4, 12)]
    try:
        alone = [_read(model, sequences, [index], [12])[index] for index in range(3)]
    except InvalidInput:
        return True  # an encoder does not decode: its linear layers were checked above
    return all(
        torch.equal(logits, alone[index])
        for order, sizes in TURNS
        for index, logits in _read(model, sequences, order, sizes).items()
    )


def _read(model: Model, texts: list[list[int]], order: list[int], sizes: list[int]) -> dict[int, Tensor]:
    """Return the logits after the last token of each sequence, batched and chunked."""
    states = {index: _start(model, index) for index in order}
    pending = {index: _pieces(texts[index], size) for index, size in zip(order, sizes, strict=True)}
    logits: dict[int, Tensor] = {}
    while pending:
        batch = {index: chunk for index, chunks in pending.items() if (chunk := next(chunks, None)) is not None}
        if batch:
            logits |= dict(zip(batch, model.read(list(batch.values()), [states[i] for i in batch]), strict=True))
        pending = {index: pending[index] for index in batch}
    return logits


def _vocabulary(model: Model) -> int:
    return getattr(model.config, "target_vocabulary", None) or model.config.vocabulary


def _pieces(text: list[int], size: int) -> Iterator[list[int]]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _start(model: Model, index: int) -> Any:
    if not model.reads_source:
        return model.start()
    return model.start(source=torch.arange(1, 4 + index)[None] % model.config.vocabulary)
