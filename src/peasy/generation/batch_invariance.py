"""Checks batch invariance: a row must give the same bits in every batch.

It depends on CPU, threads and shapes, so a packed model that should be invariant is checked before it is used;
`packed.py` remembers the result for the machine.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.generation.packed_linear import PackedLinear
from peasy.models.protocol import DecodeState, Model

_BATCH_SIZES = (2, 3, 5, 8, 17, 33, 72)
"""Batch sizes in which a row is checked."""

MIN_ROWS_TRIED = (1, 2, 4, 16)
"""Small batches may use another code path; these paddings are tried, smallest first."""

_SCHEDULES = (([0, 1, 2], [12, 12, 12]), ([2, 0], [12, 12]), ([1, 0, 2], [1, 1, 1]), ([0, 1], [3, 2]))
"""Schedules that are tried: which sequences share a batch, and the chunk size of each."""


@dataclass(frozen=True)
class BatchInvariance:
    """What was found out about a packed model on this machine.

    `exact`: the numba kernel's results are correct. `min_rows`: rows to which small batches of each kind of linear
    layer are padded, None = no number is enough. `holds`: every sequence gets the same bits in every batch.
    """

    exact: bool = True
    min_rows: dict[str, int | None] = field(default_factory=dict)
    holds: bool = False

    def summary(self) -> str:
        """Return a one-line description."""
        invariant = "batch-invariant: same bits in any batch, order and chunking"
        return invariant if self.holds else "not batch-invariant on this CPU"


@torch.inference_mode()
def check_batch_invariance(model: Model) -> BatchInvariance:
    """Check each kind of linear layer and then the whole model."""
    linears = {linear_kind(module): module for module in model.modules() if isinstance(module, PackedLinear)}
    min_rows = {kind: find_min_rows(linear) for kind, linear in linears.items()}
    pad_small_batches(model, min_rows)
    return BatchInvariance(True, min_rows, None not in min_rows.values() and _is_batch_invariant(model))


def linear_kind(linear: PackedLinear) -> str:
    """Return class and shape of a linear layer, which decide about its batch invariance."""
    return f"{type(linear).__name__} {linear.shape}"


def pad_small_batches(model: Model, min_rows: dict[str, int | None]) -> None:
    """Set the rows to which small batches are padded, where invariance needs it."""
    for module in model.modules():
        if isinstance(module, PackedLinear):
            module.min_rows = min_rows[linear_kind(module)] or 1


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
    limit = model.config.max_seq_len or 12
    vocabulary = getattr(model.config, "target_vocab_size", None) or model.config.vocab_size
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


def _new_state(model: Model, index: int) -> DecodeState:
    if not model.is_encoder_decoder:
        return model.new_state()
    return model.new_state(source=torch.arange(1, 4 + index)[None] % model.config.vocab_size)
