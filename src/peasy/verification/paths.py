"""Execution paths of a model: uncached, cached, chunked, padded, batched; each returns the outputs for every token.

A path takes all sequences and can record one of them, so that two paths can be compared step by step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import torch
from torch import Tensor

from peasy.models.encoder import Encoder, pad_sequences
from peasy.models.protocol import Model
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import HEAD_STEPS, Activation, Tap

_RECORDED_STEPS = ("residual", "normed", "query", "key", "value", "context", "activation", "output", "final")
NUM_PADDING_TOKENS = 3
"""Padding tokens added to a sequence."""


@dataclass(frozen=True)
class TokenSequence:
    """Token ids of a sequence, and of its source for an encoder-decoder."""

    ids: tuple[int, ...]
    source_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class PathResult:
    """Model outputs for one sequence: logits (or hidden states) of every token; for an encoder the pooled vector."""

    token_outputs: Tensor
    pooled: Tensor | None = None


@dataclass(frozen=True, eq=False)
class ProofInputs:
    """Common inputs of all checks: the model, its sequences, their reference outputs, and the tolerance.

    `no_cache_reason` says why the model has no KV cache; None if it has one.
    """

    model: Model
    sequences: Sequence[TokenSequence]
    reference: list[PathResult]
    tolerance: float
    no_cache_reason: str | None = None


class SourceInputs(TypedDict, total=False):
    """Source arguments of an encoder-decoder; empty for other models."""

    source: Tensor
    source_padding_mask: Tensor


@dataclass(eq=False)
class StepRecorder:
    """Recorder of all activations of sequence `index`, joined over chunks and picked out of batches."""

    index: int
    steps: dict[tuple[ModulePath, str], list[Tensor]] = field(default_factory=dict)
    row: int = 0
    padding_masks: dict[str, Tensor] = field(default_factory=dict)
    num_new_tokens: int | None = None

    def make_tap(
        self, row: int = 0, num_new_tokens: int | None = None, padding_masks: Mapping[str, Tensor | None] | None = None
    ) -> Tap:
        """Return a tap for the next forward pass: batch row, number of new tokens, padding mask per stack."""
        self.row, self.num_new_tokens = row, num_new_tokens
        self.padding_masks = {stack: mask[row] for stack, mask in (padding_masks or {}).items() if mask is not None}
        return Tap(self._record, steps=_RECORDED_STEPS)

    def _record(self, activation: Activation) -> None:
        if activation.path.part == "cross_attention" and activation.step in ("key", "value"):
            return  # keys and values of the source, computed only once
        array = activation.array[self.row if len(activation.array) > self.row else 0]
        if self.num_new_tokens is not None and activation.step in ("key", "value"):
            array = array[:, -self.num_new_tokens :]
        if activation.path.stack in self.padding_masks:
            axis = 1 if activation.step in HEAD_STEPS else 0
            array = array.index_select(axis, self.padding_masks[activation.path.stack].nonzero()[:, 0])
        self.steps.setdefault((activation.path, activation.step), []).append(array)

    def concatenate(self) -> dict[tuple[ModulePath, str], Tensor]:
        """Return each step for the whole sequence, in the order of the forward pass."""
        return {key: torch.cat(pieces, dim=1 if key[1] in HEAD_STEPS else 0) for key, pieces in self.steps.items()}


ExecutionPath = Callable[[Model, Sequence[TokenSequence], StepRecorder | None], list[PathResult]]


def uncached(
    model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None
) -> list[PathResult]:
    """Run each sequence alone, in one pass without cache: the reference for all other paths."""
    results = []
    for index, sequence in enumerate(sequences):
        tap = recorder.make_tap() if recorder is not None and recorder.index == index else None
        results += _forward(model, _to_tensor(model, [sequence.ids]), None, _source_inputs(model, [sequence]), tap)
    return results


def padded_batch(
    model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None
) -> list[PathResult]:
    """Run all sequences in one padded batch, the last one first."""
    ids, mask = (tensor.to(model.device) for tensor in pad_sequences([sequence.ids for sequence in sequences[::-1]]))
    source = _source_inputs(model, sequences[::-1])
    row = 0 if recorder is None else len(sequences) - 1 - recorder.index
    tap = None if recorder is None else recorder.make_tap(row, padding_masks=_padding_masks(model, mask, source))
    return _forward(model, ids, mask, source, tap)[::-1]


def padded(side: str) -> ExecutionPath:
    """Return a path that runs each sequence alone with padding on its left or right (and its source's)."""

    def run(model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None) -> list[PathResult]:
        results = []
        for index, sequence in enumerate(sequences):
            ids, mask = _pad_sequence(model, sequence.ids, side)
            source, tap = SourceInputs(), None
            if sequence.source_ids is not None:
                source_ids, source_mask = _pad_sequence(model, sequence.source_ids, side)
                source = SourceInputs(source=source_ids, source_padding_mask=source_mask)
            if recorder is not None and recorder.index == index:
                tap = recorder.make_tap(0, padding_masks=_padding_masks(model, mask, source))
            results += _forward(model, ids, mask, source, tap)
        return results

    return run


def varlen_batch(
    model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None
) -> list[PathResult]:
    """Run all sequences in a variable-length batch as generation does: first half of each, then the rest."""
    return [PathResult(logits) for logits in varlen_logits(model, sequences, recorder=recorder)]


def varlen_logits(
    model: Model,
    sequences: Sequence[TokenSequence],
    first_chunk: int | None = None,
    recorder: StepRecorder | None = None,
) -> list[Tensor]:
    """Return the logits of every token, in two batches: `first_chunk` tokens (default: half), then the rest."""
    states = [model.new_state(**_source_inputs(model, [sequence])) for sequence in sequences]
    logits: list[list[Tensor]] = [[] for _ in sequences]
    cuts = [(len(sequence.ids) + 1) // 2 if first_chunk is None else first_chunk for sequence in sequences]
    parts = [(sequence.ids[:cut], sequence.ids[cut:]) for sequence, cut in zip(sequences, cuts, strict=True)]
    for halves in zip(*parts, strict=True):
        rows = [index for index, half in enumerate(halves) if half]
        taps = [recorder.make_tap(0, len(halves[row])) if recorder and recorder.index == row else None for row in rows]
        if rows:
            chunks, chunk_states = [halves[row] for row in rows], [states[row] for row in rows]
            outputs = model.forward_varlen(chunks, chunk_states, all_positions=True, tap=taps)
            for row, chunk_logits in zip(rows, outputs, strict=True):
                logits[row].append(chunk_logits)
    return [torch.cat(pieces) for pieces in logits]


def cached(model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None) -> list[PathResult]:
    """Run with the KV cache: the first half as a prompt, then one token at a time."""
    firsts = [max(len(sequence.ids) // 2, 1) for sequence in sequences]
    sizes = [[first, *[1] * (len(sequence.ids) - first)] for first, sequence in zip(firsts, sequences, strict=True)]
    return _run_in_chunks(model, sequences, sizes, recorder)


def chunked(model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None) -> list[PathResult]:
    """Run with the KV cache in chunks of 1, 2, 3, 5, 8, ... tokens."""
    return _run_in_chunks(model, sequences, [_fibonacci_sizes(len(sequence.ids)) for sequence in sequences], recorder)


def _run_in_chunks(
    model: Model, sequences: Sequence[TokenSequence], chunk_sizes: Sequence[list[int]], recorder: StepRecorder | None
) -> list[PathResult]:
    results = []
    for index, sequence in enumerate(sequences):
        state = model.new_state(capacity=len(sequence.ids), **_source_inputs(model, [sequence]))
        logits = []
        for chunk in torch.split(_to_tensor(model, [sequence.ids]), chunk_sizes[index], dim=1):
            tap = recorder.make_tap(0, chunk.shape[1]) if recorder is not None and recorder.index == index else None
            logits.append(model(chunk, cache=state, tap=tap)[0])
        results.append(PathResult(torch.cat(logits)))
    return results


def _fibonacci_sizes(length: int) -> list[int]:
    sizes, size, following = [], 1, 2
    while length:
        sizes.append(min(size, length))
        length -= sizes[-1]
        size, following = following, size + following
    return sizes


def _forward(
    model: Model, ids: Tensor, padding_mask: Tensor | None, source: SourceInputs, tap: Tap | None
) -> list[PathResult]:
    """Run a batch; return the outputs of each row, without its padding."""
    hidden = model.hidden(ids, padding_mask=padding_mask, tap=tap, **source)
    outputs = hidden if getattr(model, "lm_head", model) is None else model.logits(hidden)
    pooled = model.pool(hidden, padding_mask) if isinstance(model, Encoder) else None
    return [
        PathResult(row if padding_mask is None else row[padding_mask[index]], None if pooled is None else pooled[index])
        for index, row in enumerate(outputs)
    ]


def _pad_sequence(model: Model, ids: tuple[int, ...], side: str) -> tuple[Tensor, Tensor]:
    pad_id = model.config.special_tokens.pad or 0
    padding = [pad_id if pad_id < model.config.vocab_size else 0] * NUM_PADDING_TOKENS  # masked, so any token will do
    row = [*padding, *ids] if side == "left" else [*ids, *padding]
    mask = torch.ones(1, len(row), dtype=torch.bool, device=model.device)
    mask[:, slice(0, NUM_PADDING_TOKENS) if side == "left" else slice(len(ids), None)] = False
    return _to_tensor(model, [row]), mask


def _padding_masks(model: Model, padding_mask: Tensor, source: SourceInputs) -> dict[str, Tensor | None]:
    if model.is_encoder_decoder:
        return {"decoder": padding_mask, "encoder": source.get("source_padding_mask")}
    return dict.fromkeys(("decoder", "encoder", "words"), padding_mask)


def _to_tensor(model: Model, rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([list(row) for row in rows], device=model.device)


def _source_inputs(model: Model, sequences: Sequence[TokenSequence]) -> SourceInputs:
    """Return the source arguments of an encoder-decoder; empty for other models."""
    sources = [sequence.source_ids for sequence in sequences if sequence.source_ids is not None]
    if not sources:
        return SourceInputs()
    ids, mask = pad_sequences(sources)
    return SourceInputs(source=ids.to(model.device), source_padding_mask=mask.to(model.device))
