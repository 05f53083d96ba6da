"""Checked notes as a document: the verdict in one sentence, the findings with their reasons, the tables with marks."""

from collections.abc import Iterator, Sequence

from peasy.views.document import Arithmetic, Document, Heading, Matrix, Paragraph, Part, Table
from peasy.worked.checking import Checked, CheckedCell, CheckedTable

SIGNS = {"wrong": "✗", "follows": "→", "cut": "…", "blank": "?"}
"""What stands behind a cell that is not simply right, so that no colour is needed to see it."""

LEGEND = "✗ wrong · → follows from an earlier mistake · … cut off instead of rounded · ? no answer yet"

WIDTH = (
    "How scores are scaled depends on the width of the keys: give Q or K, or a line such as scoring: dot or scale: 1/2."
)


def check_document(title: str, parts: Sequence[Checked], ignored: Sequence[str] = ()) -> Document:
    """What checking found. `ignored` are the captions of tables that mean no step."""
    passed, checked = all(part.passed for part in parts), any(part.cells or part.rows for part in parts)
    shown: list[Part] = [Paragraph(verdict_sentence(parts), ("good" if passed else "bad") if checked else "plain")]
    if ignored:
        captions = ", ".join(f'"{said}"' for said in ignored if said) or "tables without a caption"
        shown.append(Paragraph(f"Not checked, because no step of attention is called so: {captions}.", "note"))
    taken = list(dict.fromkeys(name for part in parts for name in part.taken))
    if taken:
        said = f"{', '.join(taken)}: taken as written, because what it comes from is not here."
        shown.append(Paragraph(" ".join([said, *([WIDTH] if any(map(_lacks_width, parts)) else [])]), "note"))
    for part in parts:
        found = list(_findings(part))
        if len(parts) > 1:
            shown += [Heading(part.title), *(found or [Paragraph(verdict_sentence([part]))])]
        else:
            shown += found
    if any(part.count(verdict) for part in parts for verdict in SIGNS):
        shown.append(Paragraph(LEGEND, "note"))
    for part in parts:
        shown += [Heading(f"{part.title}: as written" if len(parts) > 1 else "As written")]
        shown += [_matrix(table) for table in part.tables]
    return Document(f"{title}: checked", tuple(shown))


def verdict_sentence(parts: Sequence[Checked]) -> str:
    """All that was found, in one sentence.

    >>> verdict_sentence([])
    'Nothing could be checked: no table here can be worked out from another one.'
    """
    count = {name: sum(part.count(name) for part in parts) for name in ("right", *SIGNS)}
    rows = sum(len({(row.table, row.says, row.row) for row in part.rows}) for part in parts)
    checked = sum(count[name] for name in ("right", "wrong", "follows", "cut"))
    if not checked and not rows:
        if count["blank"]:
            return f"Nothing to check yet: {_many(count['blank'], 'cell')} without an answer."
        return "Nothing could be checked: no table here can be worked out from another one."
    said = [
        (count["wrong"], "wrong"), (count["follows"], "right after an earlier mistake"),
        (count["cut"], "cut off instead of rounded"),
    ]  # fmt: skip
    found = [f"{number} {'is' if number == 1 else 'are'} {what}" for number, what in said if number]
    found += [f"{_many(rows, 'row')} {'does' if rows == 1 else 'do'} not hold"] if rows else []
    sentence = f"{_many(checked, 'cell')} checked: " + (_listed(found) if found else "all right")
    return sentence + (f"; {count['blank']} without an answer." if count["blank"] else ".")


def _lacks_width(part: Checked) -> bool:
    """Whether scores are there and what comes after them could still not be worked out."""
    return any(table.name == "scores" for table in part.tables) and bool({"scaled", "weights"} & set(part.taken))


def _findings(part: Checked) -> Iterator[Part]:
    cells = [cell for cell in part.cells if cell.verdict != "right"]
    if cells:
        columns = ("table", "row", "column", "written", "right", "verdict", "why")
        yield Table(columns, tuple(_cell_row(cell) for cell in cells), title="Cells")
    if part.rows:
        rows = tuple((row.table, row.row, row.finding, row.why) for row in part.rows)
        yield Table(("table", "row", "finding", "why"), rows, title="Rows")


def _cell_row(cell: CheckedCell) -> tuple[str, ...]:
    return (cell.table, cell.row, cell.column, cell.written, right_text(cell), cell.verdict, cell.why)


def right_text(cell: CheckedCell) -> str:
    """What is right, at the author's own number of decimals where there is one, in percent where those are written."""
    if cell.right is None:
        return "not known"
    if isinstance(cell.right, str):
        return cell.right
    if "%" in cell.written and cell.decimals is not None:
        return f"{100 * cell.right:.{max(cell.decimals - 2, 0)}f} %"
    return f"{cell.right:.4f}" if cell.decimals is None else f"{cell.right:.{max(cell.decimals, 0)}f}"


def _matrix(table: CheckedTable) -> Matrix:
    marks = {
        (row, column)
        for row, verdicts in enumerate(table.verdicts)
        for column, verdict in enumerate(verdicts)
        if verdict in ("wrong", "follows", "cut")
    }
    values = tuple(
        tuple(f"{text} {SIGNS.get(verdict, '')}".strip() for text, verdict in zip(texts, verdicts, strict=True))
        for texts, verdicts in zip(table.written, table.verdicts, strict=True)
    )

    def explain(row: int, column: int) -> Arithmetic:
        where = f"{table.name}, row {table.rows[row]}, column {table.columns[column]}: {table.written[row][column]}"
        verdict, why = table.verdicts[row][column], table.whys[row][column]
        return Arithmetic(where, (f"{verdict}: {why}" if why else "Nothing leads to this cell.",))

    return Matrix(
        table.name, values, table.rows, table.columns, says=table.says, marks=frozenset(marks), explain=explain
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
