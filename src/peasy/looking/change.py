"""Interventions applied during a forward pass: resolves intervention specs to layers, heads and positions."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.looking.edit import Cut, Edit, Even, Off, Patch
from peasy.looking.label import Part, Tokens
from peasy.looking.part import default_stack, parts_of, widths_of
from peasy.looking.reading import Reading, run
from peasy.looking.words import find_word
from peasy.models.protocol import Model
from peasy.nn.edit import Change
from peasy.nn.place import Place
from peasy.nn.tap import Seen, Tap

Cutter = Callable[[str], Reading]
"""From a text to the model's input; a patch needs it for its source text."""


def make_change(
    edits: Sequence[Edit], model: Model, axes: Callable[[Place], tuple[Tokens, Tokens]] | None = None,
    cutter: Cutter | None = None,
) -> Change | None:  # fmt: skip
    """Return one intervention for all specs, or None. `axes` labels queries and keys, to find words by name."""
    if not edits:
        return None
    for edit in edits:
        _check(edit, model)
    return _All(edits, model, axes, cutter)


class _All(Change):
    """Combined intervention; an ablated head's output is zeroed before the output projection."""

    def __init__(
        self,
        edits: Sequence[Edit],
        model: Model,
        axes: Callable[[Place], tuple[Tokens, Tokens]] | None,
        cutter: Cutter | None,
    ) -> None:
        self.stack, self.heads = default_stack(model), {part.place: part.heads for part in parts_of(model)}
        self.off = [edit for edit in edits if isinstance(edit, Off)]
        self.even = [edit for edit in edits if isinstance(edit, Even)]
        self.edges = [edge for edit in edits if isinstance(edit, Cut) for edge in self._edges(edit, axes)]
        self.patches = [_Patched(edit, model, self.stack, axes, cutter) for edit in edits if isinstance(edit, Patch)]

    def hides(self, place: Place, heads: int, queries: Tensor, keys: Tensor) -> Tensor | None:
        edges = [(edge_heads, query, key) for edge_path, edge_heads, query, key in self.edges if edge_path == place]
        if not edges:
            return None
        hidden = torch.zeros(heads, len(queries), len(keys), dtype=torch.bool, device=keys.device)
        for edge_heads, query, key in edges:
            hidden[list(edge_heads)] |= torch.isin(queries, query.to(queries))[:, None] & torch.isin(keys, key.to(keys))
        return hidden

    def evens(self, place: Place) -> tuple[int, ...]:
        specs = [spec for spec in self.even if self._is(spec, place) and spec.part == place.part]
        heads = {head for spec in specs for head in (range(self.heads[place]) if spec.head is None else (spec.head,))}
        return tuple(sorted(heads))

    def context(self, place: Place, context: Tensor, queries: Tensor) -> Tensor:
        heads = [e.head for e in self.off if e.head is not None and self._is(e, place) and e.part in (None, place.part)]
        if heads:
            context = context.clone()
            context[:, heads] = 0
        for patch in self.patches:
            context = patch.context(place, context, queries)
        return context

    def stream(self, place: Place, step: str, array: Tensor, queries: Tensor) -> Tensor:
        ablated = any(e.head is None and self._is(e, place) and e.part in (None, place.part) for e in self.off)
        if ablated and step == "output":
            array = torch.zeros_like(array)
        for patch in self.patches:
            array = patch.stream(place, step, array, queries)
        return array

    def _is(self, edit: Off | Even, place: Place) -> bool:
        # a head number means self-attention unless cross-attention is named
        part_matches = place.part != "cross_attention" or edit.part == "cross_attention" or edit.head is None
        return (edit.stack or self.stack, edit.layer) == (place.stack, place.layer) and part_matches

    def _edges(
        self, edit: Cut, axes: Callable[[Place], tuple[Tokens, Tokens]] | None
    ) -> list[tuple[Place, tuple[int, ...], Tensor, Tensor]]:
        edges = []
        for path, heads in self.heads.items():
            if (edit.stack or self.stack, edit.part) != (path.stack, path.part) or edit.layer not in (None, path.layer):
                continue
            query, key = _places(edit.query, axes, path, 0), _places(edit.key, axes, path, 1)
            edges.append((path, tuple(range(heads)) if edit.head is None else (edit.head,), query, key))
        return edges


class _Patched:
    """Activation patching: replaces activations by those captured from another text."""

    def __init__(
        self,
        edit: Patch,
        model: Model,
        stack: str,
        axes: Callable[[Place], tuple[Tokens, Tokens]] | None,
        cutter: Cutter | None,
    ) -> None:
        part = "stream" if edit.step == "residual" else edit.part
        self.edit, self.place = edit, Place(edit.stack or stack, edit.layer, part)
        if cutter is None:
            raise InvalidInput("A patch needs a tokenizer for its source text.")
        self.given = _collect(model, cutter(edit.text), self.place, edit.step)
        self.rows = None
        if edit.rows is not None:
            self.rows = torch.cat([_places(word, axes, self.place, 0) for word in edit.rows])

    def context(self, place: Place, context: Tensor, queries: Tensor) -> Tensor:
        if place != self.place or self.edit.step != "context":
            return context
        heads = [self.edit.head] if self.edit.head is not None else list(range(context.shape[1]))
        rows, source_rows = self._rows(queries, self.given.shape[2])
        patched = context.clone()
        for head in heads:
            patched[:, head, rows] = self.given[:, head, source_rows].to(context.dtype)
        return patched

    def stream(self, place: Place, step: str, array: Tensor, queries: Tensor) -> Tensor:
        if place != self.place or step != self.edit.step:
            return array
        rows, source_rows = self._rows(queries, self.given.shape[1])
        patched = array.clone()
        patched[:, rows] = self.given[:, source_rows].to(array.dtype)
        return patched

    def _rows(self, queries: Tensor, there: int) -> tuple[Tensor, Tensor]:
        """Return the patched rows of this pass and the matching rows of the source text."""
        patched = queries if self.rows is None else queries[torch.isin(queries, self.rows.to(queries))]
        if len(patched) and int(patched.max()) >= there:
            raise InvalidInput(
                f"The source text has only {there} tokens: nothing to patch at position {int(patched.max())}.",
                hint="Give a text with as many tokens, or name the rows.",
            )
        return torch.nonzero(torch.isin(queries, patched))[:, 0], patched


def _collect(model: Model, reading: Reading, place: Place, step: str) -> Tensor:
    activations: list[Seen] = []
    tap = Tap(activations.append, steps=[step], layers=[place.layer], parts=[place.part], stacks=[place.stack])
    run(model, reading, tap)
    if not activations:
        raise InvalidInput(f"Layer {place.layer} has no {step} of {place.part} to patch from.")
    return activations[0].array.clone()


def _places(word: str | int, axes: Callable[[Place], tuple[Tokens, Tokens]] | None, place: Place, side: int) -> Tensor:
    if axes is None:
        if isinstance(word, str):
            raise InvalidInput(f'"{word}": words cannot be used here, only positions.', hint="Give a number.")
        return torch.tensor([word])
    return torch.tensor(find_word(axes(place)[side], word))


def _check(edit: Edit, model: Model) -> None:
    stack, parts = edit.stack or default_stack(model), parts_of(model)
    layers = widths_of(model).layers
    if stack not in layers and not any(part.place.stack == stack for part in parts):
        raise InvalidInput(f'There is no stack "{stack}".', hint=f"Choose {' or '.join(layers)}.")
    count = max(layers.get(stack, 0), *(p.place.layer + 1 for p in parts if p.place.stack == stack), 1)
    if edit.layer is not None and not 0 <= edit.layer < count:
        raise InvalidInput(f"There is no layer {edit.layer}.", hint=f"Choose from 0 to {count - 1}.")
    if not parts and not isinstance(edit, Off):
        raise InvalidInput("This model has no attention to intervene on.")
    _check_head(edit, parts, stack)


def _check_head(edit: Edit, parts: tuple[Part, ...], stack: str) -> None:
    known = ("attention", "cross_attention", "feedforward")
    if edit.part is not None and edit.part not in known:
        raise InvalidInput(f'There is no part "{edit.part}".', hint=f"Choose {', '.join(known)}.")
    if isinstance(edit, Patch) and edit.step not in ("context", "output", "residual"):
        raise InvalidInput(f'"{edit.step}" cannot be patched.', hint="Choose context, output or residual.")
    heads = max((part.heads for part in parts if part.place.stack == stack), default=0)
    if edit.head is not None and not 0 <= edit.head < heads:
        hint = f"Choose from 0 to {heads - 1}." if heads else "This model has no attention."
        raise InvalidInput(f"There is no head {edit.head}.", hint=hint)
