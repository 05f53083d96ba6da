"""Steps of a formula as a document: the notebook output of `peasy.attend(...)`."""

from collections.abc import Iterator
from itertools import islice, product

import numpy as np

from peasy.formula import FormulaStep, Steps
from peasy.formula.step import Array
from peasy.views.document import Document, DocumentPart, Heading, Matrix, Paragraph

MAX_TABLES = 8
"""Maximum number of tables (heads and batch entries) per step."""

MAX_SIZE = 40
"""Maximum number of rows and columns of one table; the arrays are not cut."""


def steps_document(steps: Steps) -> Document:
    """Document with every step as a labelled matrix; heads and batch entries one after the other.

    >>> from peasy.formula import attend
    >>> [matrix.name for matrix in steps_document(attend([[1.0]], [[1.0]], [[2.0]])).matrices()][:2]
    ['query', 'key']
    """
    parts: list[DocumentPart] = []
    number, previous = 0, None
    for step, array in steps.step_arrays():
        if array is not previous:  # a step that changes nothing (no mask, no scale) is left out
            number += 1
            parts += [Heading(step.name, number), *_tables(step, array)]
        previous = array
    return Document(type(steps).__name__.removesuffix("Steps") or "Steps", tuple(parts))


def _tables(step: FormulaStep, array: Array) -> Iterator[DocumentPart]:
    axes = step.axes_of(array)
    indices = product(*(range(size) for size in array.shape[:-2]))
    count = int(np.prod(array.shape[:-2], dtype=int))
    for index in islice(indices, MAX_TABLES):
        label = ", ".join(f"{axis} {number}" for axis, number in zip(axes, index, strict=False))
        yield _matrix(step, array[index] if index else array, label, axes)
    if count > MAX_TABLES:
        yield Paragraph(f"{count - MAX_TABLES:,} more tables of {step.name} are not shown.", "note")
    if array.ndim >= 2 and max(array.shape[-2:]) > MAX_SIZE:
        size = "x".join(map(str, array.shape[-2:]))
        yield Paragraph(f"Only a part of {size} is shown; steps.{step.name} has all values.", "note")


def _matrix(step: FormulaStep, array: Array, label: str, axes: tuple[str, ...]) -> Matrix:
    array = array[None, :] if array.ndim == 1 else array
    height, width = (min(size, MAX_SIZE) for size in array.shape)
    shown = array[:height, :width]
    rows = np.asarray(shown.detach().cpu().double() if hasattr(shown, "detach") else shown, dtype=float)
    name = f"{step.name} ({label})" if label else step.name
    labels = tuple(map(str, range(rows.shape[0]))), tuple(map(str, range(rows.shape[1])))
    row_axis, column_axis = axes[-2:] if len(axes) > 1 else ("", axes[-1])
    values = tuple(tuple(row) for row in rows.tolist())
    shaded = step.name == "weights"
    return Matrix(name, values, *labels, row_axis, column_axis, step.tex, step.description, shaded=shaded)
