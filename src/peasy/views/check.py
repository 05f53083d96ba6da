"""Checked hand calculations as a document: verdict, findings with reasons, and the marked tables."""

from collections.abc import Iterable, Iterator, Sequence

from peasy.views.document import Arithmetic, Document, DocumentPart, Heading, Matrix, Paragraph, Table, pluralize
from peasy.worked.checking import CheckedCell, CheckedExample, CheckedTable
from peasy.worked.checking.difference import TableDifference
from peasy.worked.label import format_number

VERDICT_SIGNS = {"wrong": "✗", "follows": "→", "truncated": "…", "blank": "?"}
"""Mark after each cell that is not right, so that colour is not the only sign."""

_LEGEND = "✗ wrong · → follows from an earlier mistake · … truncated instead of rounded · ? blank"

_MISSING_SCALE_HINT = (
    "The scale of the scores depends on d_k: include Q or K, or a line such as scoring: dot or scale: 1/2."
)


def check_document(title: str, parts: Sequence[CheckedExample]) -> Document:
    """Document of the check results."""
    is_checked = any(part.cells or part.rows for part in parts)
    tone = _TONES[all_passed(part.passed for part in parts)] if is_checked else "plain"
    shown: list[DocumentPart] = [Paragraph(verdict_sentence(parts), tone), *_notes(parts)]
    for part in parts:
        findings = list(_findings(part))
        if len(parts) > 1:
            findings = [Heading(part.title), *(findings or [Paragraph(verdict_sentence([part]))])]
        shown += findings
    if any(part.count(verdict) for part in parts for verdict in VERDICT_SIGNS):
        shown.append(Paragraph(_LEGEND, "note"))
    rows = [
        (table.name, *map(str, table.points))
        for part in parts
        for table in part.tables
        if table.points[1] and any(verdict != "blank" for row in table.verdicts for verdict in row if verdict)
    ]
    if rows:
        total = [sum(int(row[index]) for row in rows) for index in (1, 2)]
        shown.append(Table(("table", "points", "of"), (*rows, ("all", *map(str, total))), title="Points"))
    for part in parts:
        shown += [Heading(f"{part.title}: as written" if len(parts) > 1 else "As written")]
        shown += [_matrix(table) for table in part.tables]
    return Document(f"{title}: checked", tuple(shown))


def files_document(
    verdict: str, passed: bool | None, files: Sequence[tuple[str, Sequence[CheckedExample], tuple[int, int]]],
    failures: Sequence[tuple[str, str]],
) -> Document:  # fmt: skip
    """Document of many files: a summary with points, the most common mistakes, then the findings of each file."""
    rows = [
        (name, _OUTCOMES[all_passed(part.passed for part in parts)], f"{got} / {of}", verdict_sentence(parts))
        for name, parts, (got, of) in files
    ]
    rows += [(name, "not readable", "", reason) for name, reason in failures]
    shown: list[DocumentPart] = [
        Paragraph(verdict, _TONES[passed]),
        Table(("file", "result", "points", "findings"), tuple(rows), title="Summary"),
    ]
    for name, parts, _ in files:
        findings = [finding for part in parts for finding in _findings(part)]
        if findings:
            shown += [Heading(name), *findings]
    return Document("Checked files", tuple(shown))


def difference_document(title: str, expected: str, verdict: str, differences: Sequence[TableDifference]) -> Document:
    """Document of the comparison of two solutions."""
    rows = tuple((d.table, "yes" if d.agrees else "no", f"{d.largest:.3g}", " ".join(d.reasons)) for d in differences)
    agrees = all(difference.agrees for difference in differences)
    tone = ("good" if agrees else "bad") if differences else "plain"
    table = Table(("table", "agrees", "largest difference", "reason"), rows, title="Tables in both")
    return Document(f"{title} and {expected}: compared", (Paragraph(verdict, tone), *([table] if rows else [])))


_OUTCOMES = {True: "no mistakes", False: "mistakes", None: "not read in full"}
_TONES: dict[bool | None, str] = {True: "good", False: "bad", None: "plain"}


def all_passed(verdicts: Iterable[bool | None]) -> bool | None:
    """Return False if something is wrong; None if nothing is wrong but not all was read, or nothing; else True."""
    outcomes = set(verdicts) or {None}
    return False if False in outcomes else None if None in outcomes else True


def _notes(parts: Sequence[CheckedExample]) -> Iterator[DocumentPart]:
    """Yield what was not read, what was taken as given, and how tables were read."""
    unread = [unread for part in parts for unread in part.unread]
    if unread:
        yield Table(("table", "reason"), tuple((u.table or "no caption", u.reason) for u in unread), title="Not read")
    unverified = list(dict.fromkeys(name for part in parts for name in part.unverified))
    if unverified:
        note = f"{', '.join(unverified)}: taken as given, because its inputs are not in the file."
        lacks_d_k = any(  # scores are present, but the steps after them could not be calculated
            any(table.name == "scores" for table in part.tables) and {"scaled", "weights"} & set(part.unverified)
            for part in parts
        )
        yield Paragraph(f"{note} {_MISSING_SCALE_HINT}" if lacks_d_k else note, "note")
    yield from (Paragraph(remark, "note") for part in parts for remark in part.remarks)


def verdict_sentence(parts: Sequence[CheckedExample]) -> str:
    """Return the verdict in one sentence.

    >>> verdict_sentence([])
    'Nothing could be checked: no table can be calculated from another one.'
    """
    tables = [part for part in parts if not part.is_running_text]
    if tables and len(tables) < len(parts):
        sentences = [verdict_sentence(tables), verdict_sentence([part for part in parts if part.is_running_text])]
        return " ".join(sentences)
    count = {name: sum(part.count(name) for part in parts) for name in ("right", *VERDICT_SIGNS)}
    rows = sum(len({(row.table, row.description, row.row) for row in part.rows}) for part in parts)
    checked = sum(count[name] for name in ("right", "wrong", "follows", "truncated"))
    if not checked and not rows:
        if count["blank"]:
            return f"Nothing to check yet: {pluralize(count['blank'], 'cell')} blank."
        if any(part.unread for part in parts):
            return "Nothing could be checked: the tables could not be read."
        return "Nothing could be checked: no table can be calculated from another one."
    kinds = [
        (count["wrong"], "wrong"), (count["follows"], "consistent with an earlier mistake"),
        (count["truncated"], "truncated instead of rounded"),
    ]  # fmt: skip
    problems = [f"{number} {'is' if number == 1 else 'are'} {what}" for number, what in kinds if number]
    problems += [f"{pluralize(rows, 'row')} {'does' if rows == 1 else 'do'} not hold"] if rows else []
    listed = " and ".join([", ".join(problems[:-1]), problems[-1]] if len(problems) > 1 else problems)
    sentence = f"{pluralize(checked, 'cell' if tables else 'calculation')} checked: {listed or 'all right'}"
    unread = sum(len(part.unread) for part in parts)
    rest = [f"{count['blank']} blank"] if count["blank"] else []
    rest += [f"{unread} {'table or cell' if unread == 1 else 'tables or cells'} not read"] if unread else []
    return "; ".join([sentence, *rest]) + "."


def _findings(part: CheckedExample) -> Iterator[DocumentPart]:
    cells = [cell for cell in part.cells if cell.verdict != "right"]
    if cells:
        columns = ("table", "row", "column", "written", "expected", "verdict", "reason")
        found = ((c.table, c.row, c.column, c.written, _format_expected(c), c.verdict, c.reason) for c in cells)
        yield Table(columns, tuple(found), title="Cells")
    if part.rows:
        rows = tuple((row.table, row.row, row.finding, row.reason) for row in part.rows)
        yield Table(("table", "row", "finding", "reason"), rows, title="Rows")


def _format_expected(cell: CheckedCell) -> str:
    """Return the expected value, with the decimals of the written one, in percent where it is in percent."""
    if cell.expected is None:
        return "unknown"
    if isinstance(cell.expected, str):
        return cell.expected
    if "%" in cell.written and cell.decimals is not None:
        return f"{100 * cell.expected:.{max(cell.decimals - 2, 0)}f} %"
    if cell.decimals is None:
        return f"{cell.expected:.4f}"
    short = f"{cell.expected:.{max(cell.decimals, 0)}f}"
    # A whole number would hide what 2.5989 differs in from a written 3.
    return short if cell.decimals > 0 or float(short) == cell.expected else format_number(cell.expected)


def _matrix(table: CheckedTable) -> Matrix:
    marks = {
        (row, column)
        for row, verdicts in enumerate(table.verdicts)
        for column, verdict in enumerate(verdicts)
        if verdict in ("wrong", "follows", "truncated")
    }
    values = tuple(
        tuple(f"{text} {VERDICT_SIGNS.get(verdict, '')}".strip() for text, verdict in zip(texts, verdicts, strict=True))
        for texts, verdicts in zip(table.written, table.verdicts, strict=True)
    )

    def explain(row: int, column: int) -> Arithmetic:
        where = f"{table.name}, row {table.rows[row]}, column {table.columns[column]}: {table.written[row][column]}"
        verdict, reason = table.verdicts[row][column], table.reasons[row][column]
        unknown = "This cell cannot be calculated from the given tables."
        return Arithmetic(where, (f"{verdict}: {reason}" if reason else unknown,))

    shown = (table.name, values, table.rows, table.columns)
    return Matrix(*shown, description=table.description, marks=frozenset(marks), explain=explain)
