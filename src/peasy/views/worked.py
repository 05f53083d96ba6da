"""Worked examples as documents: numbered steps, variants, one word, one cell, word vectors in a plane, worksheets."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from peasy.errors import InvalidInput
from peasy.views import document as doc
from peasy.worked.arithmetic import NUDGE, CellArithmetic, GradientChain, arithmetic, find_index
from peasy.worked.checking.step_aliases import table_caption
from peasy.worked.exercise import Exercise
from peasy.worked.expressions import Reference, cell_formulas, spreadsheet_formula
from peasy.worked.label import format_number, format_operand, format_percent, token_label
from peasy.worked.solver import WorkedExample, WorkedStep
from peasy.worked.story import QueryDescription
from peasy.worked.symbolic import SymbolicExample, weighted_sum_of_words

_SECTIONS = {
    "x": 1, "source": 1,
    "w_q": 2, "w_k": 2, "w_v": 2, "query": 2, "key": 2, "value": 2,
    "scores": 3, "scaled": 4, "masked": 4, "weights": 5, "context": 6,
    "concat": 7, "w_o": 7, "output": 7,
}  # fmt: skip
"""Section of each table of attention: the six steps of the hand calculation, and a seventh for all heads."""

_TITLES = {
    1: "Input", 2: "Query, key and value", 3: "Scores", 4: "Scale", 5: "Weights", 6: "Weighted sum", 7: "All heads",
}  # fmt: skip

_MAX_SUM_KEYS = 6
"""Up to this many keys, each context is also written as a weighted sum of words."""

_MAX_TITLE = 200
"""Maximum length of a title in characters."""

_MAX_QUERIES = 12
"""Maximum number of queries whose contributions are shown, one table each."""


def worked_document(
    worked: WorkedExample, variants: Sequence[tuple[str, WorkedExample]] = (), decimals: int = 4,
    contributions: bool = False, steps: Sequence[WorkedStep] | None = None,
) -> doc.Document:  # fmt: skip
    """Document with all steps, then the variants side by side; with `steps`, only these."""
    if steps is not None:
        return doc.Document(_example_title(worked), tuple(_steps(worked, steps, decimals)), decimals)
    example = worked.example
    introduction = (
        (f"{example.description}.", "plain", example.description), (f"From: {example.source}.", "note", example.source),
        (example.note, "note", example.note),
    )  # fmt: skip
    parts: list[doc.DocumentPart] = [doc.Paragraph(text, tone) for text, tone, given in introduction if given]
    parts += [doc.Paragraph(line) for line in example.settings if example.steps]  # for peasy check
    parts += [*_steps(worked, worked.steps, decimals), *_word_vectors_plot(worked)]
    if contributions:
        parts += contribution_parts(worked)
    if variants:
        parts.append(doc.Heading("Side by side"))
    for name, variant in variants:
        step = variant.step(variant.example.last_step or "weights")
        parts.append(replace(step_matrix(variant, step, decimals, shaded=True), name=name, description=""))
        if step.base == "weights" and len(variant.keys) <= _MAX_SUM_KEYS:
            contexts = (weighted_sum_of_words(variant, row, 2) for row in range(len(variant.tokens)))
            words = tuple(zip(map(token_label, variant.tokens), contexts, strict=True))
            parts.append(doc.Table(("word", "context"), words))
    return doc.Document(_example_title(worked), tuple(parts), decimals, worked.example.settings)


def _example_title(worked: WorkedExample) -> str:
    """Return the title of the example, or its first tokens."""
    return doc.shorten(worked.example.title or " ".join(worked.tokens[:_MAX_SUM_KEYS]), _MAX_TITLE)


def step_matrix(worked: WorkedExample, step: WorkedStep, decimals: int, shaded: bool | None = None) -> doc.Matrix:
    """Return one step as a labelled matrix; each cell expands to its arithmetic."""

    def explain(row: int, column: int) -> doc.Arithmetic:
        return arithmetic_part(arithmetic(worked, step.name, row, column, decimals))

    height, width = (_shown(labels, worked.max_columns) for labels in (step.rows, step.columns))
    sizes = ((height, len(step.rows), "rows"), (width, len(step.columns), "columns"))
    left_out = [f"{shown} of {total} {what}" for shown, total, what in sizes if shown < total]
    description = f"{step.description} {' and '.join(left_out)} are shown." if left_out else step.description
    return doc.Matrix(
        step.name, _as_cells(step.values[:height, :width]), step.rows[:height], step.columns[:width], step.row_axis,
        step.column_axis, step.tex, description, shaded=step.base == "weights" if shaded is None else shaded,
        explain=explain, formula=_cell_formula(worked, step.name),
    )  # fmt: skip


def _shown(labels: Sequence[str], most: int | None) -> int:
    """Number of rows or columns to show: at most `most` if they are numbered, else all."""
    if most is None or not labels:
        return len(labels)
    is_numbered = labels[0].isdigit() and all(label == str(index) for index, label in enumerate(labels, int(labels[0])))
    return min(len(labels), most) if is_numbered else len(labels)


def _cell_formula(worked: WorkedExample, name: str) -> doc.CellFormula | None:
    """Return what writes a cell of a step as a formula of a spreadsheet; None if the step is given."""
    if worked.graph.route(name, worked.values) is None:
        return None
    formulas = cache(lambda: cell_formulas(worked.graph, worked.values, name))

    def write(row: int, column: int, address: Reference) -> str:
        cells = formulas()
        if cells is None or not np.isclose(float(cells[row, column]), worked.values[name][row, column], atol=1e-9):
            return ""  # given, although it could be computed
        return spreadsheet_formula(cells[row, column], address)

    return write


def spreadsheet_document(worked: WorkedExample, decimals: int = 4) -> doc.Document:
    """Document with all tables that the formulas of a spreadsheet need, also those that are not listed as steps."""
    worked = replace(worked, max_columns=None)
    document = worked_document(worked, (), decimals)
    needed = set(worked.names)
    for name in reversed(list(worked.graph.nodes)):
        route = worked.graph.route(name, worked.values) if name in needed else None
        needed |= set() if route is None else set(route.inputs)
    shown = {matrix.name for matrix in document.matrices()}
    others = [worked.node_step(name) for name in worked.graph.nodes if name in needed - shown]
    heading = (doc.Heading("Other tables that the formulas use"),) if others else ()
    tables = tuple(step_matrix(worked, step, decimals) for step in others)
    return replace(document, parts=(*document.parts, *heading, *tables))


def _as_cells(values: np.ndarray) -> tuple[tuple[doc.Cell, ...], ...]:
    """Return an array as matrix cells."""
    return tuple(tuple(row) for row in values.tolist())


def arithmetic_part(cell: CellArithmetic) -> doc.Arithmetic:
    """Return the arithmetic of one cell as a document part."""
    return doc.Arithmetic(cell.title, cell.texts)


def cell_document(worked: WorkedExample, cell: CellArithmetic, decimals: int) -> doc.Document:
    """Document with the full arithmetic of one number."""
    step = worked.step(cell.step)
    parts = (doc.Paragraph(step.description, "note"), doc.Formula(step.tex), arithmetic_part(cell))
    return doc.Document(f"{_example_title(worked)}: one number", parts, decimals)


def story_document(worked: WorkedExample, stories: Sequence[QueryDescription], decimals: int) -> doc.Document:
    """Document of one word's attention in sentences, head by head."""
    parts: list[doc.DocumentPart] = []
    for story in stories:
        if story.scope:
            parts.append(doc.Heading(_scope_title(story.scope)))
        parts += [doc.Paragraph(sentence) for sentence in story.sentences]
        with_score = any(share.score is not None for share in story.shares)
        with_value = any(share.value for share in story.shares)
        columns = ["key", *(["score"] if with_score else []), "weight", "share"]
        columns += ["value", "weight · value"] if with_value else []
        rows = []
        for share in story.shares:
            row: list[doc.Cell] = [token_label(share.token), *([share.score] if with_score else []), share.weight]
            row.append("masked" if share.masked else format_percent(share.weight))
            row += [_vector(share.value, decimals), _vector(share.contribution, decimals)] if with_value else []
            rows.append(tuple(row))
        if with_value:
            blank: list[doc.Cell] = [None] * (len(columns) - 2)
            rows.append(("sum", *blank, _vector(story.context, decimals)))
        parts.append(doc.Table(tuple(columns), tuple(rows)))
    title = f'{_example_title(worked)}: attention of "{token_label(stories[0].token)}"'
    return doc.Document(title, tuple(parts), decimals)


def symbolic_document(worked: WorkedExample, symbolic: SymbolicExample, decimals: int) -> doc.Document:
    """Document of the example in symbols."""
    of_attention = "Each token has a query q, a key k and a value v, numbered from 0; x = masked."
    note = "Each number in the numbers it is calculated from: name[row,column], from 0."
    parts: list[doc.DocumentPart] = [doc.Paragraph(of_attention if symbolic.sums else note, "note")]
    for table in symbolic.tables:
        step = next((step for step in worked.steps if table.name in (step.name, step.base)), None)
        description = step.description if step else ""
        axes = table.row_axis, table.column_axis
        parts.append(doc.Matrix(table.name, table.cells, table.rows, table.columns, *axes, description=description))
    if symbolic.sums:
        parts.append(doc.Table(("token", "context"), symbolic.sums, "Each context as a sum"))
    return doc.Document(f"{_example_title(worked)} in symbols", tuple(parts), decimals)


def contribution_parts(worked: WorkedExample, query: int | None = None) -> Iterator[doc.DocumentPart]:
    """Yield the contribution of each key to each query: weight times value, and their sum."""
    for scope in worked.attention_scopes:
        weights, value = worked.find_step("weights", scope), worked.find_step("value", scope)
        if weights is None or value is None:
            yield doc.Paragraph("The example has no values, so there are no contributions.", "note")
            return
        where = f", {_scope_title(scope).lower()}" if scope else ""
        yield doc.Heading(f"Contributions{where}: weight times value")
        queries = range(len(weights.rows)) if query is None else [query]
        for row in list(queries)[:_MAX_QUERIES]:
            contributions = weights.values[row][:, None] * value.values
            numbers = _as_cells(np.vstack([contributions, contributions.sum(axis=0)]))
            name = f"contributions to {token_label(weights.rows[row])}"
            yield doc.Matrix(name, numbers, (*weights.columns, "sum"), value.columns, "key", "d_value", shaded=True)
        if len(queries) > _MAX_QUERIES:
            rest = f"{len(queries) - _MAX_QUERIES} more queries are not shown; --query WORD shows one."
            yield doc.Paragraph(rest, "note")


def _steps(worked: WorkedExample, steps: Sequence[WorkedStep], decimals: int) -> Iterator[doc.DocumentPart]:
    title, number = "", 0
    for step in steps:
        if (own := _section_title(worked, step)) != title:
            title, number = own, number + 1
            yield doc.Heading(title, number)
            if _SECTIONS.get(step.base) == 2 and _has_no_projections(worked):
                yield doc.Paragraph("No projections: the inputs themselves are queries, keys and values.")
        if step.base in ("query", "key", "value") and _has_no_projections(worked) and not step.head:
            yield doc.Formula(step.tex)
        elif step.name == "scaled" and worked.example.scale is None and worked.example.scoring != "scaled-dot":
            yield doc.Paragraph(step.description)
        else:
            last = bool(worked.example.last_step) and step.base == "scores"
            yield step_matrix(worked, step, decimals, shaded=True if last else None)


def _section_title(worked: WorkedExample, step: WorkedStep) -> str:
    """Return the heading of a step: of attention one of the sections, else its block, and what is done there."""
    if not worked.example.steps:
        section = _SECTIONS.get(step.base, 7 if step.base == "b_o" else 2)
        head = step.head
        title = _TITLES[section]
        if section == 4 and any(step.base == "masked" for step in worked.steps):
            title = "Scale and mask"
        if section == 5 and worked.example.normalise == "softmax":
            title = "Softmax"
        return f"Head {head}: {title[0].lower()}{title[1:]}" if head else title
    kind, scope = worked.kind(step.name), step.scope
    if scope.startswith("after"):
        return "After the update"
    if kind != "forward":
        title = _scope_title(scope)
        return f"{kind.capitalize()}: {title if title.isupper() else title.lower()}" if scope else kind.capitalize()
    is_given = worked.graph.route(step.name, worked.values) is None
    return _scope_title(scope) or ("Input" if is_given else _scope_title(step.name))


def _scope_title(scope: str) -> str:
    """Return the title of a head or block in words; the model around a block is not repeated.

    >>> _scope_title("gpt"), _scope_title("head-1"), _scope_title("gpt.layer1.feed_forward")
    ('GPT', 'Head 1', 'Layer 1, feed forward')
    """
    parts = scope.split(".")
    words = [re.sub(r"[-_]|(?<=[a-z])(?=\d)", " ", part) for part in parts[len(parts) > 1 :]]
    title = ", ".join(words)
    return title.upper() if len(title) <= 3 else title[0].upper() + title[1:]


def chain_document(worked: WorkedExample, chain: GradientChain, decimals: int) -> doc.Document:
    """Document of the chain rule: every gradient from the loss to one number, then its arithmetic and a check."""
    less, more = chain.nudged_losses
    where = f"{chain.node}[{chain.row},{chain.column}]"
    numbers = (more, less, (more - less) / (2 * NUDGE), chain.value)
    more_text, less_text, rate, value = (format_number(number, 8) for number in numbers)
    last = chain.steps[-1]
    gradients: list[doc.DocumentPart] = []
    for number, step in enumerate(chain.steps, start=1):
        marks = frozenset({(chain.row, chain.column)} if step is last else ())
        gradients += [doc.Heading(step.name, number), replace(step_matrix(worked, step, decimals), marks=marks)]
    parts: list[doc.DocumentPart] = [
        doc.Paragraph(f"How much does the loss change with {where}? From the loss back to it, each gradient follows "
                      "from the one before."),
        doc.Paragraph(" → ".join(step.name for step in chain.steps)),
        *gradients,
        doc.Heading("The number itself"),
        arithmetic_part(arithmetic(worked, last.name, chain.row, chain.column, decimals)),
        doc.Paragraph(f"Check: with {NUDGE:g} more in {where} the loss is {more_text}, with as much less {less_text}: "
                      f"({more_text} - {less_text}) / {2 * NUDGE:g} = {rate}. The gradient is {value}.", "note"),
    ]  # fmt: skip
    return doc.Document(f"{_example_title(worked)}: {chain.title}", tuple(parts), decimals)


def _has_no_projections(worked: WorkedExample) -> bool:
    """Return True if the inputs themselves are queries, keys and values (no projections)."""
    example, names = worked.example, ("w_q", "w_k", "w_v", "q", "k", "v", "weights")
    return example.x is not None and all(getattr(example, name) is None for name in names)


def _vector(numbers: Sequence[float], decimals: int) -> str:
    return " ".join(format_number(number, decimals) for number in numbers[:8]) + (" ..." if len(numbers) > 8 else "")


def _word_vectors_plot(worked: WorkedExample) -> Iterator[doc.DocumentPart]:
    """Yield the plot of two features if the example names two, with the projection if it names two words."""
    example = worked.example
    if len(example.plot_features) == 2 and example.rows is not None:
        x, y = (find_index(feature, example.features, "feature") for feature in example.plot_features)
        points = [(token_label(token), row[x], row[y]) for token, row in zip(worked.tokens, example.rows, strict=True)]
        lines: tuple[tuple[float, float, float, float], ...] = ()
        yield doc.Heading("Word vectors")
        if example.project:
            foot, explanation = _projection(worked)
            moved = points[find_index(example.project[0], worked.tokens, "word")]
            points.append((f"{moved[0]} on {token_label(example.project[1])}", float(foot[x]), float(foot[y])))
            lines = ((moved[1], moved[2], float(foot[x]), float(foot[y])),)
            yield from explanation
        shown = tuple(point for point in points if point[1] or point[2])
        yield doc.Plane("Words", shown, example.plot_features[0], example.plot_features[1], arrows=True, lines=lines)
        left_out = [point[0] for point in points if not (point[1] or point[2])]
        if left_out:
            yield doc.Paragraph(f"At the origin, with neither feature: {', '.join(left_out)}.", "note")


def _projection(worked: WorkedExample) -> tuple[np.ndarray, list[doc.DocumentPart]]:
    """Return the projection of the first word onto the second, and its arithmetic."""
    names = worked.example.project
    if len(names) != 2:
        raise InvalidInput("project must name two words: the one to project, and the one to project onto.")
    x, y = (np.asarray(worked.example.rows)[find_index(name, worked.tokens, "word")] for name in names)
    dot, square = float(x @ y), float(y @ y)
    if square == 0:
        raise InvalidInput(f'"{token_label(names[1])}" is the zero vector: nothing can be projected onto it.')
    factor = dot / square
    products = " + ".join(f"{format_operand(a)}·{format_operand(b)}" for a, b in zip(x, y, strict=True))
    squares = " + ".join(f"{format_operand(b)}^2" for b in y)
    lines = (
        f"x · y: {products} = {format_number(dot)}",
        f"y · y: {squares} = {format_number(square)}",
        f"c: {format_number(dot)} / {format_number(square)} = {format_number(factor)}",
        f"c·y: [{', '.join(format_number(factor * b) for b in y)}]",
    )
    first, second = map(token_label, names)
    sentence = f"The projection of {first} onto {second} is c·{second}; the remainder is orthogonal to it."
    arithmetic_of = doc.Arithmetic(f"{first} (x) projected onto {second} (y)", lines)
    return factor * y, [doc.Paragraph(sentence), arithmetic_of]


def worksheet_document(exercise: Exercise, decimals: int = 2, with_answers: bool = False) -> doc.Document:
    """Document of the worksheet, with blank tables, or of its answer key."""
    task = f"Fill in the blank tables, rounded to {decimals} decimals. Then run peasy check on the file."
    parts: list[doc.DocumentPart] = [] if with_answers else [doc.Paragraph(task)]
    parts += [doc.Paragraph(setting) for setting in exercise.settings]
    parts += [doc.Heading("Given"), *(_table(exercise, step, True, decimals) for step in exercise.given)]
    parts.append(doc.Heading("Answers" if with_answers else "To fill in"))
    parts += [_table(exercise, step, with_answers, decimals) for step in exercise.solution]
    title = f"{exercise.worked.example.title}{', answers' if with_answers else ''}"
    return doc.Document(title, tuple(parts), decimals, exercise.settings)


def _table(exercise: Exercise, step: WorkedStep, filled: bool, decimals: int) -> doc.Matrix:
    matrix = replace(step_matrix(exercise.worked, step, decimals, shaded=False), name=table_caption(step.name))
    blank = tuple(tuple(None for _ in step.columns) for _ in step.rows)
    return matrix if filled else replace(matrix, values=blank, explain=None)
