"""A worked example as a document: its steps numbered as on paper, its variants side by side, a word's story, a cell."""

from collections.abc import Iterator, Sequence

import numpy as np

from peasy.views.document import Arithmetic, Cell, Document, Formula, Heading, Matrix, Paragraph, Part, Table
from peasy.views.plane import word_plane
from peasy.worked.arithmetic import CellArithmetic, arithmetic
from peasy.worked.label import visible
from peasy.worked.number import percent, show
from peasy.worked.story import Story
from peasy.worked.symbolic import Symbolic, in_words
from peasy.worked.work import Worked, WorkedStep

SECTIONS = {
    "x": 1, "source": 1,
    "w_q": 2, "w_k": 2, "w_v": 2, "query": 2, "key": 2, "value": 2,
    "scores": 3, "scaled": 4, "masked": 4, "weights": 5, "context": 6,
    "concat": 7, "w_o": 7, "output": 7,
}  # fmt: skip
"""Which of the six steps on paper each table belongs to; a seventh puts heads together."""

TITLES = {
    1: "Input", 2: "Query, key and value", 3: "Scores", 4: "Scale", 5: "Weights", 6: "Weighted sum", 7: "All heads",
}  # fmt: skip

FEW = 6
"""Up to so many keys, a new word is also written out as a sum of words."""

MOST_QUERIES = 12
"""Contributions are shown for so many queries; each is a table of its own."""


def worked_document(
    worked: Worked, variants: Sequence[tuple[str, Worked]] = (), decimals: int = 4, contributions: bool = False
) -> Document:
    """All steps, then the variants side by side."""
    parts = [*_opening(worked), *_steps(worked, decimals), *word_plane(worked)]
    if contributions:
        parts += contribution_parts(worked)
    parts += _side_by_side(variants, decimals)
    return Document(visible_title(worked), tuple(parts), decimals, worked.example.settings)


def visible_title(worked: Worked) -> str:
    """The title of the example, or of what it was made from."""
    return worked.example.title or " ".join(worked.tokens[:FEW])


def step_matrix(worked: Worked, step: WorkedStep, decimals: int, shaded: bool | None = None) -> Matrix:
    """One step as a labelled matrix whose cells open to their arithmetic."""

    def explain(row: int, column: int) -> Arithmetic:
        return arithmetic_part(arithmetic(worked, step.name, row, column, decimals))

    return Matrix(
        name=step.name,
        values=as_cells(step.values),
        rows=step.rows,
        columns=step.columns,
        row_axis=step.row_axis,
        column_axis=step.column_axis,
        tex=step.tex,
        says=step.says,
        shaded=step.base == "weights" if shaded is None else shaded,
        explain=explain,
    )


def as_cells(values: np.ndarray) -> tuple[tuple[Cell, ...], ...]:
    """Numbers as a document holds them."""
    return tuple(tuple(row) for row in values.tolist())


def arithmetic_part(found: CellArithmetic) -> Arithmetic:
    """The arithmetic of one cell as part of a document."""
    return Arithmetic(found.title, found.texts)


def cell_document(worked: Worked, found: CellArithmetic, decimals: int) -> Document:
    """One number in full."""
    step = worked.step(found.step)
    parts = (Paragraph(step.says, "note"), Formula(step.tex), arithmetic_part(found))
    return Document(f"{visible_title(worked)}: one number", parts, decimals)


def story_document(worked: Worked, stories: Sequence[Story], decimals: int) -> Document:
    """One word's story, head by head where there are several."""
    parts: list[Part] = []
    for story in stories:
        if story.head:
            parts.append(Heading(f"Head {story.head}"))
        parts += [Paragraph(sentence) for sentence in story.sentences]
        parts.append(_story_table(story, decimals))
    return Document(f'{visible_title(worked)}: the story of "{visible(stories[0].token)}"', tuple(parts), decimals)


def symbolic_document(worked: Worked, letters: Symbolic, decimals: int) -> Document:
    """The example in letters."""
    parts: list[Part] = [
        Paragraph(
            "Every token has its own query q, key k and value v, counted from 0; x = may not be looked at.", "note"
        )
    ]
    for table in letters.tables:
        step = next((each for each in worked.steps if each.base == table.name), None)
        parts.append(
            Matrix(table.name, table.cells, table.rows, table.columns, "q", "k", says=step.says if step else "")
        )
    if letters.sums:
        parts.append(Table(("token", "context"), letters.sums, "Each context as a sum"))
    return Document(f"{visible_title(worked)} in letters", tuple(parts), decimals)


def contribution_parts(worked: Worked, only: int | None = None) -> Iterator[Part]:
    """What each key brings to each query: weight times value, key by key, and their sum."""
    for head in worked.heads:
        weights, value = worked.find("weights", head), worked.find("value", head)
        if weights is None or value is None:
            yield Paragraph("There are no values here, so nothing is contributed.", "note")
            return
        where = f", head {head}" if head else ""
        yield Heading(f"Contributions{where}: weight times value")
        asked = range(len(worked.tokens)) if only is None else [only]
        columns = next(step.columns for step in worked.steps if step.base == "value" and step.head == head)
        for row in list(asked)[:MOST_QUERIES]:
            brought = weights[row][:, None] * value
            numbers = as_cells(np.vstack([brought, brought.sum(axis=0)]))
            name = f"contributions to {visible(worked.tokens[row])}"
            yield Matrix(name, numbers, (*worked.keys, "sum"), columns, "key", "d_value", shaded=True)
        if len(asked) > MOST_QUERIES:
            yield Paragraph(
                f"The other {len(asked) - MOST_QUERIES} queries are left out; --query WORD shows one.", "note"
            )


def _opening(worked: Worked) -> Iterator[Part]:
    example = worked.example
    if example.says:
        yield Paragraph(example.says + ".")
    if example.source:
        yield Paragraph(f"From: {example.source}.", "note")
    if example.note:
        yield Paragraph(example.note, "note")


def _steps(worked: Worked, decimals: int) -> Iterator[Part]:
    section, head = 0, 0
    for step in worked.steps:
        if (SECTIONS[step.base], step.head) != (section, head):
            section, head = SECTIONS[step.base], step.head
            yield Heading(_title(worked, section, head), number=section)
            if section == 2 and _is_plain(worked):
                yield Paragraph("Nothing is learned here: the inputs themselves are queries, keys and values.")
        if step.base in ("query", "key", "value") and _is_plain(worked) and not step.head:
            yield Formula(step.tex)
        elif step.base == "scaled" and worked.example.scale is None and worked.example.scoring != "scaled-dot":
            yield Paragraph(step.says)
        else:
            last = bool(worked.example.until) and step.base == "scores"
            yield step_matrix(worked, step, decimals, shaded=True if last else None)


def _title(worked: Worked, section: int, head: int) -> str:
    title = TITLES[section]
    if section == 4 and any(step.base == "masked" for step in worked.steps):
        title = "Scale and mask"
    if section == 5 and worked.example.normalise == "softmax":
        title = "Softmax"
    return f"Head {head}: {title[0].lower()}{title[1:]}" if head else title


def _is_plain(worked: Worked) -> bool:
    """Whether the inputs themselves are queries, keys and values."""
    example = worked.example
    return example.x is not None and all(
        getattr(example, name) is None for name in ("w_q", "w_k", "w_v", "q", "k", "v", "weights")
    )


def _side_by_side(variants: Sequence[tuple[str, Worked]], decimals: int) -> Iterator[Part]:
    if variants:
        yield Heading("Side by side")
    for name, worked in variants:
        step = worked.step(worked.example.until or "weights")
        matrix = step_matrix(worked, step, decimals, shaded=True)
        yield Matrix(
            name, matrix.values, matrix.rows, matrix.columns, matrix.row_axis, matrix.column_axis, matrix.tex,
            shaded=True, explain=matrix.explain,
        )  # fmt: skip
        if step.base == "weights" and len(worked.keys) <= FEW:
            sums = ((visible(token), in_words(worked, row, 2)) for row, token in enumerate(worked.tokens))
            yield Table(("word", "becomes"), tuple(sums))


def _story_table(story: Story, decimals: int) -> Table:
    with_score = any(share.score is not None for share in story.shares)
    with_value = any(share.value for share in story.shares)
    columns = ["key", *(["score"] if with_score else []), "weight", "share"]
    columns += ["value", "weight · value"] if with_value else []
    rows = []
    for share in story.shares:
        row: list[Cell] = [visible(share.token), *([share.score] if with_score else []), share.weight]
        row.append("hidden" if share.hidden else percent(share.weight))
        row += [_vector(share.value, decimals), _vector(share.contribution, decimals)] if with_value else []
        rows.append(tuple(row))
    if with_value:
        blank: list[Cell] = [None] * (len(columns) - 2)
        rows.append(("sum", *blank, _vector(story.context, decimals)))
    return Table(tuple(columns), tuple(rows))


def _vector(numbers: Sequence[float], decimals: int) -> str:
    return " ".join(show(each, decimals) for each in numbers[:8]) + (" ..." if len(numbers) > 8 else "")
