"""Checker of hand-written tables: recomputes every table as far as the given numbers allow.

A cell is right if it agrees at its author's own number of decimals, computed either from the exact inputs or from
the author's own rounded earlier tables; both are tried for each table. An earlier table with mistakes has two
readings: corrected, and as written. A cell that agrees only with the latter `follows` from the mistake and is
not counted as a mistake of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from peasy.errors import InvalidInput
from peasy.worked.checking.cell import CellContent, CellMark, WrittenNumber
from peasy.worked.checking.derivations import build_derivations
from peasy.worked.checking.step_aliases import CAPTIONS, PER_HEAD, table_caption
from peasy.worked.checking.table import INPUTS, KEY_COLUMNS, AlignedTable, RowFinding, align_table, table_name
from peasy.worked.checking.verdict import (
    CellVerdict,
    Slip,
    SymbolIndexing,
    TableReading,
    Verdict,
    derive_readings,
    exact_reading,
    find_slip,
    judge_masked,
    judge_number,
    judge_symbols,
    judge_weighted_sum,
    length_findings,
    missing_findings,
    range_findings,
    readings_with_cell,
    sum_findings,
    unique_readings,
    written_readings,
)  # fmt: skip
from peasy.worked.example import Example
from peasy.worked.solver import FormulaSettings, check_size, head_name

_MAX_CELLS = 50_000
"""Maximum number of written cells in one check."""

_EXAMPLE_FIELDS = {
    "x": "rows", "source": "source_x", "w_q": "w_q", "w_k": "w_k", "w_v": "w_v", "w_o": "w_o",
    "query": "q", "key": "k", "value": "v", "weights": "weights",
}  # fmt: skip
"""Step name -> field of `Example` that gives it."""


@dataclass(frozen=True)
class CheckedCell:
    """One cell: written text, expected value (None if known only from a mistaken table), verdict and reason."""

    table: str
    row: str
    column: str
    written: str
    expected: float | str | None
    verdict: Verdict
    reason: str
    decimals: int | None = None
    description: str = ""


@dataclass(frozen=True)
class CheckedTable:
    """Written table with a verdict and a reason for each cell.

    A verdict is "" for a cell that cannot be checked and "blank" for a cell without an answer.
    """

    name: str
    description: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    written: tuple[tuple[str, ...], ...]
    verdicts: tuple[tuple[str, ...], ...]
    reasons: tuple[tuple[str, ...], ...] = ()
    is_unverified: bool = False
    """True if the table has content and none of it could be computed from other tables."""


@dataclass(frozen=True)
class CheckedExample:
    """Result of checking all written tables of an example."""

    title: str
    tables: tuple[CheckedTable, ...]
    cells: tuple[CheckedCell, ...]
    rows: tuple[RowFinding, ...]

    @property
    def passed(self) -> bool:
        """True if nothing is wrong; a truncated number is not a mistake."""
        return not self.rows and all(cell.verdict in ("right", "truncated") for cell in self.cells)

    @property
    def unverified(self) -> tuple[str, ...]:
        """Tables (inputs excepted) that could not be recomputed and were taken as given."""
        inputs = {CAPTIONS[step] for step in INPUTS}
        return tuple(dict.fromkeys(t.name for t in self.tables if t.is_unverified and t.name not in inputs))

    def count(self, verdict: str) -> int:
        """Count the cells with this verdict ("blank" and "" included)."""
        return sum(row.count(verdict) for table in self.tables for row in table.verdicts)


def check(example: Example) -> CheckedExample:
    """Recompute every table that the author of `example` wrote.

    >>> from peasy.worked.example import read_example
    >>> notes = {"title": "t", "tokens": ["a"], "x": [[2, 3]], "written": [{"table": "scores", "cells": [["12"]]}]}
    >>> cell = check(read_example(notes)).cells[0]
    >>> cell.verdict, cell.expected, cell.reason
    ('wrong', 13.0, '2·2 + 3·3 = 13, not 12.')
    """
    check_size(example)
    if sum(len(row) for table in example.written for row in table.cells) > _MAX_CELLS:
        raise InvalidInput(f"There are more than {_MAX_CELLS:,} written cells.", hint="Check fewer tables at once.")
    with np.errstate(all="ignore"):
        return _TableChecker(example).run()


class _TableChecker:
    """Checks the tables of one example in order of dependence."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.settings = FormulaSettings.from_example(example)
        projections = [
            table_name(table, example) for table in example.written if table.table.strip().upper().startswith("W_")
        ]
        self.written = [(table_name(table, example, projections), table) for table in example.written]
        given_steps = {step for step, name in _EXAMPLE_FIELDS.items() if getattr(example, name) is not None}
        self.derivations = build_derivations(example, self.settings, given_steps | {node for node, _ in self.written})
        self.symbols = SymbolIndexing.infer(example.written, example.keys)
        self.readings: dict[str, list[TableReading]] = {}
        self.tables: list[CheckedTable] = []
        self.cells: list[CheckedCell] = []
        self.row_findings: list[RowFinding] = []

    def run(self) -> CheckedExample:
        for node in self.tables_in_order():
            known = self.known_readings(node)
            self.readings[node] = list(known)
            for _, written in filter(lambda pair: pair[0] == node, self.written):
                shape = known[0].values.shape if known else None
                table = align_table(written, node, self.example, shape, self.settings.attention_mask)
                self.readings[node] += self.judge_table(table, known)
            self.readings[node] = unique_readings(self.readings[node])
        return CheckedExample(self.example.title, tuple(self.tables), tuple(self.cells), tuple(self.row_findings))

    def tables_in_order(self) -> Iterator[str]:
        """Yield all tables, each after the ones it is computed from."""
        heads = range(1, self.example.heads + 1) if self.example.heads > 1 else ()
        for step in CAPTIONS:
            yield step
            yield from (head_name(step, head) for head in heads if step in PER_HEAD)

    def known_readings(self, node: str) -> list[TableReading]:
        """Return the readings of a table from everything given and written before it; the exact one first."""
        matrix = getattr(self.example, _EXAMPLE_FIELDS[node]) if node in _EXAMPLE_FIELDS else None
        if matrix is not None:
            return [TableReading(np.asarray(matrix, dtype=float), clean=True)]
        step, finite = node.rpartition(".")[2], []
        overflows = np.isposinf if step in ("scaled", "masked") else np.isinf
        for reading in derive_readings(self.derivations.get(node, []), self.readings):
            if not overflows(reading.values).any():
                finite.append(reading)
            elif reading.clean and step != "powers":  # nothing depends on the powers of e
                raise InvalidInput(f"The numbers of {table_caption(node)} overflow.", hint="Use smaller numbers.")
        return finite

    def judge_table(self, table: AlignedTable, known: list[TableReading]) -> list[TableReading]:
        """Record verdicts for every cell and row of a written table; return its readings for later tables."""
        judgements = ((cell, self.judge_cell(table, *cell, content, known)) for cell, content in table.cells.items())
        judged = {cell: verdict for cell, verdict in judgements if verdict}
        slip = self.explain_by_slip(table, judged)
        if slip:
            mistakes = {cell: judgement for cell, judgement in judged.items() if judgement.verdict == "wrong"}
            for cell, mistake in mistakes.items():
                judged[cell] = replace(mistake, reason=f"{mistake.reason.removesuffix('.')}: {slip.description}.")
        verdicts = {cell: str(verdict.verdict) for cell, verdict in judged.items()}
        self.cells += [_checked_cell(table, cell, verdict) for cell, verdict in judged.items()]
        findings = self.judge_rows(table, verdicts, known)
        self.row_findings += findings
        blank = [cell for cell, content in table.cells.items() if content is CellMark.BLANK]
        blanks = {cell: "blank" for cell in blank if readings_with_cell(known, *cell)}
        reasons = {cell: verdict.reason for cell, verdict in judged.items()}
        self.tables.append(_checked_table(table, verdicts | blanks, reasons))
        wrong = np.zeros((len(table.rows), len(table.columns)), dtype=bool)
        for cell, verdict in verdicts.items():
            wrong[cell] = verdict in ("wrong", "follows")
        if not known:  # given weights cannot be recomputed; only their row sums can be checked
            doubtful = {fault.row for fault in findings if fault.finding == "sum"}
            wrong |= np.array([[label in doubtful] for label in table.rows])
        slipped = [TableReading(slip.values, clean=False, written=table.caption)] if slip else []
        return [*written_readings(table.caption, table.values(), wrong, known), *slipped]

    def explain_by_slip(self, table: AlignedTable, judged: dict[tuple[int, int], CellVerdict]) -> Slip | None:
        """Return the known slip that explains wrong weights, if there is one."""
        scores, scaled = (exact_reading(self.earlier_readings(table, step)) for step in ("scores", "scaled"))
        if table.step != "weights" or scaled is None:
            return None
        wrong = {cell[0] for cell, verdict in judged.items() if verdict.verdict == "wrong"}
        return find_slip(table, wrong, self.settings, (scores or scaled).values, scaled.values)

    def judge_cell(
        self, table: AlignedTable, row: int, column: int, content: CellContent, known: list[TableReading]
    ) -> CellVerdict | None:
        if content is CellMark.BLANK:
            return None
        if content is CellMark.MASKED:
            mask = self.settings.attention_mask
            by_key = table.step in KEY_COLUMNS or table.columns == self.example.keys
            masked = by_key and mask is not None and not mask[row, column]
            return judge_masked((table.rows[row], table.columns[column]), masked, known, row, column)
        if isinstance(content, WrittenNumber):
            return judge_number(content, table.texts[row, column].strip(), known, row, column)
        assert isinstance(content, tuple)
        if table.step == "context":
            return judge_weighted_sum(
                table, row, column, content, self.symbols, self.earlier_readings(table, "weights")
            )
        return judge_symbols(table, row, column, content, self.symbols)

    def judge_rows(
        self, table: AlignedTable, verdicts: dict[tuple[int, int], str], known: list[TableReading]
    ) -> list[RowFinding]:
        exact, findings = exact_reading(known), []
        findings += length_findings(table, None if exact is None else exact.values)
        if table.step == "weights" and self.example.normalise != "none":
            findings += sum_findings(table, verdicts)
        if table.step == "context":
            findings += missing_findings(table, self.symbols, self.earlier_readings(table, "weights"))
            value = self.earlier_readings(table, "value")
            if value and self.example.normalise == "softmax":
                findings += range_findings(table, verdicts, value[0].values, self.settings.attention_mask)
        return findings

    def earlier_readings(self, table: AlignedTable, step: str) -> list[TableReading]:
        """Return the readings of an earlier table of the same head."""
        return self.readings.get(table.node.replace(table.step, step), [])


def _checked_cell(table: AlignedTable, cell: tuple[int, int], judged: CellVerdict) -> CheckedCell:
    expected, content = judged.expected, table.cells[cell]
    if isinstance(expected, float):
        expected = "x" if expected == -np.inf else round(expected, 12) + 0.0
    decimals = content.decimals if isinstance(content, WrittenNumber) else None
    row, column, written = table.rows[cell[0]], table.columns[cell[1]], table.texts[cell].strip()
    return CheckedCell(
        table.caption, row, column, written, expected, judged.verdict, judged.reason, decimals, table.description
    )


def _checked_table(
    table: AlignedTable, verdicts: dict[tuple[int, int], str], reasons: dict[tuple[int, int], str]
) -> CheckedTable:
    """Return the table as written: rows in order, including rows of a wrong length."""
    misfits = {len(table.rows) if row is None else row: texts for row, texts in table.misfits}
    used = sorted({row for row, _ in table.cells} | set(misfits))
    width = max([len(table.columns), *map(len, misfits.values())])

    def cells(of: dict[tuple[int, int], str]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(of.get((row, column), "").strip() for column in range(width)) for row in used)

    unfit = {(row, column): text for row, texts in misfits.items() for column, text in enumerate(texts)}
    return CheckedTable(
        name=table.caption,
        description=table.description,
        rows=tuple((*table.rows, "?")[row] for row in used),
        columns=(*table.columns, *("",) * width)[:width],
        written=cells(table.texts | unfit),
        verdicts=cells(verdicts),
        reasons=cells(reasons),
        is_unverified=not any(verdicts.values())
        and any(content is not CellMark.BLANK for content in table.cells.values()),
    )
