"""Equal bits, tried out: does this processor give a row the same bits alone and in any company?

It depends on processor, threads and shapes, so it is asked of the model at hand, once, before it is used.
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
"""A row is tried among so many."""

LEAST = (1, 2, 4, 16)
"""Where few rows are computed in another way than many, they are filled up to so many."""

TURNS = (
    ([0, 1, 2], [12, 12, 12]),
    ([2, 0], [12, 12]),
    ([1, 0, 2], [1, 1, 1]),
    ([0, 1], [3, 2]),
)
"""Which texts are read side by side, and by how many tokens at a time."""


DEAR, PROMPT, TIMES = 0.15, 512, 3
"""Equal bits may cost so much of the time of reading so many tokens; each way is timed so often."""


@dataclass(frozen=True)
class Held:
    """Do the same prompt's bits stay the same? `least` is the row count that needed filling up, 1 = none.

    `cost` is how much longer a long prompt takes for it, 0.1 = 10 %. With `given_up` it could be had, and is not worth
    that.
    """

    equal: bool
    least: int
    seconds: float
    cost: float = 0.0
    given_up: bool = False

    def says(self) -> str:
        """One line about it."""
        if not self.equal and not self.given_up:
            return "on this processor bits depend on the batch"
        price = f"{max(self.cost, 0):.0%} of the time of a long prompt"
        if self.given_up:
            return f"bits depend on the batch (the same bits in any would cost {price})"
        return f"same bits alone and in any batch, order and chunking, for {price} (tried in {self.seconds:.1f} s)"


@torch.inference_mode()
def hold_bits(model: Model, deterministic: bool | None = None) -> Held:
    """Fill rows up where that is needed for equal bits, then try the whole model.

    What is not asked for (None) is given up where it is dear.
    """
    began, equal = time.perf_counter(), True
    found: dict[tuple[type, tuple[int, ...]], int | None] = {}
    for part in model.modules():
        if isinstance(part, Product):
            alike = type(part), part.shape
            if alike not in found:
                found[alike] = least_rows(part)
            part.least = found[alike] or 1
            equal &= found[alike] is not None
    equal = equal and reads_alike(model)
    cost = measure_cost(model) if equal else 0.0
    given_up = deterministic is None and cost > DEAR
    if given_up:
        _let(_looks(model), [(False, None)] * len(_looks(model)))
    least = max([least or 1 for least in found.values()], default=1)
    return Held(equal and not given_up, least, time.perf_counter() - began, cost, given_up)


def measure_cost(model: Model) -> float:
    """How much longer a prompt takes because every query looks alone, by the first layer: 0.1 = 10 %."""
    first = _first_layer(model)
    if first is None:
        return 0.0
    ids = [index % _vocabulary(model) for index in range(min(PROMPT, getattr(model.config, "context", None) or PROMPT))]
    looks = _looks(first)
    ways: dict[bool, list[tuple[bool, Any]]]
    ways = {True: [(part.apart, part.looker) for part in looks], False: [(False, None)] * len(looks)}
    took: dict[bool, list[float]] = {True: [], False: []}
    for way in [True, False] * (1 + TIMES):
        _let(looks, ways[way])
        memory = _start(first, 0)
        began = time.thread_time()  # what others do on this machine is none of its cost
        first.read([ids], [memory])
        took[way].append(time.thread_time() - began)
    _let(looks, ways[True])
    return min(took[True][1:]) / min(took[False][1:]) - 1


def _first_layer(model: Any) -> Any:
    """The model with the first layer of what writes; None for one that has no such layers."""
    stack = getattr(model, "decoder", None)
    if not isinstance(stack, Stack):
        return None
    short, twin = copy.copy(stack), copy.copy(model)
    short._modules = stack._modules | {"blocks": stack.blocks[:1]}
    twin._modules = model._modules | {"decoder": short}
    return twin


def _looks(model: Any) -> list[Attention]:
    return [part for part in model.modules() if isinstance(part, Attention)]


def _let(looks: list[Attention], ways: list[tuple[bool, Any]]) -> None:
    """Let each attention look apart or not, by its looker or none."""
    for part, (apart, looker) in zip(looks, ways, strict=True):
        part.apart, part.looker = apart, looker


def least_rows(product: Product) -> int | None:
    """The fewest rows that must be multiplied together so that none feels its company; None = no number helps."""
    rows = torch.randn(max(COMPANY) + 1, product.shape[1], generator=torch.Generator().manual_seed(0))
    for least in LEAST:
        product.least = least
        alone = torch.cat([product(rows[index : index + 1]) for index in range(4)])
        if all(torch.equal(product(rows[:count])[:4], alone[:count]) for count in COMPANY):
            return least
    return None


def reads_alike(model: Model) -> bool:
    """Does every text get the same bits alone, in company, in another order and in pieces?"""
    limit, vocabulary = getattr(model.config, "context", None) or 12, _vocabulary(model)
    draw = torch.Generator().manual_seed(0)
    texts = [torch.randint(0, vocabulary, (min(size, limit),), generator=draw).tolist() for size in (9, 4, 12)]
    try:
        alone = [_read(model, texts, [index], [12])[index] for index in range(3)]
    except InvalidInput:
        return True  # a model that writes nothing has only its products
    return all(
        torch.equal(scores, alone[index])
        for order, sizes in TURNS
        for index, scores in _read(model, texts, order, sizes).items()
    )


def _read(model: Model, texts: list[list[int]], order: list[int], sizes: list[int]) -> dict[int, Tensor]:
    """The scores after each text's last token, read side by side in pieces."""
    memories = {index: _start(model, index) for index in order}
    waiting = {index: _pieces(texts[index], size) for index, size in zip(order, sizes, strict=True)}
    found: dict[int, Tensor] = {}
    while waiting:
        now = {index: piece for index, pieces in waiting.items() if (piece := next(pieces, None)) is not None}
        if now:
            found |= dict(zip(now, model.read(list(now.values()), [memories[index] for index in now]), strict=True))
        waiting = {index: waiting[index] for index in now}
    return found


def _vocabulary(model: Model) -> int:
    return getattr(model.config, "target_vocabulary", None) or model.config.vocabulary


def _pieces(text: list[int], size: int) -> Iterator[list[int]]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _start(model: Model, index: int) -> Any:
    if not model.reads_source:
        return model.start()
    return model.start(source=torch.arange(1, 4 + index)[None] % model.config.vocabulary)
