"""Execution paths of a model: uncached, cached, chunked, padded, batched; each returns the outputs for every token.

A path takes all sequences and can record one of them, so that two paths can be compared step by step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from peasy.models.encoder import Encoder, pad
from peasy.models.protocol import Model
from peasy.nn.tap import HEAD_STEPS, Place, Seen, Tap

STEPS = ("residual", "normed", "query", "key", "value", "context", "activation", "output", "final")
PADS = 3
"""Padding tokens added to a sequence."""


@dataclass(frozen=True)
class Text:
    """Token ids of a sequence, and of its source for an encoder-decoder."""

    ids: tuple[int, ...]
    source: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """Model outputs for one sequence: logits (or hidden states) of every token; for an encoder the pooled vector."""

    rows: Tensor
    vector: Tensor | None = None


@dataclass(eq=False)
class Watch:
    """Recorder of all activations of sequence `index`, joined over chunks and picked out of batches."""

    index: int
    steps: dict[tuple[Place, str], list[Tensor]] = field(default_factory=dict)
    row: int = 0
    shown: dict[str, Tensor] = field(default_factory=dict)
    new: int | None = None

    def tap(self, row: int = 0, new: int | None = None, shown: Mapping[str, Tensor | None] | None = None) -> Tap:
        """Return a tap for the next forward pass: batch row, number of new tokens, padding mask per stack."""
        self.row, self.new = row, new
        self.shown = {stack: mask[row] for stack, mask in (shown or {}).items() if mask is not None}
        return Tap(self._take, steps=STEPS)

    def _take(self, seen: Seen) -> None:
        if seen.place.part == "cross_attention" and seen.step in ("key", "value"):
            return  # keys and values of the source, computed only once
        array = seen.array[self.row if len(seen.array) > self.row else 0]
        if self.new is not None and seen.step in ("key", "value"):
            array = array[:, -self.new :]
        if seen.place.stack in self.shown:
            axis = 1 if seen.step in HEAD_STEPS else 0
            array = array.index_select(axis, self.shown[seen.place.stack].nonzero()[:, 0])
        self.steps.setdefault((seen.place, seen.step), []).append(array)

    def whole(self) -> dict[tuple[Place, str], Tensor]:
        """Return each step for the whole sequence, in the order of the forward pass."""
        return {key: torch.cat(pieces, dim=1 if key[1] in HEAD_STEPS else 0) for key, pieces in self.steps.items()}


Road = Callable[[Model, Sequence[Text], Watch | None], list[Outcome]]


def alone(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """Run each sequence alone, in one pass without cache: the reference for all other paths."""
    return [
        _outcome(model, _ids(model, [text.ids]), tap=_tap(watch, index), **source_of(model, [text]))
        for index, text in enumerate(texts)
    ]


def in_a_batch(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """Run all sequences in one padded batch, the last one first."""
    order = list(reversed(range(len(texts))))
    ids, mask = pad([texts[index].ids for index in order])
    ids, mask = ids.to(model.device), mask.to(model.device)
    source = source_of(model, [texts[index] for index in order])
    tap = None if watch is None else watch.tap(order.index(watch.index), shown=_shown(model, mask, source))
    outputs, vector = _answer(model, ids, real=mask, tap=tap, **source)
    by_index = {
        index: Outcome(outputs[row][mask[row]], None if vector is None else vector[row])
        for row, index in enumerate(order)
    }
    return [by_index[index] for index in range(len(texts))]


def side_by_side(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """Run all sequences in a variable-length batch as generation does: first half of each, then the rest."""
    states = [model.start(**source_of(model, [text])) for text in texts]
    chunks: list[list[Tensor]] = [[] for _ in texts]
    for first_half in (True, False):
        halves = [_half(text.ids, first_half) for text in texts]
        rows = [index for index, half in enumerate(halves) if half]
        taps = [watch.tap(0, len(halves[row])) if watch and watch.index == row else None for row in rows]
        batch_logits = model.read([halves[row] for row in rows], [states[row] for row in rows], every=True, tap=taps)
        for row, logits in zip(rows, batch_logits, strict=True):
            chunks[row].append(logits)
    return [Outcome(torch.cat(logits)) for logits in chunks]


def cached(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """Run with the KV cache: the first half as a prompt, then one token at a time."""
    return [_in_pieces(model, text, _steps(len(text.ids)), _for(watch, i)) for i, text in enumerate(texts)]


def in_chunks(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """Run with the KV cache in chunks of 1, 2, 3, 5, 8, ... tokens."""
    return [_in_pieces(model, text, _growing(len(text.ids)), _for(watch, i)) for i, text in enumerate(texts)]


def padded(side: str) -> Road:
    """Return a path that runs each sequence alone with padding on its left or right (and its source's)."""

    def run(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
        results = []
        for index, text in enumerate(texts):
            ids, mask = _pad_one(model, text.ids, side)
            source = {}
            if text.source is not None:
                source = dict(zip(("source", "source_real"), _pad_one(model, text.source, side), strict=True))
            recorder = _for(watch, index)
            tap = None if recorder is None else recorder.tap(0, shown=_shown(model, mask, source))
            outputs, vector = _answer(model, ids, real=mask, tap=tap, **source)
            results.append(Outcome(outputs[0][mask[0]], None if vector is None else vector[0]))
        return results

    return run


def _answer(model: Model, ids: Tensor, real: Tensor | None = None, **how: Any) -> tuple[Tensor, Tensor | None]:
    hidden = model.hidden(ids, real=real, **how)
    outputs = hidden if getattr(model, "head", model) is None else model.scores(hidden)
    return outputs, model.pool(hidden, real) if isinstance(model, Encoder) else None


def _outcome(model: Model, ids: Tensor, **how: Any) -> Outcome:
    outputs, vector = _answer(model, ids, **how)
    return Outcome(outputs[0], None if vector is None else vector[0])


def _in_pieces(model: Model, text: Text, sizes: list[int], watch: Watch | None) -> Outcome:
    state = model.start(room=len(text.ids), **source_of(model, [text]))
    chunks = _ids(model, [text.ids]).split(sizes, dim=1)
    logits = [
        model(chunk, cache=state, tap=None if watch is None else watch.tap(0, chunk.shape[1]))[0] for chunk in chunks
    ]
    return Outcome(torch.cat(logits))


def _steps(length: int) -> list[int]:
    first = max(length // 2, 1)
    return [first, *[1] * (length - first)]


def _growing(length: int) -> list[int]:
    sizes, size, following = [], 1, 2
    while length:
        sizes.append(min(size, length))
        length -= sizes[-1]
        size, following = following, size + following
    return sizes


def _half(ids: tuple[int, ...], first: bool) -> list[int]:
    middle = (len(ids) + 1) // 2
    return list(ids[:middle] if first else ids[middle:])


def _pad_one(model: Model, ids: tuple[int, ...], side: str) -> tuple[Tensor, Tensor]:
    pad_id = model.config.special.padding or 0
    padding = [pad_id if pad_id < model.config.vocabulary else 0] * PADS  # masked, so any token will do
    row = [*padding, *ids] if side == "left" else [*ids, *padding]
    mask = torch.ones(1, len(row), dtype=torch.bool, device=model.device)
    mask[:, slice(0, PADS) if side == "left" else slice(len(ids), None)] = False
    return _ids(model, [row]), mask


def _shown(model: Model, real: Tensor, source: dict[str, Tensor]) -> dict[str, Tensor | None]:
    if model.reads_source:
        return {"decoder": real, "encoder": source.get("source_real")}
    return {"decoder": real, "encoder": real, "words": real}


def _ids(model: Model, rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([list(row) for row in rows], device=model.device)


def source_of(model: Model, texts: Sequence[Text]) -> dict[str, Any]:
    """Return the source arguments of an encoder-decoder; empty for other models."""
    sources = [text.source for text in texts if text.source is not None]
    if not sources:
        return {}
    ids, mask = pad(sources)
    return {"source": ids.to(model.device), "source_real": mask.to(model.device)}


def _tap(watch: Watch | None, index: int) -> Tap | None:
    return watch.tap() if watch is not None and watch.index == index else None


def _for(watch: Watch | None, index: int) -> Watch | None:
    return watch if watch is not None and watch.index == index else None
