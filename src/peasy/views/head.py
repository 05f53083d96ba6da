"""Worked example of one attention head of a model: its queries, keys and values through the formula, step by step."""

from collections.abc import Sequence

import numpy as np

from peasy.errors import NotFound
from peasy.inspection.results import AttentionRecord
from peasy.nn.module_path import ModulePath
from peasy.views.attention import opening_notes
from peasy.views.document import Document, Paragraph, short_title
from peasy.views.worked import worked_document
from peasy.worked.example import Example
from peasy.worked.solver import WorkedExample, solve

_MAX_TOKENS = 40
"""Maximum number of queries and keys of the example; of longer texts, a window is used."""


def head_document(record: AttentionRecord, path: ModulePath, head: int, rows: Sequence[int] = ()) -> Document:
    """Document with every step of one head; each cell can be expanded to its arithmetic."""
    worked = head_example(record, path, head, rows)
    document = worked_document(worked)
    notes = [*opening_notes(record.interventions), *_compare_weights(record, path, head, worked, rows)]
    return Document(document.title, (*notes, *document.parts), settings=document.settings)


def head_example(record: AttentionRecord, path: ModulePath, head: int, rows: Sequence[int] = ()) -> WorkedExample:
    """Return the head as a worked example: the requested queries (default: all) on all keys."""
    query, key, value = (_captured_step(record, name, path, head) for name in ("query", "key", "value"))
    queries, keys = record.axes(path)
    captured = record.by_path("query")[path].rows or tuple(range(len(query)))
    query_rows = [row for row in (rows or captured) if row in captured][:_MAX_TOKENS]
    last = len(keys) if path.part == "cross_attention" else max(query_rows) + 1
    key_rows = [k for k in range(len(keys)) if k < max(last, 1)][-_MAX_TOKENS:]
    info = record.attention_info(path)
    causal = info is not None and info.causal and not info.cross
    mask = tuple(tuple(not causal or k <= row for k in key_rows) for row in query_rows)
    masked = not all(all(line) for line in mask)
    example = Example(
        title=f"Layer {path.layer}, head {head}: {short_title(record.tokens.text, record.model)}",
        tokens=tuple(queries.pieces[row] for row in query_rows),
        source_tokens=tuple(keys.pieces[k] for k in key_rows),
        q=tuple(map(tuple, query[[captured.index(row) for row in query_rows]].tolist())),
        k=tuple(map(tuple, key[key_rows].tolist())),
        v=tuple(map(tuple, value[key_rows].tolist())),
        mask=mask if masked else None,
        description="The queries, keys and values of this head",
    )
    return solve(example)


def _compare_weights(
    record: AttentionRecord, path: ModulePath, head: int, worked: WorkedExample, rows: Sequence[int] = ()
) -> list[Paragraph]:
    """Compare the weights calculated here with those the model used; a difference means that it does more."""
    capture = record.by_path("weights").get(path)
    if capture is None or head not in capture.heads or len(worked.keys) < len(record.axes(path)[1]):
        return []
    captured = capture.rows or tuple(range(capture.array.shape[1]))
    selected = [captured.index(row) for row in (rows or captured) if row in captured][: len(worked.tokens)]
    model_weights = np.asarray(capture.array[capture.heads.index(head)], dtype=float)[selected]
    weights = worked.find_values("weights")
    if weights is None or weights.shape != model_weights.shape:
        return []
    difference = float(np.abs(weights - model_weights).max())
    same = f"Calculated here and used by the model: the same weights to within {max(difference, 1e-7):.0e}."
    other = f"The model does more than the plain formula (positions, a bias): weights differ by {difference:.3f}."
    return [Paragraph(same, "good") if difference <= 2e-3 else Paragraph(other, "bad")]


def _captured_step(record: AttentionRecord, step: str, path: ModulePath, head: int) -> np.ndarray:
    capture = record.by_path(step).get(path)
    if capture is None or head not in capture.heads:
        hint = 'Capture it: steps=("query", "key", "value", "weights").'
        raise NotFound(f"The {step} of layer {path.layer}, head {head} was not captured.", hint=hint)
    return np.asarray(capture.array[capture.heads.index(head)], dtype=float)
