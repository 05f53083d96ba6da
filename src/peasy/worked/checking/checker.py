"""Checker of hand-written tables: recomputes every table as far as the given numbers allow.

Given numbers have the precision they are printed with: 0.71 may be anything that rounds to it. A cell is wrong only if
no such numbers give it, whether the author went on with rounded numbers or with all digits. Coarse inputs may still be
meant exactly, so the tables are checked under each reading of the inputs (all rounded, those with few decimals exact,
all exact), and the reading that explains the written tables best is kept. An earlier table with mistakes is also
followed as written: a cell that agrees only with that `follows` from the mistake and is not one of its own.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal

import numpy as np

from peasy.errors import InvalidInput, PeasyError
from peasy.parameters import Record
from peasy.worked.attention_graph import FormulaSettings, attention_graph, given_matrices
from peasy.worked.checking import verdict as judging
from peasy.worked.checking.cell import CellContent, CellMark, WrittenNumber
from peasy.worked.checking.readings import Readings, TableReading, add_written, derive_readings
from peasy.worked.checking.slips import SlipFinder
from peasy.worked.checking.step_aliases import CAPTIONS, parse_caption, table_caption
from peasy.worked.checking.step_slips import Slip
from peasy.worked.checking.table import (
    INPUTS,
    KEY_COLUMNS,
    UNKNOWN_ROW,
    AlignedTable,
    Cell,
    RowFinding,
    align_table,
    table_name,
)  # fmt: skip
from peasy.worked.example import Example, WrittenTable, check_size
from peasy.worked.intervals import Interval
from peasy.worked.solver import find_node, solve, suggest_nodes

_MAX_CELLS = 50_000
"""Maximum number of written cells in one check."""

MAX_DECIMALS = 12
"""Given numbers with more decimals than this are exact: they were calculated, not printed."""

_Judged = dict[Cell, judging.CellVerdict]

_MISTAKE_RATE, _SLIP_RATE = 0.03, 0.01
"""Assumed share of wrong cells and of tables with a named slip, for choosing between readings of the inputs."""

_FEW_UNITS = 3.5
"""Up to this many units of the last decimal, a difference may come from rounded inputs."""

_TYPICAL_SHARE = 0.25
"""Share of its bounds in which a number usually lies: they allow for all roundings in the worst direction at once."""

_EVIDENCE = 3.0
"""A stricter reading of the inputs must be this much more likely (natural logarithm) than the one that allows more."""

_STRONG_EVIDENCE = 50.0
"""The same, if under the stricter reading a number is wrong by a few units only and right under the other."""

_COARSE = 20.0
"""A table is too coarse to be judged in its last digits if this many different numbers would be right in each cell."""


class CheckedCell(Record):
    """One cell: written text, expected value (None if known only from a mistaken table), verdict and reason."""

    table: str
    row: str
    column: str
    written: str
    expected: float | str | None
    verdict: judging.Verdict
    reason: str
    decimals: int | None = None
    description: str = ""
    value: float = math.nan
    """Number that was read, in percent divided by 100; NaN if there is none."""


class CheckedTable(Record):
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
    has_slip: bool = False
    """True if a known mistake gives its wrong rows."""

    @property
    def points(self) -> tuple[int, int]:
        """Cells that are right or follow from an earlier mistake, and all cells that were to be answered."""
        verdicts = [verdict for row in self.verdicts for verdict in row if verdict]
        return sum(verdict in ("right", "truncated", "follows") for verdict in verdicts), len(verdicts)


class UnreadTable(Record):
    """Table, or cell of a table, that was not read, and why."""

    table: str
    reason: str


class CheckedExample(Record):
    """Result of checking all written tables of an example.

    `remarks` say how tables were read: a recognised name, percent without sign, numbers too coarse to judge by.
    """

    title: str
    tables: tuple[CheckedTable, ...]
    cells: tuple[CheckedCell, ...]
    rows: tuple[RowFinding, ...]
    unread: tuple[UnreadTable, ...] = ()
    remarks: tuple[str, ...] = ()
    is_running_text: bool = False
    """True if its cells are calculations in a text, and not of tables."""

    @property
    def has_mistakes(self) -> bool:
        """True if a cell or row is wrong; a truncated number is not a mistake."""
        return bool(self.rows) or any(cell.verdict not in ("right", "truncated") for cell in self.cells)

    @property
    def passed(self) -> bool | None:
        """False if something is wrong, None if something was not read or nothing could be checked, else True."""
        if self.has_mistakes:
            return False
        checked = self.cells or self.count("blank")
        return None if self.unread or not checked else True

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
    ('wrong', 13.0, '2·2 + 3·3 = 13, not 12: one digit is wrong: 13.')
    """
    return TableChecker.best(example).result()


class TableChecker:
    """Checks the tables of one example in order of dependence; numbers of up to `exact_decimals` decimals are exact."""

    def __init__(self, example: Example, exact_decimals: int = 0, names_slips: bool = True) -> None:
        self.example, self.exact_decimals, self.names_slips = example, exact_decimals, names_slips
        self.settings = FormulaSettings.from_example(example)
        self.unread: list[UnreadTable] = []
        self.network = solve(replace(example, written=())) if example.steps else None
        self.written = list(self._named_tables())
        self.given = given_matrices(example)
        if self.network is None:
            self.graph = attention_graph(example, self.settings, (node for node, _ in self.written))
        else:
            self.graph = self.network.graph
            written = {node for node, _ in self.written}  # known as precisely as they are written
            given = (name for name, node in self.graph.nodes.items() if not node.routes and name not in written)
            self.given = {name: self.network.values[name] for name in given}
        self.symbols = judging.SymbolIndexing.infer(example.written, example.keys)
        self.readings: dict[str, list[TableReading]] = {}
        self.right: dict[str, TableReading] = {}
        self.rounded: dict[str, np.ndarray] = {}
        self.as_written: dict[str, np.ndarray] = {}
        self.tables: list[CheckedTable] = []
        self.cells: list[CheckedCell] = []
        self.row_findings: list[RowFinding] = []
        self.remarks: list[str] = []
        self.coarse_tables: list[str] = []
        self.given_decimals: set[int] = set()
        self.slips: dict[str, Slip] = {}
        self.likelihood = 0.0

    @classmethod
    def best(cls, example: Example, names_slips: bool = True, first: "TableChecker | None" = None) -> "TableChecker":
        """Check under every reading of the inputs, and return the check that explains the written tables best.

        Without `names_slips`, mistakes are only counted, which is faster. `first` is a check already made, of rounded
        inputs.
        """
        check_size(example)
        if sum(len(row) for table in example.written for row in table.cells) > _MAX_CELLS:
            raise InvalidInput(f"There are more than {_MAX_CELLS:,} written cells.", hint="Check fewer tables at once.")
        with np.errstate(all="ignore"):
            best = first or cls(example, names_slips=names_slips).run()
            for decimals in sorted(best.given_decimals)[:3]:
                stricter = cls(example, decimals, names_slips).run()
                blames = stricter.blames_rounding(best)
                enough = _STRONG_EVIDENCE if blames else 0.0 if best.rejects_its_own_number() else _EVIDENCE
                if stricter.likelihood >= best.likelihood + enough:
                    best = stricter
                    if blames:
                        best.remarks.append("Given decimals are exact here: the other numbers agree with that.")
        return best

    def rejects_its_own_number(self) -> bool:
        """True if a number is called wrong although it is the calculated one, rounded: another number is wrong then."""
        return any(_is_missed(cell, 0.5) for cell in self.cells)

    def blames_rounding(self, other: "TableChecker") -> bool:
        """True if a number is wrong here by a few units of its last decimal, and right under another reading.

        Such a number is a sign that the inputs were rounded: mistakes are rarely that small. It takes many numbers that
        agree with exact inputs to the last digit to call it a mistake nevertheless.
        """
        right = {_place(cell) for cell in other.cells if cell.verdict in ("right", "truncated")}
        return any(_place(cell) in right and _is_missed(cell, _FEW_UNITS) for cell in self.cells)

    def _named_tables(self) -> Iterator[tuple[str, WrittenTable]]:
        projections = []
        for table in self.example.written:
            if table.table.strip().upper().startswith("W_"):
                named = parse_caption(table.table)
                projections += [named[0]] if named else []
        for table in self.example.written:
            try:
                if self.network is not None:
                    yield self._network_node(table), table
                    continue
                yield table_name(table, self.example, projections), table
            except InvalidInput as error:
                self.unread.append(UnreadTable(table.description or table.table, _sentence(error)))

    def _network_node(self, table: WrittenTable) -> str:
        """Return the node of a network that a table names."""
        assert self.network is not None
        name = find_node(table.table, self.network.graph.nodes)
        if name is None:
            known = [node for node in self.network.names if node not in self.example.given_nodes]
            hint = suggest_nodes(table.table, known)
            raise InvalidInput(f'There is no table "{table.table[:40]}" in this example.', hint=hint)
        return name

    def run(self) -> "TableChecker":
        """Judge all tables, each after the ones that it is computed from."""
        for node, written in self.written:
            if node not in self.graph.nodes:
                self.unread.append(UnreadTable(written.table, "There is no such table with this normalisation."))
        for name in self.graph.nodes:
            known = self.known_readings(name)
            if clean := judging.clean_reading(known):
                self.right[name] = clean
            self.readings[name] = known
            for _, written in filter(lambda pair: pair[0] == name, self.written):
                self.check_written(written, name, known)
            if name not in self.right and (given := judging.clean_reading(self.readings[name])):
                self.right[name] = given
        return self

    def check_written(self, written: WrittenTable, name: str, known: list[TableReading]) -> None:
        """Judge one written table; if it cannot be read, list it and go on."""
        shape = known[0].point.shape if known else None
        try:
            step = None if self.network is None else self.network.node_step(name)
            labels = None if step is None else (step.rows, step.columns)
            table = align_table(written, name, self.example, shape, self.settings.attention_mask, labels)
        except PeasyError as error:
            self.unread.append(UnreadTable(table_caption(name), _sentence(error)))
            return
        lengths = {len(row) for _, row in table.misfits}
        is_whole_table = len(table.misfits) > 1 or UNKNOWN_ROW in (*written.rows, *self.example.tokens)
        if is_whole_table and (not table.cells or len(table.misfits) > max(3, len(table.by_row()))):  # another table
            cells = " or ".join(map(str, sorted(lengths))) if len(lengths) < 3 else f"{min(lengths)} to {max(lengths)}"
            reason = f"{len(table.misfits)} × {cells} cells instead of {len(table.rows)} × {len(table.columns)}."
            self.unread.append(UnreadTable(table.caption, reason))
            return
        self.readings[name] = self.judge_table(table, known, self.readings[name])

    def result(self) -> CheckedExample:
        """Return the verdicts of all tables."""
        return CheckedExample(
            self.example.title, tuple(self.tables), tuple(self.cells), tuple(self.row_findings), tuple(self.unread),
            tuple(dict.fromkeys(filter(None, [self.example.note, *self.remarks]))),
        )  # fmt: skip

    def known_readings(self, name: str) -> list[TableReading]:
        """Return the readings of a table from everything given and written before it; the clean one first."""
        if name in self.given:
            matrix = self.given[name]
            return [TableReading(matrix, self.given_bounds(matrix, _decimals_of(matrix)), clean=True)]
        derived, failure = derive_readings(self.graph.nodes[name], self.readings)
        if failure is not None:
            self.unread.append(UnreadTable(table_caption(name), _sentence(failure)))
        step = name.rpartition(".")[2]
        overflows = np.isposinf if step in ("scaled", "masked") else np.isinf
        finite = [reading for reading in derived if not overflows(reading.point).any()]
        if len(finite) < len(derived) and step != "powers" and not any(reading.clean for reading in finite):
            self.unread.append(UnreadTable(table_caption(name), "The numbers overflow. Use smaller numbers."))
        return finite

    def given_bounds(self, numbers: np.ndarray, decimals: int) -> Interval:
        """Return the bounds of given numbers: exact, or everything that rounds to them."""
        if 0 < decimals <= MAX_DECIMALS:
            self.given_decimals.add(decimals)
        if decimals <= self.exact_decimals or decimals > MAX_DECIMALS:
            return Interval.exact(numbers)
        half = 0.5 * 10.0**-decimals
        bounds = Interval.exact(numbers)
        return Interval(bounds.low - half, bounds.high + half)

    def judge_table(self, table: AlignedTable, known: Readings, readings: Readings) -> Readings:
        """Record verdicts for every cell and row of a written table; return its readings for later tables."""
        judgements = ((cell, self.judge_cell(table, *cell, content, known)) for cell, content in table.cells.items())
        judged = {cell: verdict for cell, verdict in judgements if verdict}
        slip = self.find_slip(table, judged, known)
        if slip:
            self.slips[table.node] = slip
            judged = {cell: _with_slip(verdict, slip, cell) for cell, verdict in judged.items()}
        verdicts = {cell: str(verdict.verdict) for cell, verdict in judged.items()}
        self.cells += [_checked_cell(table, cell, verdict) for cell, verdict in judged.items()]
        findings = self.judge_rows(table, verdicts, known)
        self.row_findings += findings
        self.likelihood += _log_likelihood(table, judged, slip)
        self.note_reading(table, judged)
        if self.names_slips:  # else mistakes are only counted
            blank = [cell for cell, content in table.cells.items() if content is CellMark.BLANK]
            blanks = {cell: "blank" for cell in blank if any(reading.knows(*cell) for reading in known)}
            reasons = {cell: verdict.reason for cell, verdict in judged.items()}
            checked = _checked_table(table, verdicts | blanks, reasons)
            is_input = self.network is not None and not self.graph.nodes[table.node].routes
            is_unverified = checked.is_unverified and not is_input
            self.tables.append(replace(checked, is_unverified=is_unverified, has_slip=slip is not None))
        return self.written_readings(table, verdicts, findings, slip, readings)

    def written_readings(
        self, table: AlignedTable, verdicts: dict[Cell, str], findings: list[RowFinding], slip: Slip | None,
        readings: Readings,
    ) -> Readings:  # fmt: skip
        """Return the readings that later tables may be computed from."""
        numbers, bounds = table.values()
        wrong = np.zeros(numbers.shape, dtype=np.bool)
        for cell, verdict in verdicts.items():
            wrong[cell] = verdict in ("wrong", "follows")
        if not readings:  # a table that is given cannot be recomputed; only the sums of weights can be checked
            doubtful = {fault.row for fault in findings if fault.finding == "sum"}
            wrong |= np.array([[label in doubtful] for label in table.rows])
            printed = self.given_bounds(numbers, table.decimals)
            plain = np.zeros(numbers.shape, dtype=np.bool)
            for cell, content in table.cells.items():
                plain[cell] = isinstance(content, WrittenNumber) and content.decimals is not None
            bounds = Interval(np.where(plain, printed.low, bounds.low), np.where(plain, printed.high, bounds.high))
        if (right := self.right.get(table.node)) is not None and right.point.shape == numbers.shape:
            self.as_written[table.node] = whole = np.where(np.isnan(numbers), right.point, numbers)
            self.rounded[table.node] = np.where(wrong, right.point, whole)
        known = add_written(readings, bounds, numbers, wrong, table.caption)
        if slip and slip.values.shape == numbers.shape:
            known.append(TableReading(slip.values, Interval.exact(slip.values), False, written=table.caption))
        return known

    def find_slip(self, table: AlignedTable, judged: _Judged, known: Readings) -> Slip | None:
        """Return the known slip that explains the wrong rows of a table, if there is one.

        It is looked for with the right numbers of the tables before it, then with their mistakes.
        """
        wrong = [cell[0] for cell, verdict in judged.items() if verdict.verdict == "wrong"]
        if judging.clean_reading(known) is None or not wrong or not self.names_slips:
            return None
        for reading in sorted(known, key=lambda each: not each.clean):
            # with all digits, or with the numbers of the tables before as they are written
            for numbers in ({}, self.rounded if reading.clean else self.as_written):
                finder = self.slip_finder(numbers if reading.clean else numbers | reading.points_before())
                if slip := finder.find(table, set(wrong), reading, strict=len(wrong) == 1):
                    return slip
        return None

    def slip_finder(self, mistaken: Mapping[str, np.ndarray] | None = None) -> SlipFinder:
        """Return the finder of slips, with the right numbers of the tables, or mistaken ones."""
        changed = dict(mistaken or {})
        tables = {name: reading.point for name, reading in self.right.items()} | changed
        for name in [name for name in self.graph.nodes if name in tables and changed]:
            route = self.graph.route(name, tables)
            if name not in changed and route is not None and not changed.keys().isdisjoint(route.inputs):
                tables[name] = changed[name] = np.asarray(route.step.forward(np, *(tables[n] for n in route.inputs)))
        return SlipFinder(self.graph, tables, {node for node, _ in self.written})

    def judge_cell(
        self, table: AlignedTable, row: int, column: int, content: CellContent, known: list[TableReading]
    ) -> judging.CellVerdict | None:
        """Return the verdict on one cell, or None if it is blank or cannot be computed."""
        if content is CellMark.UNREADABLE:
            text = table.texts[row, column].strip()
            self.unread.append(UnreadTable(table.location(row, column), f'"{text[:40]}" cannot be read as a number.'))
            return None
        if content is CellMark.BLANK:
            return None
        if content is CellMark.MASKED:
            mask = self.settings.attention_mask
            by_key = table.step in KEY_COLUMNS or table.columns == self.example.keys
            masked = by_key and mask is not None and not mask[row, column]
            return judging.judge_masked((table.rows[row], table.columns[column]), masked, known, row, column)
        if isinstance(content, WrittenNumber):
            text = table.texts[row, column].strip()
            return judging.judge_number(content, text, known, row, column, with_reason=self.names_slips)
        assert isinstance(content, tuple)
        if table.step == "context":
            weights = self.earlier(table, "weights")
            judged = judging.judge_weighted_sum(table, row, column, content, self.symbols, weights)
        else:
            judged = judging.judge_symbols(table, row, column, content, self.symbols)
        if judged is None:
            text = table.texts[row, column].strip()
            self.unread.append(UnreadTable(table.location(row, column), f'"{text[:40]}" cannot be compared.'))
        return judged

    def judge_rows(self, table: AlignedTable, verdicts: dict[Cell, str], known: Readings) -> list[RowFinding]:
        """Return the mistakes of whole rows."""
        clean, findings = judging.clean_reading(known), []
        if verdicts or not any(row is None for row, _ in table.misfits):
            findings += judging.length_findings(table, None if clean is None else clean.point)
        else:  # nothing in it is known
            self.unread.append(
                UnreadTable(table.caption, f"It has more rows than there are tokens: {len(table.rows)}.")
            )
        findings += judging.total_findings(table, clean)
        if table.step == "weights" and self.example.normalise != "none":
            findings += judging.sum_findings(table, verdicts)
        if table.step == "context":
            findings += judging.missing_findings(table, self.symbols, self.earlier(table, "weights"))
            value = self.earlier(table, "value")
            if value and self.example.normalise == "softmax":
                found, remarks = judging.range_findings(table, verdicts, value[0].bounds, self.settings.attention_mask)
                findings += found
                self.remarks += remarks
        return findings

    def note_reading(self, table: AlignedTable, judged: _Judged) -> None:
        """Remark how a table was read, and whether its last digits could be judged at all."""
        self.remarks += table.remarks
        choices = sorted(verdict.choices for verdict in judged.values())
        if choices and choices[len(choices) // 2] > _COARSE:
            self.coarse_tables.append(table.caption)
            self.remarks.append(
                f"{table.caption}: too coarse to be judged in the last digits, "
                "because the numbers it is calculated from have few decimals."
            )

    def earlier(self, table: AlignedTable, step: str) -> list[TableReading]:
        """Return the readings of an earlier table of the same head."""
        return self.readings.get(table.node.removesuffix(table.step) + step, [])


def _sentence(error: PeasyError) -> str:
    return f"{error.message} {error.hint or ''}".strip()


def _decimals_of(matrix: np.ndarray) -> int:
    """Return the largest number of decimals that the numbers are written with."""
    numbers = (Decimal(repr(float(number))).normalize() for number in matrix.ravel()[:10_000])
    return max((-end for number in numbers if isinstance(end := number.as_tuple().exponent, int)), default=0)


def _with_slip(verdict: judging.CellVerdict, slip: Slip, cell: tuple[int, int]) -> judging.CellVerdict:
    if verdict.verdict != "wrong":
        return verdict
    arithmetic, _, _ = verdict.reason.removesuffix(".").partition(", not ")
    written = verdict.reason.removesuffix(".")[len(arithmetic) :].partition(": ")[0]
    return replace(verdict, reason=f"{arithmetic}{written}: {slip.reason(*cell)}.")


def _log_likelihood(table: AlignedTable, judged: _Judged, slip: Slip | None) -> float:
    """Return how likely the written table is under this reading of the inputs (natural logarithm).

    A number that may be one of many is less likely than one that must be so; a wrong one may be anything.
    """
    total = math.log(_SLIP_RATE) if slip else 0.0
    for cell, verdict in judged.items():
        content = table.cells[cell]
        if not isinstance(content, WrittenNumber):
            continue
        if verdict.verdict != "wrong":
            total -= math.log(1 + _TYPICAL_SHARE * (verdict.choices - 1))
        elif not slip:
            spread = 1 + abs(content.value)
            total += math.log(_MISTAKE_RATE * min(max(content.high - content.low, 1e-6) / spread, 1.0))
    return total


def _checked_cell(table: AlignedTable, cell: tuple[int, int], judged: judging.CellVerdict) -> CheckedCell:
    expected, content = judged.expected, table.cells[cell]
    if isinstance(expected, float):
        expected = "x" if expected == -np.inf else round(expected, 12) + 0.0
    decimals, value = (content.decimals, content.value) if isinstance(content, WrittenNumber) else (None, math.nan)
    row, column, written = table.rows[cell[0]], table.columns[cell[1]], table.texts[cell].strip()
    return CheckedCell(
        table.caption, row, column, written, expected, judged.verdict, judged.reason, decimals, table.description, value
    )


def _is_missed(cell: CheckedCell, units: float) -> bool:
    """True if a number called wrong is at most `units` of its last decimal away from the right one."""
    is_number = cell.verdict == "wrong" and cell.decimals is not None and isinstance(cell.expected, float)
    return is_number and abs(cell.value - float(cell.expected or 0)) <= units * 10.0 ** -(cell.decimals or 0)


def _place(cell: CheckedCell) -> tuple[str, str, str, str]:
    return cell.table, cell.row, cell.column, cell.written


def _checked_table(table: AlignedTable, verdicts: dict[Cell, str], reasons: dict[Cell, str]) -> CheckedTable:
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
