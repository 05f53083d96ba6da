"""From edits in words to the change that a running model meets."""

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
"""Makes of a text what the model reads; a patch needs it for its other text."""


def make_change(
    edits: Sequence[Edit], model: Model, axes: Callable[[Place], tuple[Tokens, Tokens]] | None = None,
    cutter: Cutter | None = None,
) -> Change | None:  # fmt: skip
    """The change that does all of them; None for none. `axes` names queries and keys where words are cut or patched."""
    if not edits:
        return None
    for edit in edits:
        _check(edit, model)
    return _All(edits, model, axes, cutter)


class _All(Change):
    """Every edit at its place. Heads are switched off by zeros where they would have been joined."""

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
        mine = [(chosen, query, key) for there, chosen, query, key in self.edges if there == place]
        if not mine:
            return None
        found = torch.zeros(heads, len(queries), len(keys), dtype=torch.bool, device=keys.device)
        for chosen, query, key in mine:
            found[list(chosen)] |= torch.isin(queries, query.to(queries))[:, None] & torch.isin(keys, key.to(keys))
        return found

    def evens(self, place: Place) -> tuple[int, ...]:
        mine = [edit for edit in self.even if self._is(edit, place) and edit.part == place.part]
        chosen = {head for edit in mine for head in (range(self.heads[place]) if edit.head is None else (edit.head,))}
        return tuple(sorted(chosen))

    def context(self, place: Place, context: Tensor, queries: Tensor) -> Tensor:
        heads = [e.head for e in self.off if e.head is not None and self._is(e, place) and e.part in (None, place.part)]
        if heads:
            context = context.clone()
            context[:, heads] = 0
        for patch in self.patches:
            context = patch.context(place, context, queries)
        return context

    def stream(self, place: Place, step: str, array: Tensor, queries: Tensor) -> Tensor:
        whole = [e for e in self.off if e.head is None and self._is(e, place) and e.part in (None, place.part)]
        if whole and step == "output":
            array = torch.zeros_like(array)
        for patch in self.patches:
            array = patch.stream(place, step, array, queries)
        return array

    def _is(self, edit: Off | Even, place: Place) -> bool:
        # a head of cross-attention is meant only where it is named
        named = place.part != "cross_attention" or edit.part == "cross_attention" or edit.head is None
        return (edit.stack or self.stack, edit.layer) == (place.stack, place.layer) and named

    def _edges(
        self, edit: Cut, axes: Callable[[Place], tuple[Tokens, Tokens]] | None
    ) -> list[tuple[Place, tuple[int, ...], Tensor, Tensor]]:
        found = []
        for place, heads in self.heads.items():
            if (edit.stack or self.stack, edit.part) != (place.stack, place.part) or edit.layer not in (
                None,
                place.layer,
            ):
                continue
            query, key = _places(edit.query, axes, place, 0), _places(edit.key, axes, place, 1)
            found.append((place, tuple(range(heads)) if edit.head is None else (edit.head,), query, key))
        return found


class _Patched:
    """What another text had at a place, put where this one would have its own."""

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
            raise InvalidInput("A patch comes from another text, and here texts cannot be read.")
        self.given = _collect(model, cutter(edit.text), self.place, edit.step)
        self.rows = None
        if edit.rows is not None:
            self.rows = torch.cat([_places(word, axes, self.place, 0) for word in edit.rows])

    def context(self, place: Place, context: Tensor, queries: Tensor) -> Tensor:
        if place != self.place or self.edit.step != "context":
            return context
        heads = [self.edit.head] if self.edit.head is not None else list(range(context.shape[1]))
        mine, theirs = self._rows(queries, self.given.shape[2])
        changed = context.clone()
        for head in heads:
            changed[:, head, mine] = self.given[:, head, theirs].to(context.dtype)
        return changed

    def stream(self, place: Place, step: str, array: Tensor, queries: Tensor) -> Tensor:
        if place != self.place or step != self.edit.step:
            return array
        mine, theirs = self._rows(queries, self.given.shape[1])
        changed = array.clone()
        changed[:, mine] = self.given[:, theirs].to(array.dtype)
        return changed

    def _rows(self, queries: Tensor, there: int) -> tuple[Tensor, Tensor]:
        """(rows of this pass, rows of the other text) that stand at the same asked places."""
        asked = queries if self.rows is None else queries[torch.isin(queries, self.rows.to(queries))]
        if len(asked) and int(asked.max()) >= there:
            raise InvalidInput(
                f"The other text has {there} tokens: there is nothing to take for place {int(asked.max())}.",
                hint="Give a text with as many tokens, or name the rows.",
            )
        return torch.nonzero(torch.isin(queries, asked))[:, 0], asked


def _collect(model: Model, reading: Reading, place: Place, step: str) -> Tensor:
    seen: list[Seen] = []
    tap = Tap(seen.append, steps=[step], layers=[place.layer], parts=[place.part], stacks=[place.stack])
    run(model, reading, tap)
    if not seen:
        raise InvalidInput(f"There is no {step} of {place.part} in layer {place.layer} to take.")
    return seen[0].array.clone()


def _places(word: str | int, axes: Callable[[Place], tuple[Tokens, Tokens]] | None, place: Place, side: int) -> Tensor:
    if axes is None:
        if isinstance(word, str):
            raise InvalidInput(f'Where is "{word}"? Here only places can be named.', hint="Give a number.")
        return torch.tensor([word])
    return torch.tensor(find_word(axes(place)[side], word))


def _check(edit: Edit, model: Model) -> None:
    stack, parts = edit.stack or default_stack(model), parts_of(model)
    layers = widths_of(model).layers
    if stack not in layers and not any(part.place.stack == stack for part in parts):
        raise InvalidInput(f'There is no stack "{stack}".', hint=f"There is {' and '.join(layers)}.")
    most = max(layers.get(stack, 0), *(p.place.layer + 1 for p in parts if p.place.stack == stack), 1)
    if edit.layer is not None and not 0 <= edit.layer < most:
        raise InvalidInput(f"There is no layer {edit.layer} to change.", hint=f"Here they go from 0 to {most - 1}.")
    if not parts and not isinstance(edit, Off):
        raise InvalidInput("This model has no attention to change.")
    _check_head(edit, parts, stack)


def _check_head(edit: Edit, parts: tuple[Part, ...], stack: str) -> None:
    known = ("attention", "cross_attention", "feedforward")
    if edit.part is not None and edit.part not in known:
        raise InvalidInput(f'There is no part "{edit.part}".', hint=f"Choose {', '.join(known)}.")
    if isinstance(edit, Patch) and edit.step not in ("context", "output", "residual"):
        raise InvalidInput(f'"{edit.step}" cannot be patched.', hint="Choose context, output or residual.")
    heads = max((part.heads for part in parts if part.place.stack == stack), default=0)
    if edit.head is not None and not 0 <= edit.head < heads:
        hint = f"Here they go from 0 to {heads - 1}." if heads else "This model has no attention."
        raise InvalidInput(f"There is no head {edit.head} to change.", hint=hint)
