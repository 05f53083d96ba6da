"""Worksheet as a document: given values and blank tables to fill in, or the answer key."""

from collections.abc import Iterator

from peasy.views.document import Document, DocumentPart, Heading, Matrix, Paragraph
from peasy.views.worked import as_cells, step_matrix
from peasy.worked.exercise import Exercise, worksheet_caption
from peasy.worked.solver import WorkedStep


def worksheet_document(exercise: Exercise, decimals: int = 2) -> Document:
    """Document of the worksheet, with blank tables."""
    task = f"Fill in the blank tables, rounded to {decimals} decimals. Then run peasy check on the file."
    return _document(exercise, exercise.worked.example.title, task, False, decimals)


def answer_key_document(exercise: Exercise, decimals: int = 2) -> Document:
    """Document of the answer key."""
    return _document(exercise, f"{exercise.worked.example.title}, answers", "", True, decimals)


def _document(exercise: Exercise, title: str, task: str, with_answers: bool, decimals: int) -> Document:
    parts: list[DocumentPart] = [Paragraph(task)] if task else []
    parts += [Paragraph(setting) for setting in exercise.settings]
    parts += [Heading("Given"), *(_table(exercise, step, True, decimals) for step in exercise.given)]
    parts += _answer_tables(exercise, with_answers, decimals)
    return Document(title, tuple(parts), decimals, exercise.settings)


def _answer_tables(exercise: Exercise, with_answers: bool, decimals: int) -> Iterator[DocumentPart]:
    yield Heading("Answers" if with_answers else "To fill in")
    for step in exercise.solution:
        yield _table(exercise, step, with_answers, decimals)


def _table(exercise: Exercise, step: WorkedStep, filled: bool, decimals: int) -> Matrix:
    matrix = step_matrix(exercise.worked, step, decimals, shaded=False)
    blank = tuple(tuple(None for _ in step.columns) for _ in step.rows)
    return Matrix(
        worksheet_caption(step), as_cells(step.values) if filled else blank, matrix.rows, matrix.columns,
        matrix.row_axis, matrix.column_axis, matrix.tex, matrix.description, explain=matrix.explain if filled else None,
    )  # fmt: skip
