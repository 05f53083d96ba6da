"""Execution paths of a model: uncached, cached, chunked, padded, batched; each returns the outputs for every token.

A path takes all sequences and can record one of them, so that two paths can be compared step by step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from peasy.models.encoder import Encoder, pad_sequences
from peasy.models.protocol import Model
from peasy.nn.tap import HEAD_STEPS, Activation, ModulePath, Tap

RECORDED_STEPS = ("residual", "normed", "query", "key", "value", "context", "activation", "output", "final")
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
        return Tap(self._record, steps=RECORDED_STEPS)

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
    return [
        _forward_single(
            model, _to_tensor(model, [sequence.ids]), tap=_tap_for(recorder, index), **source_inputs(model, [sequence])
        )
        for index, sequence in enumerate(sequences)
    ]


def padded_batch(
    model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None
) -> list[PathResult]:
    """Run all sequences in one padded batch, the last one first."""
    order = list(reversed(range(len(sequences))))
    ids, mask = pad_sequences([sequences[index].ids for index in order])
    ids, mask = ids.to(model.device), mask.to(model.device)
    source = source_inputs(model, [sequences[index] for index in order])
    tap = (
        None
        if recorder is None
        else recorder.make_tap(order.index(recorder.index), padding_masks=_padding_masks(model, mask, source))
    )
    outputs, vector = _forward(model, ids, padding_mask=mask, tap=tap, **source)
    by_index = {
        index: PathResult(outputs[row][mask[row]], None if vector is None else vector[row])
        for row, index in enumerate(order)
    }
    return [by_index[index] for index in range(len(sequences))]


def varlen_batch(
    model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None
) -> list[PathResult]:
    """Run all sequences in a variable-length batch as generation does: first half of each, then the rest."""
    states = [model.new_state(**source_inputs(model, [sequence])) for sequence in sequences]
    chunks: list[list[Tensor]] = [[] for _ in sequences]
    for first_half in (True, False):
        halves = [_half(sequence.ids, first_half) for sequence in sequences]
        rows = [index for index, half in enumerate(halves) if half]
        taps = [recorder.make_tap(0, len(halves[row])) if recorder and recorder.index == row else None for row in rows]
        batch_logits = model.forward_varlen(
            [halves[row] for row in rows], [states[row] for row in rows], all_positions=True, tap=taps
        )
        for row, logits in zip(rows, batch_logits, strict=True):
            chunks[row].append(logits)
    return [PathResult(torch.cat(logits)) for logits in chunks]


def cached(model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None) -> list[PathResult]:
    """Run with the KV cache: the first half as a prompt, then one token at a time."""
    return [
        _run_in_chunks(model, sequence, _prefill_decode_sizes(len(sequence.ids)), _recorder_for(recorder, i))
        for i, sequence in enumerate(sequences)
    ]


def chunked(model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None) -> list[PathResult]:
    """Run with the KV cache in chunks of 1, 2, 3, 5, 8, ... tokens."""
    return [
        _run_in_chunks(model, sequence, _fibonacci_sizes(len(sequence.ids)), _recorder_for(recorder, i))
        for i, sequence in enumerate(sequences)
    ]


def padded(side: str) -> ExecutionPath:
    """Return a path that runs each sequence alone with padding on its left or right (and its source's)."""

    def run(model: Model, sequences: Sequence[TokenSequence], recorder: StepRecorder | None = None) -> list[PathResult]:
        results = []
        for index, sequence in enumerate(sequences):
            ids, mask = _pad_sequence(model, sequence.ids, side)
            source = {}
            if sequence.source_ids is not None:
                source_ids, source_mask = _pad_sequence(model, sequence.source_ids, side)
                source = {"source": source_ids, "source_padding_mask": source_mask}
            active = _recorder_for(recorder, index)
            tap = None if active is None else active.make_tap(0, padding_masks=_padding_masks(model, mask, source))
            outputs, vector = _forward(model, ids, padding_mask=mask, tap=tap, **source)
            results.append(PathResult(outputs[0][mask[0]], None if vector is None else vector[0]))
        return results

    return run


def _forward(
    model: Model, ids: Tensor, padding_mask: Tensor | None = None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    hidden = model.hidden(ids, padding_mask=padding_mask, **kwargs)
    outputs = hidden if getattr(model, "lm_head", model) is None else model.logits(hidden)
    return outputs, model.pool(hidden, padding_mask) if isinstance(model, Encoder) else None


def _forward_single(model: Model, ids: Tensor, **kwargs: Any) -> PathResult:
    outputs, vector = _forward(model, ids, **kwargs)
    return PathResult(outputs[0], None if vector is None else vector[0])


def _run_in_chunks(
    model: Model, sequence: TokenSequence, chunk_sizes: list[int], recorder: StepRecorder | None
) -> PathResult:
    state = model.new_state(capacity=len(sequence.ids), **source_inputs(model, [sequence]))
    chunks = _to_tensor(model, [sequence.ids]).split(chunk_sizes, dim=1)
    logits = [
        model(chunk, cache=state, tap=None if recorder is None else recorder.make_tap(0, chunk.shape[1]))[0]
        for chunk in chunks
    ]
    return PathResult(torch.cat(logits))


def _prefill_decode_sizes(length: int) -> list[int]:
    first = max(length // 2, 1)
    return [first, *[1] * (length - first)]


def _fibonacci_sizes(length: int) -> list[int]:
    sizes, size, following = [], 1, 2
    while length:
        sizes.append(min(size, length))
        length -= sizes[-1]
        size, following = following, size + following
    return sizes


def _half(ids: tuple[int, ...], first: bool) -> list[int]:
    middle = (len(ids) + 1) // 2
    return list(ids[:middle] if first else ids[middle:])


def _pad_sequence(model: Model, ids: tuple[int, ...], side: str) -> tuple[Tensor, Tensor]:
    pad_id = model.config.special_tokens.pad or 0
    padding = [pad_id if pad_id < model.config.vocab_size else 0] * NUM_PADDING_TOKENS  # masked, so any token will do
    row = [*padding, *ids] if side == "left" else [*ids, *padding]
    mask = torch.ones(1, len(row), dtype=torch.bool, device=model.device)
    mask[:, slice(0, NUM_PADDING_TOKENS) if side == "left" else slice(len(ids), None)] = False
    return _to_tensor(model, [row]), mask


def _padding_masks(model: Model, padding_mask: Tensor, source: dict[str, Tensor]) -> dict[str, Tensor | None]:
    if model.is_encoder_decoder:
        return {"decoder": padding_mask, "encoder": source.get("source_padding_mask")}
    return {"decoder": padding_mask, "encoder": padding_mask, "words": padding_mask}


def _to_tensor(model: Model, rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([list(row) for row in rows], device=model.device)


def source_inputs(model: Model, sequences: Sequence[TokenSequence]) -> dict[str, Any]:
    """Return the source arguments of an encoder-decoder; empty for other models."""
    sources = [sequence.source_ids for sequence in sequences if sequence.source_ids is not None]
    if not sources:
        return {}
    ids, mask = pad_sequences(sources)
    return {"source": ids.to(model.device), "source_padding_mask": mask.to(model.device)}


def _tap_for(recorder: StepRecorder | None, index: int) -> Tap | None:
    return recorder.make_tap() if recorder is not None and recorder.index == index else None


def _recorder_for(recorder: StepRecorder | None, index: int) -> StepRecorder | None:
    return recorder if recorder is not None and recorder.index == index else None
