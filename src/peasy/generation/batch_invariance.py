"""Checks batch invariance: a row must give the same bits in every batch.

It depends on CPU, threads and shapes, so each packed model is checked before it is used; `packed.py` remembers the
result for the machine.
"""

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.generation.packed_linear import PackedLinear
from peasy.models.config import context_length
from peasy.models.protocol import DecodeState, Model
from peasy.nn.attention import Attention
from peasy.nn.attention_backends import FUSED
from peasy.nn.stack import Stack

_BATCH_SIZES = (2, 3, 5, 8, 17, 33, 72)
"""Batch sizes in which a row is checked."""

MIN_ROWS_TRIED = (1, 2, 4, 16)
"""Small batches may use another code path; these paddings are tried, smallest first."""

_SCHEDULES = (([0, 1, 2], [12, 12, 12]), ([2, 0], [12, 12]), ([1, 0, 2], [1, 1, 1]), ([0, 1], [3, 2]))
"""Schedules that are tried: which sequences share a batch, and the chunk size of each."""

_MAX_COST, _PROMPT_TOKENS, _REPEATS = 0.15, 512, 3
"""Largest accepted slowdown of a prefill of this many tokens, and the number of timed repeats."""


@dataclass(frozen=True)
class BatchInvariance:
    """Result of the batch-invariance check; `min_rows`: smaller batches are padded to this many rows, 1 = none.

    `cost`: relative slowdown of a long prefill, 0.1 = 10 %. `given_up`: possible, but too expensive.
    """

    holds: bool
    min_rows: int
    seconds: float
    cost: float = 0.0
    given_up: bool = False

    def summary(self) -> str:
        """Return a one-line description."""
        if not self.holds and not self.given_up:
            return "not batch-invariant on this CPU"
        cost = f"{max(self.cost, 0):.0%} of prefill time"
        if self.given_up:
            return f"not batch-invariant (it would cost {cost})"
        invariant = f"batch-invariant: same bits in any batch, order and chunking, for {cost}"
        return f"{invariant} (checked in {self.seconds:.1f} s)"


@dataclass(frozen=True)
class PackingMeasurement:
    """What was measured of a packed model on this machine.

    `exact`: the numba kernel's results are correct. `min_rows`: rows to which small batches of each kind of linear
    layer are padded, None = no number is enough. `holds`: every sequence gets the same bits in every batch. `cost`:
    relative slowdown of a long prefill.
    """

    exact: bool = True
    min_rows: dict[str, int | None] = field(default_factory=dict)
    holds: bool = False
    cost: float = 0.0


@torch.inference_mode()
def measure_batch_invariance(model: Model) -> PackingMeasurement:
    """Check each kind of linear layer and then the whole model, and measure what invariance costs."""
    linears = {linear_kind(module): module for module in model.modules() if isinstance(module, PackedLinear)}
    min_rows = {kind: find_min_rows(linear) for kind, linear in linears.items()}
    _pad_small_batches(model, min_rows)
    holds = None not in min_rows.values() and _is_batch_invariant(model)
    return PackingMeasurement(True, min_rows, holds, measure_invariance_cost(model) if holds else 0.0)


def ensure_batch_invariance(
    model: Model, deterministic: bool | None = None, measurement: PackingMeasurement | None = None
) -> BatchInvariance:
    """Pad small batches where invariance needs it; `measurement`: a remembered one, None = measure now.

    With `deterministic=None`, invariance is given up if it is too expensive.
    """
    began = time.perf_counter()
    measured = measurement or measure_batch_invariance(model)
    _pad_small_batches(model, measured.min_rows)
    given_up = deterministic is None and measured.cost > _MAX_COST
    if given_up:
        for attention in _attentions(model):
            attention.backend = FUSED
    most_rows = max([rows or 1 for rows in measured.min_rows.values()], default=1)
    seconds = time.perf_counter() - began
    return BatchInvariance(measured.holds and not given_up, most_rows, seconds, measured.cost, given_up)


def linear_kind(linear: PackedLinear) -> str:
    """Return class and shape of a linear layer, which decide about its batch invariance."""
    return f"{type(linear).__name__} {linear.shape}"


def _pad_small_batches(model: Model, min_rows: dict[str, int | None]) -> None:
    for module in model.modules():
        if isinstance(module, PackedLinear):
            module.min_rows = min_rows[linear_kind(module)] or 1


def measure_invariance_cost(model: Model) -> float:
    """Return the relative slowdown of prefill by row-wise attention, measured on the first layer: 0.1 = 10 %."""
    stack = getattr(model, "decoder", None)
    if not isinstance(stack, Stack):
        return 0.0
    limit = context_length(model.config) or _PROMPT_TOKENS
    ids = [index % _vocab_size(model) for index in range(min(_PROMPT_TOKENS, limit))]
    blocks, stack.blocks = stack.blocks, stack.blocks[:1]
    attentions = _attentions(stack)
    invariant_backends = [attention.backend for attention in attentions]
    seconds: dict[bool, list[float]] = {True: [], False: []}
    try:
        for invariant in [True, False] * (1 + _REPEATS):
            for attention, backend in zip(attentions, invariant_backends, strict=True):
                attention.backend = backend if invariant else FUSED
            state = _new_state(model, 0)
            began = time.thread_time()  # CPU time: other processes do not count
            model.forward_varlen([ids], [state])
            seconds[invariant].append(time.thread_time() - began)
    finally:
        stack.blocks = blocks
        for attention, backend in zip(attentions, invariant_backends, strict=True):
            attention.backend = backend
    return min(seconds[True][1:]) / min(seconds[False][1:]) - 1


def _attentions(module: nn.Module) -> list[Attention]:
    return [child for child in module.modules() if isinstance(child, Attention)]


def find_min_rows(linear: PackedLinear) -> int | None:
    """Return the smallest padded batch at which a row's bits do not depend on the batch; None if there is none."""
    rows = torch.randn(max(_BATCH_SIZES) + 1, linear.shape[1], generator=torch.Generator().manual_seed(0))
    for least in MIN_ROWS_TRIED:
        linear.min_rows = least
        alone = torch.cat([linear(rows[index : index + 1]) for index in range(4)])
        if all(torch.equal(linear(rows[:count])[:4], alone[:count]) for count in _BATCH_SIZES):
            return least
    return None


def _is_batch_invariant(model: Model) -> bool:
    """True if every sequence gets the same bits alone, batched, in another order and in chunks."""
    limit, vocabulary = context_length(model.config) or 12, _vocab_size(model)
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(0, vocabulary, (min(n, limit),), generator=generator).tolist() for n in (9, 4, 12)]
    try:
        alone = [_run_schedule(model, sequences, [index], [12])[index] for index in range(3)]
    except InvalidInput:
        return True  # an encoder does not decode: its linear layers were checked above
    runs = (_run_schedule(model, sequences, order, sizes) for order, sizes in _SCHEDULES)
    return all(torch.equal(logits, alone[index]) for run in runs for index, logits in run.items())


def _run_schedule(
    model: Model, sequences: list[list[int]], order: list[int], chunk_sizes: list[int]
) -> dict[int, Tensor]:
    """Return the logits after the last token of each sequence, batched and chunked."""
    states = {index: _new_state(model, index) for index in order}
    pending = {}
    for index, size in zip(order, chunk_sizes, strict=True):
        ids = sequences[index]
        pending[index] = iter([ids[start : start + size] for start in range(0, len(ids), size)])
    logits: dict[int, Tensor] = {}
    while pending:
        batch = {index: chunk for index, chunks in pending.items() if (chunk := next(chunks, None)) is not None}
        if batch:
            computed = model.forward_varlen(list(batch.values()), [states[index] for index in batch])
            logits |= dict(zip(batch, computed, strict=True))
        pending = {index: pending[index] for index in batch}
    return logits


def _vocab_size(model: Model) -> int:
    return getattr(model.config, "target_vocab_size", None) or model.config.vocab_size


def _new_state(model: Model, index: int) -> DecodeState:
    if not model.is_encoder_decoder:
        return model.new_state()
    return model.new_state(source=torch.arange(1, 4 + index)[None] % model.config.vocab_size)
