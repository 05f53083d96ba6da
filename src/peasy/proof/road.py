"""Roads: ways to read the same texts, each giving what the model makes of every token.

A road takes all texts and may be watched on one of them, so that two roads can be compared step by step.
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
"""So many padding tokens stand beside a text."""


@dataclass(frozen=True)
class Text:
    """Ids, and for a model that answers a source the source's ids."""

    ids: tuple[int, ...]
    source: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a model makes of a text: a row for every token, and for an encoder the vector of the text."""

    rows: Tensor
    vector: Tensor | None = None


@dataclass(eq=False)
class Watch:
    """All steps of text number `index`, token by token, in whatever pieces and batches it is read."""

    index: int
    steps: dict[tuple[Place, str], list[Tensor]] = field(default_factory=dict)
    row: int = 0
    shown: dict[str, Tensor] = field(default_factory=dict)
    new: int | None = None

    def tap(self, row: int = 0, new: int | None = None, shown: Mapping[str, Tensor | None] | None = None) -> Tap:
        """A tap for the next pass: the text is row `row`, has `new` new tokens, and is `shown` where True."""
        self.row, self.new = row, new
        self.shown = {stack: real[row] for stack, real in (shown or {}).items() if real is not None}
        return Tap(self._take, steps=STEPS)

    def _take(self, seen: Seen) -> None:
        if seen.place.part == "cross_attention" and seen.step in ("key", "value"):
            return  # they are the source's, once for all
        array = seen.array[self.row if len(seen.array) > self.row else 0]
        if self.new is not None and seen.step in ("key", "value"):
            array = array[:, -self.new :]
        if seen.place.stack in self.shown:
            axis = 1 if seen.step in HEAD_STEPS else 0
            array = array.index_select(axis, self.shown[seen.place.stack].nonzero()[:, 0])
        self.steps.setdefault((seen.place, seen.step), []).append(array)

    def whole(self) -> dict[tuple[Place, str], Tensor]:
        """Every step of the whole text, in the order in which the model took them."""
        return {key: torch.cat(pieces, dim=1 if key[1] in HEAD_STEPS else 0) for key, pieces in self.steps.items()}


Road = Callable[[Model, Sequence[Text], Watch | None], list[Outcome]]


def alone(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """Each text by itself, all of it at once, with no cache: the road that every other is compared with."""
    return [
        _outcome(model, _ids(model, [text.ids]), tap=_tap(watch, index), **source_of(model, [text]))
        for index, text in enumerate(texts)
    ]


def in_a_batch(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """All texts in one padded array, the last one first."""
    order = list(reversed(range(len(texts))))
    ids, real = pad([texts[index].ids for index in order])
    ids, real = ids.to(model.device), real.to(model.device)
    source = source_of(model, [texts[index] for index in order])
    tap = None if watch is None else watch.tap(order.index(watch.index), shown=_shown(model, real, source))
    answer, vector = _answer(model, ids, real=real, tap=tap, **source)
    found = {
        index: Outcome(answer[row][real[row]], None if vector is None else vector[row])
        for row, index in enumerate(order)
    }
    return [found[index] for index in range(len(texts))]


def side_by_side(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """As generation reads: each into its own memory, in one pass, first a part of each and then the rest."""
    memories = [model.start(**source_of(model, [text])) for text in texts]
    pieces: list[list[Tensor]] = [[] for _ in texts]
    for begin in (True, False):
        parts = [_half(text.ids, begin) for text in texts]
        rows = [index for index, part in enumerate(parts) if part]
        taps = [watch.tap(0, len(parts[row])) if watch and watch.index == row else None for row in rows]
        read = model.read([parts[row] for row in rows], [memories[row] for row in rows], every=True, tap=taps)
        for row, scores in zip(rows, read, strict=True):
            pieces[row].append(scores)
    return [Outcome(torch.cat(each)) for each in pieces]


def cached(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """As a text is written: the first half as a prompt, then one token at a time, each from the cache."""
    return [_in_pieces(model, text, _steps(len(text.ids)), _for(watch, i)) for i, text in enumerate(texts)]


def in_chunks(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
    """Pieces of 1, 2, 3, 5, 8, ... tokens, each from the cache of those before."""
    return [_in_pieces(model, text, _growing(len(text.ids)), _for(watch, i)) for i, text in enumerate(texts)]


def padded(side: str) -> Road:
    """Each text by itself with padding to its left or right (and its source's)."""

    def road(model: Model, texts: Sequence[Text], watch: Watch | None = None) -> list[Outcome]:
        found = []
        for index, text in enumerate(texts):
            ids, real = _pad_one(model, text.ids, side)
            source = {}
            if text.source is not None:
                source = dict(zip(("source", "source_real"), _pad_one(model, text.source, side), strict=True))
            watched = _for(watch, index)
            tap = None if watched is None else watched.tap(0, shown=_shown(model, real, source))
            answer, vector = _answer(model, ids, real=real, tap=tap, **source)
            found.append(Outcome(answer[0][real[0]], None if vector is None else vector[0]))
        return found

    return road


def _answer(model: Model, ids: Tensor, real: Tensor | None = None, **how: Any) -> tuple[Tensor, Tensor | None]:
    hidden = model.hidden(ids, real=real, **how)
    answer = hidden if getattr(model, "head", model) is None else model.scores(hidden)
    return answer, model.pool(hidden, real) if isinstance(model, Encoder) else None


def _outcome(model: Model, ids: Tensor, **how: Any) -> Outcome:
    answer, vector = _answer(model, ids, **how)
    return Outcome(answer[0], None if vector is None else vector[0])


def _in_pieces(model: Model, text: Text, sizes: list[int], watch: Watch | None) -> Outcome:
    memory = model.start(room=len(text.ids), **source_of(model, [text]))
    pieces = _ids(model, [text.ids]).split(sizes, dim=1)
    found = [
        model(piece, cache=memory, tap=None if watch is None else watch.tap(0, piece.shape[1]))[0] for piece in pieces
    ]
    return Outcome(torch.cat(found))


def _steps(length: int) -> list[int]:
    first = max(length // 2, 1)
    return [first, *[1] * (length - first)]


def _growing(length: int) -> list[int]:
    sizes, step, after = [], 1, 2
    while length:
        sizes.append(min(step, length))
        length -= sizes[-1]
        step, after = after, step + after
    return sizes


def _half(ids: tuple[int, ...], first: bool) -> list[int]:
    middle = (len(ids) + 1) // 2
    return list(ids[:middle] if first else ids[middle:])


def _pad_one(model: Model, ids: tuple[int, ...], side: str) -> tuple[Tensor, Tensor]:
    padding = model.config.special.padding or 0
    filler = [padding if padding < model.config.vocabulary else 0] * PADS  # nobody looks at it: any token will do
    row = [*filler, *ids] if side == "left" else [*ids, *filler]
    real = torch.ones(1, len(row), dtype=torch.bool, device=model.device)
    real[:, slice(0, PADS) if side == "left" else slice(len(ids), None)] = False
    return _ids(model, [row]), real


def _shown(model: Model, real: Tensor, source: dict[str, Tensor]) -> dict[str, Tensor | None]:
    if model.reads_source:
        return {"decoder": real, "encoder": source.get("source_real")}
    return {"decoder": real, "encoder": real, "words": real}


def _ids(model: Model, rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([list(row) for row in rows], device=model.device)


def source_of(model: Model, texts: Sequence[Text]) -> dict[str, Any]:
    """What a model that answers a source is given beside the ids."""
    sources = [text.source for text in texts if text.source is not None]
    if not sources:
        return {}
    ids, real = pad(sources)
    return {"source": ids.to(model.device), "source_real": real.to(model.device)}


def _tap(watch: Watch | None, index: int) -> Tap | None:
    return watch.tap() if watch is not None and watch.index == index else None


def _for(watch: Watch | None, index: int) -> Watch | None:
    return watch if watch is not None and watch.index == index else None
