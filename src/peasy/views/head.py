"""One real head step by step, as on paper: its own queries, keys and values worked through the one formula."""

from collections.abc import Sequence

import numpy as np

from peasy.errors import NotFound
from peasy.looking.record import Look
from peasy.nn.place import Place
from peasy.views.attention import opening, short_title
from peasy.views.document import Document, Paragraph
from peasy.views.worked import worked_document
from peasy.worked.example import Example
from peasy.worked.work import Worked, work

MOST_TOKENS = 40
"""More tokens than this are no example on paper; a window of them is worked instead."""

NEEDED = ("query", "key", "value")


def head_document(look: Look, place: Place, head: int, decimals: int = 4, rows: Sequence[int] = ()) -> Document:
    """Every step of one head with its real numbers; each cell opens to its arithmetic."""
    worked = work_head(look, place, head, rows)
    shown = worked_document(worked, decimals=decimals)
    said = [*opening(look.edits), *agreement(look, place, head, worked, rows)]
    return Document(shown.title, (*said, *shown.parts), decimals, shown.settings)


def work_head(look: Look, place: Place, head: int, rows: Sequence[int] = ()) -> Worked:
    """The head as a worked example: the asked queries (all, where none are asked) on all keys."""
    query, key, value = (_of(look, name, place, head) for name in NEEDED)
    queries, keys = look.axes(place)
    captured = look.of("query")[place].rows or tuple(range(len(query)))
    asked = [row for row in (rows or captured) if row in captured][:MOST_TOKENS]
    last = len(keys) if place.part == "cross_attention" else max(asked) + 1
    seen = [key_place for key_place in range(len(keys)) if key_place < max(last, 1)][-MOST_TOKENS:]
    part = look.part(place)
    causal = part is not None and part.causal and not part.cross
    mask = tuple(tuple(not causal or k <= row for k in seen) for row in asked)
    hidden = not all(all(line) for line in mask)
    example = Example(
        title=f"Layer {place.layer}, head {head}: {short_title(look.tokens.text, look.model)}",
        tokens=tuple(queries.pieces[row] for row in asked),
        source_tokens=tuple(keys.pieces[k] for k in seen),
        q=_rows(query[[captured.index(row) for row in asked]]),
        k=_rows(key[seen]),
        v=_rows(value[seen]),
        mask=mask if hidden else None,
        says="The real queries, keys and values of this head",
    )
    return work(example)


def agreement(look: Look, place: Place, head: int, worked: Worked, rows: Sequence[int] = ()) -> list[Paragraph]:
    """Whether the steps give the weights that the model itself used; it says so where the model does more."""
    capture = look.of("weights").get(place)
    if capture is None or head not in capture.heads or len(worked.keys) < len(look.axes(place)[1]):
        return []
    there = capture.rows or tuple(range(capture.array.shape[1]))
    asked = [row for row in (rows or there) if row in there][: len(worked.tokens)]
    used = np.asarray(capture.array[capture.heads.index(head)], dtype=float)[[there.index(row) for row in asked]]
    mine = worked.find("weights")
    if mine is None or mine.shape != used.shape:
        return []
    off = float(np.abs(mine - used).max())
    if off <= 2e-3:
        return [
            Paragraph(
                f"Worked out here and used by the model: the same weights to within {max(off, 1e-7):.0e}.", "good"
            )
        ]
    return [
        Paragraph(
            f"This model does more than the plain formula here (positions, a bias): up to {off:.3f} apart.", "bad"
        )
    ]


def _of(look: Look, step: str, place: Place, head: int) -> np.ndarray:
    capture = look.of(step).get(place)
    if capture is None or head not in capture.heads:
        raise NotFound(
            f"The {step} of layer {place.layer}, head {head} was not captured.",
            hint='Ask for it: steps=("query", "key", "value", "weights").',
        )
    return np.asarray(capture.array[capture.heads.index(head)], dtype=float)


def _rows(array: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, array.tolist()))
