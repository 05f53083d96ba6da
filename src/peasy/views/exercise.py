"""Worksheet as a document: given values and blank tables to fill in, or the answer key."""

from collections.abc import Iterator

from peasy.views.document import Document, Heading, Matrix, Paragraph, Part
from peasy.views.worked import as_cells, step_matrix
from peasy.worked.exercise import Exercise, caption
from peasy.worked.work import WorkedStep


def sheet_document(exercise: Exercise, decimals: int = 2) -> Document:
    """Document of the worksheet, with blank tables."""
    task = f"Fill in the blank tables, rounded to {decimals} decimals. Then run peasy check on the file."
    return _document(exercise, exercise.worked.example.title, task, False, decimals)


def key_document(exercise: Exercise, decimals: int = 2) -> Document:
    """Document of the answer key."""
    return _document(exercise, f"{exercise.worked.example.title}, answers", "", True, decimals)


def _document(exercise: Exercise, title: str, how: str, answered: bool, decimals: int) -> Document:
    parts: list[Part] = [Paragraph(how)] if how else []
    parts += [Paragraph(setting) for setting in exercise.settings]
    parts += [Heading("Given"), *(_table(exercise, step, True, decimals) for step in exercise.given)]
    parts += _asked(exercise, answered, decimals)
    return Document(title, tuple(parts), decimals, exercise.settings)


def _asked(exercise: Exercise, answered: bool, decimals: int) -> Iterator[Part]:
    yield Heading("Answers" if answered else "To fill in")
    for step in exercise.asked:
        yield _table(exercise, step, answered, decimals)


def _table(exercise: Exercise, step: WorkedStep, filled: bool, decimals: int) -> Matrix:
    matrix = step_matrix(exercise.worked, step, decimals, shaded=False)
    blank = tuple(tuple(None for _ in step.columns) for _ in step.rows)
    return Matrix(
        caption(step), as_cells(step.values) if filled else blank, matrix.rows, matrix.columns, matrix.row_axis,
        matrix.column_axis, matrix.tex, matrix.says, explain=matrix.explain if filled else None,
    )  # fmt: skip
