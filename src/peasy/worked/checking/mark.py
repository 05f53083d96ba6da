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
from peasy.worked.checking.cell import Content, Mark, Number
from peasy.worked.checking.name import CAPTIONS, PER_HEAD, caption
from peasy.worked.checking.route import Rules, routes
from peasy.worked.checking.row import reach_findings, sum_findings, unfit_findings
from peasy.worked.checking.slip import Slip, find_slip
from peasy.worked.checking.symbol import Symbols, judge_names, judge_shares, missing_findings
from peasy.worked.checking.table import INPUTS, KEY_COLUMNS, Placed, RowFinding, node_of, place
from peasy.worked.checking.verdict import Judged, Verdict, judge_hidden, judge_number
from peasy.worked.checking.version import Version, best, derive, knowing, readings, trimmed
from peasy.worked.example import Example
from peasy.worked.work import check_size, head_name

MOST_CELLS = 50_000
"""Maximum number of written cells in one check."""

GIVEN = {
    "x": "rows", "source": "source_x", "w_q": "w_q", "w_k": "w_k", "w_v": "w_v", "w_o": "w_o",
    "query": "q", "key": "k", "value": "v", "weights": "weights",
}  # fmt: skip
"""Step name -> field of `Example` that gives it."""


@dataclass(frozen=True)
class CheckedCell:
    """One cell: written text, right value and reason. `right` is None if it is known only from a mistaken table."""

    table: str
    row: str
    column: str
    written: str
    right: float | str | None
    verdict: Verdict
    why: str
    decimals: int | None = None
    says: str = ""


@dataclass(frozen=True)
class CheckedTable:
    """Written table with a verdict and a reason for each cell.

    A verdict is "" for a cell that cannot be checked and "blank" for a cell without an answer.
    """

    name: str
    says: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    written: tuple[tuple[str, ...], ...]
    verdicts: tuple[tuple[str, ...], ...]
    whys: tuple[tuple[str, ...], ...] = ()
    is_taken: bool = False
    """True if the table has content and none of it could be computed from other tables."""


@dataclass(frozen=True)
class Checked:
    """Result of checking all written tables of an example."""

    title: str
    tables: tuple[CheckedTable, ...]
    cells: tuple[CheckedCell, ...]
    rows: tuple[RowFinding, ...]

    @property
    def passed(self) -> bool:
        """True if nothing is wrong; a truncated number is not a mistake."""
        return not self.rows and all(cell.verdict in ("right", "cut") for cell in self.cells)

    @property
    def taken(self) -> tuple[str, ...]:
        """Tables (inputs excepted) that could not be recomputed and were taken as given."""
        inputs = {CAPTIONS[step] for step in INPUTS}
        return tuple(dict.fromkeys(t.name for t in self.tables if t.is_taken and t.name not in inputs))

    def count(self, verdict: str) -> int:
        """Count the cells with this verdict ("blank" and "" included)."""
        return sum(row.count(verdict) for table in self.tables for row in table.verdicts)


def check(example: Example) -> Checked:
    """Recompute every table that the author of `example` wrote.

    >>> from peasy.worked.example import read_example
    >>> notes = {"title": "t", "tokens": ["a"], "x": [[2, 3]], "written": [{"table": "scores", "cells": [["12"]]}]}
    >>> cell = check(read_example(notes)).cells[0]
    >>> cell.verdict, cell.right, cell.why
    ('wrong', 13.0, '2·2 + 3·3 = 13, not 12.')
    """
    check_size(example)
    if sum(len(row) for table in example.written for row in table.cells) > MOST_CELLS:
        raise InvalidInput(f"There are more than {MOST_CELLS:,} written cells.", hint="Check fewer tables at once.")
    with np.errstate(all="ignore"):
        return _Desk(example).checked()


class _Desk:
    """Checks the tables of one example in order of dependence."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.rules = Rules.of(example)
        projections = [
            node_of(table, example) for table in example.written if table.table.strip().upper().startswith("W_")
        ]
        self.written = [(node_of(table, example, projections), table) for table in example.written]
        given_steps = {step for step, name in GIVEN.items() if getattr(example, name) is not None}
        self.routes = routes(example, given_steps | {node for node, _ in self.written})
        self.symbols = Symbols.of(example.written, example.keys)
        self.versions: dict[str, list[Version]] = {}
        self.tables: list[CheckedTable] = []
        self.cells: list[CheckedCell] = []
        self.faults: list[RowFinding] = []

    def checked(self) -> Checked:
        for node in self.nodes():
            known = self.known(node)
            self.versions[node] = list(known)
            for _, written in filter(lambda pair: pair[0] == node, self.written):
                shape = known[0].values.shape if known else None
                table = place(written, node, self.example, shape, self.rules.may_look)
                self.versions[node] += self.judge(table, known)
            self.versions[node] = trimmed(self.versions[node])
        return Checked(self.example.title, tuple(self.tables), tuple(self.cells), tuple(self.faults))

    def nodes(self) -> Iterator[str]:
        """Yield all tables, each after the ones it is computed from."""
        heads = range(1, self.example.heads + 1) if self.example.heads > 1 else ()
        for step in CAPTIONS:
            yield step
            yield from (head_name(step, head) for head in heads if step in PER_HEAD)

    def known(self, node: str) -> list[Version]:
        """Return the readings of a table from everything given and written before it; the exact one first."""
        matrix = getattr(self.example, GIVEN[node]) if node in GIVEN else None
        if matrix is not None:
            return [Version(np.asarray(matrix, dtype=float), clean=True)]
        derived = derive(self.routes.get(node, []), self.versions)
        may_mask = node.rpartition(".")[2] in ("scaled", "masked")
        return [reading for reading in derived if _is_finite(reading, caption(node), may_mask)]

    def judge(self, table: Placed, known: list[Version]) -> list[Version]:
        """Record verdicts for every cell and row of a written table; return its readings for later tables."""
        judged = {cell: self.judge_cell(table, *cell, content, known) for cell, content in table.cells.items()}
        slip = self.slip(table, judged)
        if slip:
            judged = {cell: _after(cell_verdict, slip) for cell, cell_verdict in judged.items()}
        verdicts = {cell: str(cell_verdict.verdict) if cell_verdict else "" for cell, cell_verdict in judged.items()}
        self.cells += [_cell(table, cell, cell_verdict) for cell, cell_verdict in judged.items() if cell_verdict]
        findings = self.judge_rows(table, verdicts, known)
        self.faults += findings
        blanks = {cell for cell, content in table.cells.items() if content is Mark.BLANK and knowing(known, *cell)}
        whys = {cell: cell_verdict.why for cell, cell_verdict in judged.items() if cell_verdict}
        self.tables.append(_table(table, verdicts | dict.fromkeys(blanks, "blank"), whys))
        wrong = np.zeros((len(table.rows), len(table.columns)), dtype=bool)
        for cell, verdict in verdicts.items():
            wrong[cell] = verdict in ("wrong", "follows")
        if not known:  # given weights cannot be recomputed; only their row sums can be checked
            doubtful = {fault.row for fault in findings if fault.finding == "sum"}
            wrong |= np.array([[label in doubtful] for label in table.rows])
        slipped = [Version(slip.values, clean=False, written=caption(table.node))] if slip else []
        return [*readings(caption(table.node), table.values(), wrong, known), *slipped]

    def slip(self, table: Placed, judged: dict[tuple[int, int], Judged | None]) -> Slip | None:
        """Return the known slip that explains wrong weights, if there is one."""
        scores, scaled = best(self.before(table, "scores")), best(self.before(table, "scaled"))
        if table.step != "weights" or scaled is None:
            return None
        wrong = {cell[0] for cell, verdict in judged.items() if verdict and verdict.verdict == "wrong"}
        return find_slip(table, wrong, self.rules, (scores or scaled).values, scaled.values)

    def judge_cell(self, table: Placed, row: int, column: int, content: Content, known: list[Version]) -> Judged | None:
        if content is Mark.BLANK:
            return None
        if content is Mark.HIDDEN:
            mask = self.rules.may_look
            by_key = table.step in KEY_COLUMNS or table.columns == self.example.keys
            masked = by_key and mask is not None and not mask[row, column]
            return judge_hidden((table.rows[row], table.columns[column]), masked, known, row, column)
        if isinstance(content, Number):
            return judge_number(content, table.texts[row, column].strip(), known, row, column)
        assert isinstance(content, tuple)
        if table.step == "context":
            return judge_shares(table, row, column, content, self.symbols, self.before(table, "weights"))
        return judge_names(table, row, column, content, self.symbols)

    def judge_rows(self, table: Placed, verdicts: dict[tuple[int, int], str], known: list[Version]) -> list[RowFinding]:
        exact, findings = best(known), []
        findings += unfit_findings(table, None if exact is None else exact.values)
        if table.step == "weights" and self.example.normalise != "none":
            findings += sum_findings(table, verdicts)
        if table.step == "context":
            findings += missing_findings(table, self.symbols, self.before(table, "weights"))
            value = self.before(table, "value")
            if value and self.example.normalise == "softmax":
                findings += reach_findings(table, verdicts, value[0].values, self.rules.may_look)
        return findings

    def before(self, table: Placed, step: str) -> list[Version]:
        """Return the readings of an earlier table of the same head."""
        return self.versions.get(table.node.replace(table.step, step), [])


def _after(judged: Judged | None, slip: Slip) -> Judged | None:
    """Add the slip to the reason of a wrong cell."""
    if judged is None or judged.verdict != "wrong":
        return judged
    return replace(judged, why=f"{judged.why.removesuffix('.')}: {slip.says}.")


def _is_finite(version: Version, name: str, hides: bool) -> bool:
    """True if a reading is finite; raise on overflow, except for powers of e, which nothing depends on.

    `allow_minus_inf` allows minus infinity.
    """
    if not (np.isposinf if hides else np.isinf)(version.values).any():
        return True
    if version.clean and not name.endswith(CAPTIONS["powers"]):
        raise InvalidInput(f"The numbers of {name} overflow.", hint="Use smaller numbers.")
    return False


def _cell(table: Placed, at: tuple[int, int], judged: Judged) -> CheckedCell:
    right, content = judged.right, table.cells[at]
    if isinstance(right, float):
        right = "x" if right == -np.inf else round(right, 12) + 0.0
    return CheckedCell(
        table=caption(table.node),
        row=table.rows[at[0]],
        column=table.columns[at[1]],
        written=table.texts[at].strip(),
        right=right,
        verdict=judged.verdict,
        why=judged.why,
        decimals=content.decimals if isinstance(content, Number) else None,
        says=table.says,
    )


def _table(table: Placed, verdicts: dict[tuple[int, int], str], whys: dict[tuple[int, int], str]) -> CheckedTable:
    """Return the table as written: rows in order, including rows of a wrong length."""
    misfits = {len(table.rows) if row is None else row: texts for row, texts in table.misfits}
    used = sorted({row for row, _ in table.cells} | set(misfits))
    width = max([len(table.columns), *map(len, misfits.values())])

    def cells(of: dict[tuple[int, int], str]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(of.get((row, column), "").strip() for column in range(width)) for row in used)

    unfit = {(row, column): text for row, texts in misfits.items() for column, text in enumerate(texts)}
    return CheckedTable(
        name=caption(table.node),
        says=table.says,
        rows=tuple((*table.rows, "?")[row] for row in used),
        columns=(*table.columns, *("",) * width)[:width],
        written=cells(table.texts | unfit),
        verdicts=cells(verdicts),
        whys=cells(whys),
        is_taken=not any(verdicts.values()) and any(content is not Mark.BLANK for content in table.cells.values()),
    )
