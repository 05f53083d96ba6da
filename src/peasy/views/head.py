"""Worked example of one attention head of a model: its queries, keys and values through the formula, step by step."""

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
"""Maximum number of queries and keys of the example; of longer texts, a window is used."""

NEEDED = ("query", "key", "value")


def head_document(look: Look, place: Place, head: int, decimals: int = 4, rows: Sequence[int] = ()) -> Document:
    """Document with every step of one head; each cell can be expanded to its arithmetic."""
    worked = work_head(look, place, head, rows)
    document = worked_document(worked, decimals=decimals)
    notes = [*opening(look.edits), *agreement(look, place, head, worked, rows)]
    return Document(document.title, (*notes, *document.parts), decimals, document.settings)


def work_head(look: Look, place: Place, head: int, rows: Sequence[int] = ()) -> Worked:
    """Return the head as a worked example: the requested queries (default: all) on all keys."""
    query, key, value = (_of(look, name, place, head) for name in NEEDED)
    queries, keys = look.axes(place)
    captured = look.of("query")[place].rows or tuple(range(len(query)))
    query_rows = [row for row in (rows or captured) if row in captured][:MOST_TOKENS]
    last = len(keys) if place.part == "cross_attention" else max(query_rows) + 1
    key_rows = [k for k in range(len(keys)) if k < max(last, 1)][-MOST_TOKENS:]
    info = look.part(place)
    causal = info is not None and info.causal and not info.cross
    mask = tuple(tuple(not causal or k <= row for k in key_rows) for row in query_rows)
    masked = not all(all(line) for line in mask)
    example = Example(
        title=f"Layer {place.layer}, head {head}: {short_title(look.tokens.text, look.model)}",
        tokens=tuple(queries.pieces[row] for row in query_rows),
        source_tokens=tuple(keys.pieces[k] for k in key_rows),
        q=_rows(query[[captured.index(row) for row in query_rows]]),
        k=_rows(key[key_rows]),
        v=_rows(value[key_rows]),
        mask=mask if masked else None,
        says="The queries, keys and values of this head",
    )
    return work(example)


def agreement(look: Look, place: Place, head: int, worked: Worked, rows: Sequence[int] = ()) -> list[Paragraph]:
    """Compare the weights calculated here with those the model used; a difference means that it does more."""
    capture = look.of("weights").get(place)
    if capture is None or head not in capture.heads or len(worked.keys) < len(look.axes(place)[1]):
        return []
    captured = capture.rows or tuple(range(capture.array.shape[1]))
    selected = [captured.index(row) for row in (rows or captured) if row in captured][: len(worked.tokens)]
    model_weights = np.asarray(capture.array[capture.heads.index(head)], dtype=float)[selected]
    weights = worked.find("weights")
    if weights is None or weights.shape != model_weights.shape:
        return []
    difference = float(np.abs(weights - model_weights).max())
    if difference <= 2e-3:
        return [
            Paragraph(
                f"Calculated here and used by the model: the same weights to within {max(difference, 1e-7):.0e}.",
                "good",
            )
        ]
    return [
        Paragraph(
            f"The model does more than the plain formula (positions, a bias): weights differ by {difference:.3f}.",
            "bad",
        )
    ]


def _of(look: Look, step: str, place: Place, head: int) -> np.ndarray:
    capture = look.of(step).get(place)
    if capture is None or head not in capture.heads:
        raise NotFound(
            f"The {step} of layer {place.layer}, head {head} was not captured.",
            hint='Capture it: steps=("query", "key", "value", "weights").',
        )
    return np.asarray(capture.array[capture.heads.index(head)], dtype=float)


def _rows(array: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, array.tolist()))
